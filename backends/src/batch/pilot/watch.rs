//! The task of one pilot, which watches it to its end.

use std::sync::Arc;
use std::time::Duration;

use fiber_core::{Exit, ExitReason};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::queue::Queue;
use super::{PilotFiles, PilotJob, PilotSystem, Progress};
use crate::JobState;
use crate::job_handle::{JobCommand, JobCommands, set_state};
use crate::outage::Outage;
use crate::output::Tail;

/// How long a job may be missing in the answers before it counts as gone.
const MISSING: Duration = Duration::from_secs(30);
/// How long a job that was killed may be in the answers. Its node may be lost.
const KILLED: Duration = Duration::from_secs(90);
/// The pause before a job is cancelled once more.
const RETRY: Duration = Duration::from_secs(2);

pub(super) struct Pilot<S> {
    /// The id of its job.
    id: String,
    queue: Arc<Queue<S>>,
    files: PilotFiles,
    tail: Tail,
    killed_at: Option<Instant>,
    was_listed: bool,
    missing_since: Option<Instant>,
}

impl<S: PilotSystem> Pilot<S> {
    pub(super) fn new(id: String, queue: Arc<Queue<S>>, files: PilotFiles, tail: Tail) -> Self {
        let (killed_at, was_listed, missing_since) = (None, false, None);
        Pilot { id, queue, files, tail, killed_at, was_listed, missing_since }
    }

    pub(super) async fn watch(
        mut self,
        states: watch::Sender<JobState>,
        mut commands: JobCommands,
    ) {
        let mut answers = self.queue.subscribe();
        let reason = loop {
            let progress = tokio::select! {
                biased;
                command = commands.next(), if self.killed_at.is_none() => {
                    if command == JobCommand::Kill {
                        self.killed_at = Some(Instant::now());
                    }
                    self.carry_out(command).await;
                    self.queue.look_soon();
                    continue;
                }
                answer = answers.recv() => {
                    let Ok(jobs) = answer else { continue };
                    self.progress(jobs.iter().find(|job| job.id == self.id))
                }
            };
            match progress {
                Progress::Ended(reason) => break reason,
                Progress::Hopeless(problem) => {
                    self.carry_out(JobCommand::Kill).await;
                    break ExitReason::NotStarted(problem);
                }
                Progress::In(state) => set_state(&states, state),
            }
        };
        self.tail.add(&self.files.tail());
        drop(self.files);
        states.send_replace(JobState::Ended(Exit::new(reason, self.tail.lines())));
    }

    /// Returns the state of the pilot, given its job in the last answer.
    fn progress(&mut self, job: Option<&PilotJob>) -> Progress {
        let progress = match job {
            Some(job) => {
                (self.was_listed, self.missing_since) = (true, None);
                job.progress.clone()
            }
            None => self.missing(),
        };
        match self.killed_at {
            Some(killed_at) if killed_at.elapsed() > KILLED => {
                Progress::Ended(ExitReason::Signal(9))
            }
            Some(_) => of_killed(progress),
            None => progress,
        }
    }

    fn missing(&mut self) -> Progress {
        let since = *self.missing_since.get_or_insert_with(Instant::now);
        let is_gone = since.elapsed() > MISSING;
        if let Some(reason) = S::ended(&self.files, self.was_listed || is_gone) {
            return Progress::Ended(reason);
        }
        match (self.killed_at, is_gone) {
            (Some(_), _) => Progress::Ended(ExitReason::Signal(9)),
            (None, true) => Progress::Ended(ExitReason::Evicted(format!(
                "{} does not list the job any more",
                S::WORDS.title
            ))),
            (None, false) => Progress::In(JobState::Starting),
        }
    }

    /// Tries until the batch system answers: a pilot that is left pending takes a node later.
    async fn carry_out(&self, command: JobCommand) {
        let job = &self.id;
        let mut outage = Outage::default();
        loop {
            let done = match command {
                JobCommand::Kill => S::cancel(job, Some(&self.files)).await,
                JobCommand::Terminate => S::terminate(job).await,
            };
            match done {
                Err(error) if error.is_passing() => {
                    outage.log(&format!("the pilot {job} is not cancelled yet: {error}"));
                    sleep(RETRY).await;
                }
                Err(error) => return tracing::debug!("the pilot {job}: {error}"),
                Ok(()) => return,
            }
        }
    }
}

/// Returns the progress of a pilot that this process has killed.
fn of_killed(progress: Progress) -> Progress {
    match progress {
        Progress::Ended(ExitReason::Cancelled(_) | ExitReason::Code(_) | ExitReason::Signal(_)) => {
            Progress::Ended(ExitReason::Signal(9))
        }
        // It ends soon.
        Progress::Hopeless(_) | Progress::In(_) => Progress::In(JobState::Running),
        ended => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_pilot_ends_by_a_signal() {
        let cancelled = Progress::Ended(ExitReason::Cancelled("its job is gone".into()));
        assert_eq!(of_killed(cancelled), Progress::Ended(ExitReason::Signal(9)));
        let ended = Progress::Ended(ExitReason::Normal);
        assert_eq!(of_killed(ended.clone()), ended);
        let hopeless = Progress::Hopeless("no".into());
        assert_eq!(of_killed(hopeless), Progress::In(JobState::Running));
    }
}

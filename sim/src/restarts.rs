//! Programs whose head dies and starts again, over the same disk.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use fiber::Error;
use fiber::error::PoolEndReason;
use fiber::simulation::Session;
use fiber_core::simulation::{self, Died};
use fiber_world::{begin_head, end_process, is_dead, note};

use crate::ground::end_session;
use crate::{Ground, Storm};

/// How a head dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Its process ends. What it has written can be read, although it may not be on the disk.
    Crash,
    /// The machine loses power, and with it what is not on the disk.
    PowerLoss,
}

/// How a run of a program has ended.
enum RunEnd {
    Completed,
    Died,
    /// It has ended with an error of its surroundings.
    Failed(Error),
}

/// How long a program that has failed waits until it starts again.
const PAUSE: Duration = Duration::from_millis(500);
/// How often a program fails in a storm, at most.
const MAX_FAILURES: u32 = 8;

impl Ground {
    /// Returns a folder on the world's disk. It is there until the world ends.
    pub fn folder(&self) -> PathBuf {
        std::fs::create_dir_all(&self.folder).expect("there is room for a folder");
        self.folder.clone()
    }

    /// Draws the deaths of a program's heads: some of its first runs end by them.
    pub fn deaths(&mut self) -> Vec<Death> {
        let count = self.faults_of_a_kind();
        let mut draw = || if self.rng.bool() { Death::Crash } else { Death::PowerLoss };
        (0..count).map(|_| draw()).collect()
    }

    /// Runs a program as the head of a session, in a node of its own, and starts it again when it
    /// has died, or has failed in the storm because its disk or its workers have, until it has
    /// completed. Then it is calm, and after some failures before. `after` is called after each
    /// run, with the death that ended it.
    ///
    /// # Errors
    /// The program's other errors, and what is left of the session of a head that lives.
    pub fn restart_until_completed(
        &mut self,
        mut storm: Option<Storm>,
        deaths: &[Death],
        program: &(dyn Fn() -> fiber::Result<()> + Sync),
        mut after: impl FnMut(&mut Ground, Option<Death>),
    ) -> Result<(), Box<dyn std::error::Error>> {
        let (mut deaths, mut failures) = (deaths.iter().copied(), self.rng.u32(..MAX_FAILURES));
        loop {
            // It dies as often during its start as in the middle of its work.
            let most = 1_000_000 << self.rng.u32(..14);
            let (death, when) = (deaths.next(), Duration::from_nanos(self.rng.u64(..most)));
            let (seed, number) = self.next_session();
            let (events, happening) = channel();
            let end = std::thread::scope(|threads| {
                let run = move || run_head(&format!("head {number}"), seed, program, &events);
                let head = std::thread::Builder::new().name(format!("head {number}"));
                let head = head.spawn_scoped(threads, run).expect("a world has room");
                let node = happening.recv().expect("it sends its node first");
                if let Some(death) = death
                    && happening.recv_timeout(when) == Err(RecvTimeoutError::Timeout)
                {
                    note(format_args!("{death:?} of head {number}"));
                    end_process(node);
                }
                head.join()
            });
            let end = end.unwrap_or_else(|panic| resume_unwind(panic))?;
            let death = death.filter(|_| matches!(end, RunEnd::Died));
            if death == Some(Death::PowerLoss) {
                let world = simulation::world().expect("this thread has one");
                world.disk().lose_power(world)?;
            }
            after(self, death);
            match end {
                RunEnd::Completed => {
                    storm.into_iter().for_each(|storm| self.wait_for_calm(storm));
                    return Ok(());
                }
                RunEnd::Died => self.has_dead_processes = true,
                RunEnd::Failed(error) if storm.is_some() => {
                    let words = error.to_string().replace(&*self.folder().to_string_lossy(), "…");
                    note(format_args!("head {number} gives up: {words}"));
                    std::thread::sleep(PAUSE);
                    failures = failures.saturating_sub(1);
                    if failures == 0 {
                        storm.take().into_iter().for_each(|storm| self.wait_for_calm(storm));
                    }
                }
                RunEnd::Failed(error) => return Err(error.into()),
            }
        }
    }
}

/// Runs a program as the head of a session. Sends its node first.
///
/// When its node dies, the program's waits end with a panic, so that it drops what it has. Its
/// session is then closed as that of any program, which ends its other threads. Nothing of this
/// reaches the disk or another process.
fn run_head(
    name: &str,
    seed: u64,
    program: &(dyn Fn() -> fiber::Result<()> + Sync),
    events: &Sender<usize>,
) -> Result<RunEnd, String> {
    let _ = events.send(begin_head(name));
    let started = catch_unwind(|| Session::start(seed));
    let session = match started {
        Ok(session) => session.map_err(|error| error.to_string())?,
        Err(panic) => return died(panic),
    };
    let entered = session.enter();
    let result = catch_unwind(AssertUnwindSafe(program));
    drop(entered);
    let left = end_session(session);
    match result {
        _ if is_dead() => Ok(RunEnd::Died),
        Err(panic) => resume_unwind(panic),
        Ok(Ok(())) => left.map(|()| RunEnd::Completed),
        Ok(Err(error)) if is_of_surroundings(&error) => left.map(|()| RunEnd::Failed(error)),
        Ok(Err(error)) => Err(error.to_string()),
    }
}

/// Returns whether a program may end with this error because of the faults around it.
pub(crate) fn is_of_surroundings(error: &Error) -> bool {
    match error {
        Error::PoolEnded { reason, .. } => matches!(reason, PoolEndReason::Failed(_)),
        Error::InputFailed { cause, .. } => is_of_surroundings(cause),
        Error::Journal { .. } | Error::ActorStopped { .. } | Error::Start { .. } => true,
        _ => false,
    }
}

/// Returns the end of a run that has ended with this panic.
fn died(panic: Box<dyn std::any::Any + Send>) -> Result<RunEnd, String> {
    match panic.downcast::<Died>() {
        Ok(_) => Ok(RunEnd::Died),
        Err(panic) => resume_unwind(panic),
    }
}

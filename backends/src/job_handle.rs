//! The handle of a job that a local task starts, watches and ends.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::output::Tail;
use crate::{Job, JobPlace, JobState};

/// A command from the owner of a job to the job's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobCommand {
    Terminate,
    Kill,
}

/// The receiving end of a job's commands.
#[derive(Debug)]
pub(crate) struct JobCommands(mpsc::UnboundedReceiver<JobCommand>);

impl JobCommands {
    /// Returns the next command, and [`JobCommand::Kill`] once all handles are dropped: no other
    /// owner could end the job then.
    pub(crate) async fn next(&mut self) -> JobCommand {
        self.0.recv().await.unwrap_or(JobCommand::Kill)
    }

    /// Returns whether a command is waiting. Both kinds mean the same to a job that has not
    /// started: don't start.
    pub(crate) fn is_pending(&mut self) -> bool {
        !matches!(self.0.try_recv(), Err(mpsc::error::TryRecvError::Empty))
    }
}

#[derive(Debug)]
struct JobHandle {
    place: JobPlace,
    tail: Tail,
    states: watch::Receiver<JobState>,
    commands: mpsc::UnboundedSender<JobCommand>,
}

/// Creates a handle for the job at `place` with the output `tail`, with the sender of its states
/// and the receiver of its commands for the job's task.
pub(crate) fn new(
    place: JobPlace,
    tail: Tail,
) -> (Arc<dyn Job>, watch::Sender<JobState>, JobCommands) {
    let (state, states) = watch::channel(JobState::Starting);
    let (commands, receiver) = mpsc::unbounded_channel();
    (Arc::new(JobHandle { place, tail, states, commands }), state, JobCommands(receiver))
}

/// Sets the state of a job. One that it has already is no news.
pub(crate) fn set_state(states: &watch::Sender<JobState>, state: JobState) {
    states.send_if_modified(|current| {
        let other = *current != state;
        *current = state;
        other
    });
}

impl Job for JobHandle {
    fn place(&self) -> JobPlace {
        self.place.clone()
    }

    fn tail(&self) -> Vec<String> {
        self.tail.lines()
    }

    fn states(&self) -> watch::Receiver<JobState> {
        self.states.clone()
    }

    fn terminate(&self) {
        let _ = self.commands.send(JobCommand::Terminate);
    }

    fn kill(&self) {
        let _ = self.commands.send(JobCommand::Kill);
    }
}

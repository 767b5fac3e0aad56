//! A job that a task of the node's thread makes, watches and ends, as its owner sees it.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::{Job, JobState};

/// What an owner may want of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobCommand {
    Terminate,
    Kill,
}

/// The commands that a job is given.
#[derive(Debug)]
pub(crate) struct JobCommands(mpsc::UnboundedReceiver<JobCommand>);

impl JobCommands {
    /// The next one. When nobody holds the job any more, nobody else could end it: it is to be
    /// killed.
    pub(crate) async fn next(&mut self) -> JobCommand {
        self.0.recv().await.unwrap_or(JobCommand::Kill)
    }

    /// Whether there is one already, of either kind: what has not begun has nothing to end in
    /// order.
    pub(crate) fn is_pending(&mut self) -> bool {
        !matches!(self.0.try_recv(), Err(mpsc::error::TryRecvError::Empty))
    }
}

#[derive(Debug)]
struct JobHandle {
    place: String,
    states: watch::Receiver<JobState>,
    commands: mpsc::UnboundedSender<JobCommand>,
}

/// The job at this place, with what its task needs: where to tell its states, and its commands.
pub(crate) fn new(place: String) -> (Arc<dyn Job>, watch::Sender<JobState>, JobCommands) {
    let (told, states) = watch::channel(JobState::Starting);
    let (commands, given) = mpsc::unbounded_channel();
    (Arc::new(JobHandle { place, states, commands }), told, JobCommands(given))
}

impl Job for JobHandle {
    fn place(&self) -> String {
        self.place.clone()
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

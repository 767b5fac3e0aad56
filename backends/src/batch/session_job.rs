//! A job that `fiber run` has submitted.

use std::path::PathBuf;
use std::time::SystemTime;

use fiber_core::Meta;

use super::records::Record;
use crate::JobPlace;
use crate::cluster::session::{ExitStatus, ProcessState, SessionProcess};

/// A job that `fiber run` has submitted. Its name is that of its session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionJob {
    /// The id of its session.
    pub session: String,
    /// The path of its program.
    pub program: String,
    /// The name of its session.
    pub name: String,
    /// The id of the job.
    pub id: String,
    /// The state of its head.
    pub state: ProcessState,
    /// How often its program was started again.
    pub restarts: u64,
    /// When it was submitted, if that is known.
    pub submitted: Option<SystemTime>,
    /// The resources of the head.
    pub meta: Meta,
    /// The node of its script.
    pub node: Option<String>,
    /// The file of its output.
    pub output: PathBuf,
}

impl SessionJob {
    /// Returns whether its head has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, ProcessState::Ended(_) | ProcessState::Gone)
    }

    /// Returns whether its head has not started yet.
    pub fn is_pending(&self) -> bool {
        matches!(self.state, ProcessState::Starting(_))
    }

    /// Returns its exit status, if it has ended and that is known.
    pub(crate) fn exit_status(self) -> Option<ExitStatus> {
        match self.state {
            ProcessState::Ended(status) => Some(status),
            _ => None,
        }
    }

    /// Returns its head, as `fiber ps` shows it.
    pub(crate) fn process(&self) -> SessionProcess {
        SessionProcess {
            program: Some(file_name(&self.program).to_string()).filter(|name| !name.is_empty()),
            machine: self.node.clone(),
            state: self.state.clone(),
            restarts: self.restarts,
            meta: self.meta,
            started_at: self.submitted,
            ..SessionProcess::new(&self.name, JobPlace::Job { id: self.id.clone() })
        }
    }

    /// Returns the job of a record, about which nothing else is known.
    pub(crate) fn of_record(record: Record, ended: Option<ExitStatus>) -> SessionJob {
        SessionJob {
            session: String::new(),
            program: String::new(),
            name: record.name,
            id: record.id,
            state: ended.map_or(ProcessState::Gone, ProcessState::Ended),
            restarts: 0,
            submitted: record.written,
            meta: Meta::new(),
            node: None,
            output: PathBuf::new(),
        }
    }
}

/// Returns the file name of a program.
fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

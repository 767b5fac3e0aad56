//! The messages between a parent and its child, apart from those of the child's main and the mesh.

use fiber_core::Config;
use fiber_core::inspect::Request;
use fiber_transport::{Message, Received};
use fiber_values::codec;
use serde::{Deserialize, Serialize};

use super::child_main::StartRequest;
use crate::endpoint::CONTROL;
use crate::json;
use crate::mesh::ProcessRef;

/// A message between a parent and its child that the runtime handles itself.
#[derive(Serialize, Deserialize)]
pub enum ControlMessage {
    /// Parent to child: the work to start.
    Start {
        /// The configuration of the child.
        #[serde(with = "json")]
        config: Box<Config>,
        /// The session's first process.
        head: ProcessRef,
        /// The work.
        request: StartRequest,
    },
    /// Child to parent: the work has started.
    Ready {
        /// The URL at which other processes can connect to the child, if they need to.
        address: Option<String>,
    },
    /// Child to parent: the work can't start.
    Failed(String),
    /// Child to parent: the process is alive.
    Heartbeat {
        /// The child's `ProcessUsage` in JSON, or `None` before its work starts.
        usage: Option<String>,
        /// The `Report` about the child's objects and its own children, in JSON, if it has any.
        below: Option<String>,
        /// The events since the last heartbeat, in JSON, if there are any.
        events: Option<String>,
    },
    /// Parent to child: a request of a user who inspects the session.
    Inspect {
        /// The number of the request, which its answer repeats.
        number: u64,
        /// The question.
        #[serde(with = "json")]
        request: Request,
    },
    /// Child to parent: the answer to a request.
    Inspected {
        /// The number of the request.
        number: u64,
        /// The answer in JSON, or the problem in words.
        answer: Result<String, String>,
    },
    /// Child to parent: whether it, or a process below it, has backtraces to print, for which the
    /// end of the session waits.
    Prints(bool),
    /// Parent to child: end when the accepted work is done.
    Shutdown,
    /// Parent to child: end at once, whatever runs. The backend kills the child, too, but a kubelet
    /// sends SIGTERM first, and SIGKILL seconds later.
    Kill,
}

impl ControlMessage {
    /// Encodes the message for the link between parent and child.
    pub fn message(&self) -> Message {
        let mut head = vec![CONTROL];
        let blobs = codec::append_apart(&mut head, self).expect("control messages serialize");
        Message { head, blobs, ..Message::default() }
    }

    /// Returns the control message in `message`, if it is one.
    pub(super) fn read(message: &Received) -> Option<ControlMessage> {
        let (&channel, body) = message.split_first()?;
        if channel == CONTROL { codec::decode_with(body, &message.blobs).ok() } else { None }
    }
}

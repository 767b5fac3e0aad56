//! The messages between a parent and its child, apart from those of the child's main and the mesh.

use fiber_core::Config;
use fiber_core::inspect::Request;
use fiber_core::stats::{ProcessFigures, Report};
use fiber_transport::{Message, Received};
use fiber_values::codec;
use serde::{Deserialize, Serialize};

use super::child_main::StartRequest;
use crate::endpoint::CONTROL;

#[derive(Serialize, Deserialize)]
pub enum ControlMessage {
    /// Parent to child: the work to start.
    Start { config: Box<Config>, request: StartRequest },
    /// Child to parent: the work has started. The address is where other processes can connect, if
    /// they need to.
    Ready { address: Option<String> },
    /// Child to parent: the work can't start.
    Failed(String),
    /// Child to parent: the process is alive. With its figures, and what there is to say about its
    /// objects and its own children. `events` are those since the last heartbeat, in JSON.
    Heartbeat {
        figures: Option<ProcessFigures>,
        below: Option<Box<Report>>,
        events: Option<String>,
    },
    /// Parent to child: a request of somebody who looks at the session.
    Inspect { number: u64, request: Request },
    /// Child to parent: its answer, in JSON, or a message for the user.
    Inspected { number: u64, answer: Result<String, String> },
    /// Parent to child: end when the accepted work is done.
    Shutdown,
    /// Parent to child: end at once, whatever runs. The backend kills the child, too, but a kubelet
    /// sends SIGTERM first, and SIGKILL seconds later.
    Kill,
}

impl ControlMessage {
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

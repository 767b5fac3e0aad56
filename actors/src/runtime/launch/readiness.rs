//! From the connection of a child to the message that it is ready.

use std::cell::Cell;
use std::io::ErrorKind;
use std::time::Duration;

use fiber_backends::JobState;
use fiber_transport::{Connection, Peer, PeerInfo};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::failure::StartFailure;
use super::{MAX_LAG, monitor};
use crate::endpoint::{HeartbeatMonitor, MESH, SPANS, message_limit};
use crate::mesh::MeshPeer;
use crate::runtime::Runtime;
use crate::runtime::listen::ChildConnection;
use crate::runtime::protocol::ControlMessage;
use crate::runtime::telemetry;

/// A child that is ready.
pub(super) struct Ready {
    pub(super) info: PeerInfo,
    pub(super) connection: Connection,
    pub(super) peer: MeshPeer,
    pub(super) address: Option<String>,
}

/// Waits for the connection of a child, sends it the message to start, and waits until it is ready.
/// Sets `connected` in between.
pub(super) async fn wait(
    runtime: &'static Runtime,
    connection: oneshot::Receiver<ChildConnection>,
    start: ControlMessage,
    states: &mut watch::Receiver<JobState>,
    max_lag: Duration,
    connected: &Cell<bool>,
) -> Result<Ready, StartFailure> {
    let unusable = |problem: &str| StartFailure::Unusable(problem.into());
    let peer = tokio::select! {
        peer = connection => {
            peer.map_err(|_| unusable("this process stopped waiting for it"))?
        }
        exit = monitor::ended(states) => return Err(StartFailure::EndedUnconnected(exit)),
    };
    connected.set(true);
    let Peer { info, mut connection } = peer.map_err(|error| unusable(&error.to_string()))?;
    let config = &runtime.endpoint.config;
    connection.incoming.set_limit(message_limit(config));
    // If the link is closed by now, the next message says so.
    let _ = connection.link.send(start.message());
    let mut heartbeats = HeartbeatMonitor::new(config);
    let mut peer = runtime.mesh.add_link(info.id, &connection.link);
    // Messages take precedence over the end: a child may get ready, do its work and end before this
    // looks.
    let answer = tokio::select! {
        biased;
        answer = answer(&mut connection, &mut heartbeats, &mut peer) => answer,
        exit = monitor::ended(states) => {
            match timeout(MAX_LAG, answer(&mut connection, &mut heartbeats, &mut peer)).await {
                Ok(answer @ (Answer::Ready(_) | Answer::Failed(_))) => answer,
                Ok(Answer::Closed | Answer::Silent) | Err(_) => {
                    return Err(StartFailure::Ended(exit));
                }
            }
        }
    };
    match answer {
        Answer::Ready(address) => Ok(Ready { info, connection, peer, address }),
        Answer::Failed(problem) => Err(StartFailure::Unusable(problem)),
        Answer::Silent => Err(StartFailure::Silent),
        // The exit of the process explains more than the end of its link.
        Answer::Closed => Err(match timeout(max_lag, monitor::ended(states)).await {
            Ok(exit) => StartFailure::Ended(exit),
            Err(_) => unusable("its link broke before it was ready"),
        }),
    }
}

/// The answer of a child to its work.
enum Answer {
    /// With its address.
    Ready(Option<String>),
    Failed(String),
    /// There were no heartbeats for too long.
    Silent,
    /// The link closed.
    Closed,
}

async fn answer(
    connection: &mut Connection,
    heartbeats: &mut HeartbeatMonitor,
    peer: &mut MeshPeer,
) -> Answer {
    loop {
        let message = tokio::select! {
            biased;
            message = connection.next() => message,
            () = heartbeats.lost() => return Answer::Silent,
        };
        heartbeats.received();
        let message = match message {
            Some(Ok(message)) => message,
            Some(Err(error)) if error.kind() == ErrorKind::InvalidData => {
                return Answer::Failed(format!("its answer can't be read: {error}"));
            }
            Some(Err(_)) | None => return Answer::Closed,
        };
        if message.first() == Some(&MESH) {
            // An initializer or an actor's factory may talk to other actors.
            peer.receive(message);
            continue;
        }
        if message.first() == Some(&SPANS) {
            telemetry::receive(message.bytes.slice(1..));
            continue;
        }
        match ControlMessage::read(&message) {
            Some(ControlMessage::Ready { address }) => return Answer::Ready(address),
            Some(ControlMessage::Failed(problem)) => return Answer::Failed(problem),
            Some(ControlMessage::Heartbeat { .. }) => {}
            _ => return Answer::Failed("it sent an unexpected message before it was ready".into()),
        }
    }
}

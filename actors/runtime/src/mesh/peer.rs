//! Reading the links to other processes.

use std::sync::Arc;

use fiber_core::{ExitReason, ProcessId};
use fiber_transport::{Connection, Link, Received};

use super::Mesh;
use super::channel::Channel;
use super::inbox::{ReplyTo, Responder};
use super::port::{PeerId, Request, Requester};
use super::wire::{self, Frame};
use crate::endpoint::{HeartbeatMonitor, MESH, message_limit, send_heartbeats};

/// A process at the other end of a link that is being read. Dropping it reports the link as lost.
pub(crate) struct MeshPeer {
    mesh: &'static Mesh,
    channel: Arc<Channel>,
    link: Arc<dyn Link>,
    id: PeerId,
}

impl MeshPeer {
    pub(super) fn new(mesh: &'static Mesh, channel: Arc<Channel>, link: Arc<dyn Link>) -> MeshPeer {
        MeshPeer { mesh, channel, link, id: mesh.registry().ports().next_peer() }
    }

    /// Handles a message that begins with [`MESH`].
    pub(crate) fn receive(&mut self, message: Received) {
        match Frame::read(message) {
            Some(Frame::Answer { call, value }) => self.channel.complete(call, Ok(value)),
            Some(Frame::Failed { call, failure }) => self.channel.complete(call, Err(failure)),
            Some(Frame::Port { call, port, body }) => {
                let link = Arc::clone(&self.link);
                let requester =
                    Requester::new(self.id, Responder::new(ReplyTo::Link(Arc::clone(&link)), call));
                let request = Request { body, requester, link: Some(link) };
                self.mesh.registry().ports().deliver(port, request);
            }
            frame => self.mesh.registry().accept(frame, ReplyTo::Link(Arc::clone(&self.link))),
        }
    }

    /// Handles the end of the link.
    pub(crate) fn lost(&mut self, reason: &ExitReason) {
        if self.channel.uses(&self.link) {
            self.mesh.close(&self.channel, reason);
        }
        self.mesh.registry().lost(self.id);
    }
}

impl Drop for MeshPeer {
    fn drop(&mut self) {
        self.lost(&ExitReason::LinkLost("it is not read any more".into()));
    }
}

impl Mesh {
    /// Reads the link to a process until it is lost or has been silent for too long.
    pub(super) async fn serve(&'static self, id: ProcessId, mut connection: Connection) {
        let config = &self.endpoint.config;
        connection.incoming.set_limit(message_limit(config));
        let mut peer = self.add_link(id, &connection.link);
        connection.link.set_peer_timeout(config.heartbeat_timeout);
        let heartbeats =
            send_heartbeats(Arc::clone(&connection.link), config.heartbeat, wire::heartbeat);
        fiber_core::spawn_local(heartbeats);
        let mut monitor = HeartbeatMonitor::new(config);
        let reason = loop {
            let message = tokio::select! {
                biased;
                message = connection.next() => message,
                () = monitor.lost() => break ExitReason::HeartbeatLost(config.heartbeat_timeout),
            };
            monitor.received();
            match message {
                Some(Ok(message)) if wire::is_heartbeat(&message) => connection.allow_sleep(),
                Some(Ok(message)) if message.first() == Some(&MESH) => peer.receive(message),
                Some(Ok(_)) => {
                    tracing::warn!("process {id} sent a message that is not for the mesh");
                }
                Some(Err(error)) => break ExitReason::LinkLost(error.to_string()),
                None => break ExitReason::LinkLost("it was closed by the other side".into()),
            }
        };
        connection.link.close();
        peer.lost(&reason);
    }
}

//! Reading the links to other processes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fiber_core::{ExitReason, ProcessId};
use fiber_transport::{Connection, Link, Received};
use parking_lot::Mutex;

use super::Mesh;
use super::channel::Channel;
use super::inbox::ReplyTo;
use super::port::PeerId;
use super::wire::{self, Frame, Query};
use crate::endpoint::{HeartbeatMonitor, MESH, message_limit, send_heartbeats};

/// A process at the other end of a link that is being read. Dropping it reports the link as lost.
pub(crate) struct MeshPeer {
    mesh: &'static Mesh,
    channel: Arc<Channel>,
    reading: Arc<Reading>,
    id: PeerId,
}

/// A link that is being read.
struct Reading {
    link: Arc<dyn Link>,
    /// Whether the process at the other end has given up this link for a later one.
    is_over: AtomicBool,
}

/// The links to each process that are being read.
#[derive(Default)]
pub(super) struct Readings(Mutex<HashMap<ProcessId, Vec<Arc<Reading>>>>);

impl Readings {
    fn add(&self, process: ProcessId, reading: &Arc<Reading>) {
        self.0.lock().entry(process).or_default().push(Arc::clone(reading));
    }

    fn remove(&self, process: ProcessId, reading: &Arc<Reading>) {
        let mut all = self.0.lock();
        if let Some(readings) = all.get_mut(&process) {
            readings.retain(|other| !Arc::ptr_eq(other, reading));
            if readings.is_empty() {
                all.remove(&process);
            }
        }
    }

    /// Closes the other links to a process. What has come over them and was not read is dropped.
    fn end_others(&self, process: ProcessId, reading: &Arc<Reading>) {
        let readings = self.0.lock().get(&process).cloned().unwrap_or_default();
        for other in readings.iter().filter(|other| !Arc::ptr_eq(other, reading)) {
            other.is_over.store(true, Ordering::Relaxed);
            other.link.close();
        }
    }
}

impl MeshPeer {
    pub(super) fn new(mesh: &'static Mesh, channel: Arc<Channel>, link: Arc<dyn Link>) -> MeshPeer {
        let reading = Arc::new(Reading { link, is_over: AtomicBool::new(false) });
        mesh.readings.add(channel.to, &reading);
        MeshPeer { mesh, channel, reading, id: mesh.registry().ports().next_peer() }
    }

    /// Handles a message that begins with [`MESH`].
    pub(crate) fn receive(&mut self, message: Received) {
        if self.reading.is_over.load(Ordering::Relaxed) {
            return;
        }
        match Frame::read(message) {
            Some(Frame::Answer { call, value }) => self.channel.complete(call, Ok(value)),
            Some(Frame::Failed { call, failure }) => self.channel.complete(call, Err(failure)),
            frame => {
                if let Some(Frame::Query { query: Query::Resume, .. }) = &frame {
                    self.mesh.readings.end_others(self.channel.to, &self.reading);
                }
                let from = ReplyTo::Link(Arc::clone(&self.reading.link));
                self.mesh.registry().accept(frame, self.id, from);
            }
        }
    }

    /// Handles the end of the link. The names of the process's actors are free before calls fail.
    pub(crate) fn lost(&mut self, reason: &ExitReason) {
        self.mesh.registry().lost(self.id);
        if self.channel.uses(&self.reading.link) {
            self.mesh.close(&self.channel, reason);
        }
    }
}

impl Drop for MeshPeer {
    fn drop(&mut self) {
        self.mesh.readings.remove(self.channel.to, &self.reading);
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

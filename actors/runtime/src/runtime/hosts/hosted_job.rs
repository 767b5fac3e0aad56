//! A hosted process as a job, as its parent sees it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use fiber_backends::{Job, JobPlace, JobSpec, JobState};
use fiber_core::{Exit, ExitReason, Meta, ProcessId};
use fiber_transport::{HandshakeError, Peer, PeerInfo};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::host::{Host, hosted_output};
use super::hosted_link::HostedLink;
use super::shared::HostWire;
use super::wire::{self, HostedProcess, Number, ToHost};
use super::{HostGroup, HostNumber, HostRule};
use crate::runtime::listen::hand_over;

const SIGKILL: i32 = 9;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct HostedJob {
    pub(super) number: Number,
    pub(super) group: Arc<HostGroup>,
    /// No actor is left in it: it names the host.
    pub(super) rule: HostRule,
    pub(super) spec: JobSpec,
    /// See [`Launch`](crate::runtime::launch::Launch). It counts for a new host, too.
    pub(super) retry_creation: bool,
    id: ProcessId,
    parent: ProcessId,
    states: watch::Sender<JobState>,
    placed: Mutex<Placed>,
}

/// Where the process runs.
#[derive(Debug, Default)]
struct Placed {
    place: Option<JobPlace>,
    /// The number of its host, and the link to it, once it is to start there.
    host: Option<(HostNumber, Arc<HostWire>)>,
    link: Option<Arc<HostedLink>>,
    /// The host in which it is or will be.
    assigned: Weak<Host>,
}

impl HostedJob {
    pub(super) fn new(
        number: Number,
        (group, rule): (Arc<HostGroup>, HostRule),
        spec: JobSpec,
        retry_creation: bool,
        (id, parent): (ProcessId, ProcessId),
    ) -> HostedJob {
        let (states, placed) = (watch::Sender::new(JobState::AwaitsHost), Mutex::default());
        HostedJob { number, group, rule, spec, retry_creation, id, parent, states, placed }
    }

    pub(super) fn meta(&self) -> &Meta {
        &self.spec.meta
    }

    /// Returns whose process it is: that of a pool or ring, or its own.
    pub(super) fn owner(&self) -> &str {
        let (group, own) = (&self.group.name, &self.spec.name);
        let is_of_group = own.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'));
        if is_of_group { group } else { own }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(*self.states.borrow(), JobState::Ended(_))
    }

    /// Notes the host in which it will start.
    pub(super) fn assign(&self, host: &Arc<Host>) {
        self.placed.lock().assigned = Arc::downgrade(host);
    }

    /// Notes why the process does not start yet.
    pub(super) fn wait(&self, state: JobState) {
        self.states.send_if_modified(|current| {
            let changes = !matches!(current, JobState::Ended(_)) && *current != state;
            if changes {
                *current = state;
            }
            changes
        });
    }

    /// Starts the process in a host that is ready.
    pub(super) fn start(&self, number: HostNumber, host: &Arc<HostWire>) {
        let mut placed = self.placed.lock();
        // It may have been killed before.
        if self.has_ended() {
            return;
        }
        placed.host = Some((number, Arc::clone(host)));
        self.states.send_replace(JobState::Starting);
        let process = HostedProcess {
            number: self.number,
            id: self.id,
            parent: self.parent,
            name: self.spec.name.clone(),
            restarts: self.spec.restarts,
            retry_creation: self.retry_creation,
            meta: self.spec.meta,
            output: hosted_output(self.spec.output.mode),
        };
        let _ = host.link.send(wire::command(&ToHost::Start(Box::new(process))));
    }

    pub(super) fn running(&self, place: JobPlace) {
        self.placed.lock().place = Some(place);
        self.wait(JobState::Running);
    }

    /// Hands the connection of the process to its launch.
    pub(super) fn connected(&self, peer: Result<PeerInfo, String>) {
        let info = match peer {
            Ok(info) => info,
            Err(problem) => return hand_over(self.id, Err(HandshakeError::Rejected(problem))),
        };
        let mut placed = self.placed.lock();
        let Some((_, host)) = placed.host.clone() else { return };
        let (link, connection) = HostedLink::connect(self.number, host);
        placed.link = Some(link);
        drop(placed);
        hand_over(self.id, Ok(Peer { info, connection }));
    }

    /// Returns the number of its host, and whether that is being lost, once it is to start there.
    pub(super) fn host(&self) -> Option<(HostNumber, Arc<AtomicBool>)> {
        let placed = self.placed.lock();
        placed.host.as_ref().map(|(number, wire)| (*number, Arc::clone(&wire.is_failing)))
    }

    /// Returns the link to the process, if there is one.
    pub(super) fn link(&self) -> Option<Arc<HostedLink>> {
        self.placed.lock().link.clone()
    }

    /// Notes the end of the process.
    pub(super) fn ended(&self, exit: Exit) {
        self.wait(JobState::Ended(exit));
        if let Some(link) = self.link() {
            link.end(None);
        }
    }
}

impl Job for HostedJob {
    fn place(&self) -> JobPlace {
        self.placed.lock().place.clone().unwrap_or(JobPlace::AwaitsHost)
    }

    fn tail(&self) -> Vec<String> {
        match &*self.states.borrow() {
            JobState::Ended(exit) => exit.tail.clone(),
            _ => Vec::new(),
        }
    }

    fn states(&self) -> watch::Receiver<JobState> {
        self.states.subscribe()
    }

    fn terminate(&self) {
        let host = self.placed.lock().host.clone();
        if let Some((_, host)) = host {
            let _ = host.link.send(wire::command(&ToHost::Terminate(self.number)));
        }
    }

    fn kill(&self) {
        let placed = self.placed.lock();
        let kill = wire::command(&ToHost::Kill(self.number));
        if self.has_ended() {
            return;
        }
        let assigned = placed.assigned.clone();
        if placed.host.as_ref().is_some_and(|(_, host)| host.link.send(kill).is_ok()) {
            drop(placed);
            if let Some(host) = assigned.upgrade() {
                host.is_killed(self.number);
            }
            return;
        }
        // It has not started, or its host is gone. The lock keeps it from starting meanwhile.
        self.wait(JobState::Ended(Exit::new(ExitReason::Signal(SIGKILL), Vec::new())));
        let link = placed.link.clone();
        drop(placed);
        if let Some(link) = link {
            link.end(None);
        }
        if let Some(host) = assigned.upgrade() {
            host.remove(self.number);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;

//! A host, as its parent sees it, from its start to its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fiber_backends::{ChildOutput, JobPlace, JobState, Room, WaitReason, print_message};
use fiber_core::stats::ProcessRole;
use fiber_core::{Exit, ExitReason, Meta, OutputMode};
use fiber_transport::Received;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::host_main::HostMain;
use super::placed::PlacedProcesses;
use super::room::Use;
use super::shared::HostWire;
use super::wire::{self, Arrived, FromHost, Number};
use super::{ENDED_HOSTS, HostGroup, HostNumber, HostedJob, Spread, State, room};
use crate::random::Random;
use crate::runtime::Runtime;
use crate::runtime::child_main::StartRequest;
use crate::runtime::launch::{
    ChildProcess, Launch, Owner, Placement, ProcessCommand, ReadyChild, SchedulingPolicy,
};

/// How long a host of a group that may need it again stays without processes.
const LINGER: Duration = Duration::from_secs(5);

/// How long a process waits for the place of a killed one, before it may go elsewhere.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A host, as its parent sees it.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) number: HostNumber,
    pub(super) name: String,
    /// The machine on which it runs, if the backend has machines.
    pub(super) machine: Option<String>,
    /// The group and the request of its processes, if it is for a fixed number of them.
    pub(super) of: Option<(Arc<HostGroup>, Meta)>,
    pub(super) state: Mutex<HostState>,
    pub(super) commands: mpsc::UnboundedSender<ProcessCommand>,
}

/// The place of a process in the host that it names.
pub(super) enum Place {
    Free,
    /// There may be one later; why not now.
    Later(String),
    /// There won't be one, for this reason.
    Never(String),
}

#[derive(Debug, Default)]
pub(super) struct HostState {
    pub(super) processes: PlacedProcesses,
    /// The link to it, once it is ready.
    pub(super) link: Option<Arc<HostWire>>,
    /// The room on its machine, once that is known.
    pub(super) room: Option<Room>,
    /// Whether it gets no more processes.
    closed: bool,
    /// Why its job waits.
    waiting: Option<String>,
}

impl Host {
    /// Returns whether it has a place for a process, or will have one when those of its processes
    /// have ended that are killed.
    pub(super) fn has_place(&self, job: &HostedJob) -> bool {
        let state = self.state.lock();
        if state.closed {
            return false;
        }
        match &self.of {
            Some((group, meta)) => {
                Arc::ptr_eq(group, &job.group)
                    && meta == job.meta()
                    && state.processes.len() < group.per_job
            }
            None => {
                let will_take = state.processes.will_take();
                state.room.is_none_or(|room| will_take.leaves_room(&room, job.meta()))
            }
        }
    }

    /// Returns the link to it if processes may start there: on a machine, its own answer says first
    /// how many it has room for.
    fn ready_link(&self, state: &HostState) -> Option<Arc<HostWire>> {
        let knows_room =
            self.machine.is_none() || state.room.as_ref().is_some_and(room::is_complete);
        state.link.clone().filter(|_| knows_room)
    }

    /// Returns whether it may get more processes.
    pub(super) fn is_open(&self) -> bool {
        !self.state.lock().closed
    }

    /// Returns how many of these processes it has or will have, and how many in all.
    pub(super) fn members(&self, spread: &Arc<Spread>) -> (usize, usize) {
        let state = self.state.lock();
        let is_member =
            |job: &HostedJob| job.rule.spread().is_some_and(|own| Arc::ptr_eq(own, spread));
        (state.processes.count(is_member), state.processes.count(|_| true))
    }

    /// Looks for a place for a process that is to be in this host, whichever group has it.
    pub(super) fn place_of_its_own(&self, job: &HostedJob) -> Place {
        let state = self.state.lock();
        let name = &self.name;
        match &self.of {
            None if state.closed => Place::Later(format!("host `{name}` ends")),
            None => {
                let will_take = state.processes.will_take();
                match state.room {
                    Some(room) if !Use::default().leaves_room(&room, job.meta()) => {
                        Place::Never(format!(
                            "host `{name}` is too small for {}: its machine has {}",
                            room::requested(job.meta()),
                            room::largest(&[room])
                        ))
                    }
                    Some(room) if !will_take.leaves_room(&room, job.meta()) => Place::Later(
                        format!("host `{name}` has no room for {}", room::requested(job.meta())),
                    ),
                    _ => Place::Free,
                }
            }
            Some(_) if state.closed => Place::Never(format!("host `{name}` ends")),
            Some((_, meta)) if !room::fits(job.meta(), meta) => Place::Never(format!(
                "a place in host `{name}` is for {}, not for {}",
                room::requested(meta),
                room::requested(job.meta())
            )),
            Some((group, _)) if state.processes.len() >= group.per_job => Place::Later(format!(
                "host `{name}` is full: it has {} processes, as many as its job is for",
                state.processes.len()
            )),
            Some(_) => Place::Free,
        }
    }

    /// Returns the share of its machine that will be free, and the share that is free already. Both
    /// are of what a process requests.
    pub(super) fn free_shares(&self, meta: &Meta) -> (i64, i64) {
        let HostState { processes, room, .. } = &*self.state.lock();
        let share = |taken: &Use| taken.free_share(room.as_ref(), meta);
        (share(&processes.will_take()), share(processes.taken()))
    }

    /// Starts a process, or lets it wait: for the host, or for the place of one that is killed.
    /// Returns whether it waits for such a place.
    pub(super) fn add(self: &Arc<Host>, job: Arc<HostedJob>) -> bool {
        job.assign(self);
        let mut state = self.state.lock();
        if job.has_ended() {
            return false;
        }
        if self.machine.is_some() && !state.processes.leave_room(state.room.as_ref(), job.meta()) {
            job.wait(JobState::AwaitsHost);
            state.processes.queue(job);
            return true;
        }
        match self.ready_link(&state) {
            Some(link) => job.start(self.number, &link),
            None => job.wait(match &state.waiting {
                Some(reason) => JobState::Waiting(WaitReason::Resources(reason.clone())),
                None => JobState::AwaitsHost,
            }),
        }
        state.processes.insert(job);
        false
    }

    fn wire(&self) -> Option<Arc<HostWire>> {
        self.state.lock().link.clone()
    }

    /// Notes that a process is killed. Its place is free when it has ended.
    pub(super) fn is_killed(&self, number: Number) {
        self.state.lock().processes.is_killed(number);
    }

    /// Removes a process that has ended, or that was killed before it started. Its place is for
    /// those that wait for it.
    pub(super) fn remove(&self, number: Number) -> Option<Arc<HostedJob>> {
        let mut state = self.state.lock();
        let removed = state.processes.remove(number);
        let Some(link) = self.ready_link(&state) else { return removed };
        let room = state.room;
        while let Some(next) = state.processes.next_queued(room.as_ref()) {
            if !next.has_ended() {
                next.start(self.number, &link);
                state.processes.insert(next);
            }
        }
        removed
    }

    /// Notes what its machine has, as far as the backend does not know it, and starts the processes
    /// for which there is room. Returns the others.
    pub(super) fn set_room(&self, own: Room) -> Vec<Arc<HostedJob>> {
        let mut state = self.state.lock();
        let is_complete = state.room.as_ref().is_some_and(room::is_complete);
        if self.machine.is_none() || is_complete {
            return Vec::new();
        }
        let Some(link) = state.link.clone() else { return Vec::new() };
        let room = room::completed(state.room, own);
        state.room = Some(room);
        let mut without_room = Vec::new();
        for job in state.processes.take_all() {
            if state.processes.taken().leaves_room(&room, job.meta()) {
                job.start(self.number, &link);
                state.processes.insert(job);
            } else {
                without_room.push(job);
            }
        }
        without_room
    }

    /// Refuses more processes from now on. Returns those that wait for a place.
    fn close(&self) -> Vec<Arc<HostedJob>> {
        let mut state = self.state.lock();
        state.closed = true;
        state.processes.take_queued()
    }

    /// Asks a host that works to end, unless it ends already. Returns whether it works.
    pub(super) fn end(&self) -> bool {
        let mut state = self.state.lock();
        if state.link.is_some() && !state.closed {
            state.closed = true;
            let _ = self.commands.send(ProcessCommand::Shutdown);
        }
        state.link.is_some()
    }

    /// Ends the host if it has no processes, unless it ends already.
    pub(super) fn end_if_idle(&self) {
        let mut state = self.state.lock();
        if !state.closed && state.processes.is_empty() {
            state.closed = true;
            let (link, commands) = (state.link.clone(), self.commands.clone());
            drop(state);
            match link {
                Some(link) => link.evacuate(move || {
                    let _ = commands.send(ProcessCommand::Shutdown);
                }),
                // Nothing is lost with a host that has not started.
                None => {
                    let _ = commands.send(ProcessCommand::Kill(ExitReason::Shutdown));
                }
            }
        }
    }
}

/// Returns where the output of a hosted process goes, in its host. One file is for the host.
pub(super) fn hosted_output(mode: OutputMode) -> OutputMode {
    if mode == OutputMode::File { OutputMode::Prefix } else { mode }
}

/// Returns where the output of a host goes. Its processes have added their names if need be.
fn host_output(output: ChildOutput) -> ChildOutput {
    let is_file = output.mode == OutputMode::File;
    output.with_mode(if is_file { OutputMode::File } else { OutputMode::Inherit })
}

/// Uses a host for its processes.
struct HostOwner {
    runtime: &'static Runtime,
    host: Arc<Host>,
    was_ready: bool,
}

impl Owner for HostOwner {
    fn ready(&mut self, child: ReadyChild<'_>) {
        self.was_ready = true;
        self.runtime.host_ready(&self.host, &child);
    }

    fn message(&mut self, message: Received) {
        self.runtime.receive_from_host(&self.host, message);
    }

    fn is_last(&self, message: &Received) -> bool {
        wire::is_relayed_control(message)
    }

    async fn ended(self, exit: Exit) -> ExitReason {
        let reason = exit.reason.clone();
        if self.was_ready || reason == ExitReason::Shutdown {
            self.runtime.host_ended(&self.host, exit);
        } else {
            self.runtime.host_failed(&self.host, exit);
        }
        reason
    }
}

impl Runtime {
    /// Starts a host, for a process first of all.
    pub(super) fn start_host(
        &'static self,
        state: &mut State,
        machine: Option<(String, Option<Room>)>,
        of: Option<(Arc<HostGroup>, Meta)>,
        first: &HostedJob,
    ) -> Arc<Host> {
        let number = self.hosts.last_host.fetch_add(1, Ordering::Relaxed) + 1;
        let (commands, inbox) = mpsc::unbounded_channel();
        let (machine, room) = machine.unzip();
        let name = match (&of, &machine) {
            (Some((group, _)), _) => format!("{}/host-{number}", group.name),
            (None, machine) => format!("host-{}", machine.as_deref().unwrap_or_default()),
        };
        let host = Arc::new(Host {
            number,
            name,
            machine,
            of,
            state: Mutex::new(HostState { room: room.flatten(), ..HostState::default() }),
            commands,
        });
        if let Some(machine) = &host.machine {
            state.taken.insert(machine.clone(), Arc::clone(&host));
        }
        state.hosts.push(Arc::clone(&host));
        let output = match host.of {
            Some(_) => first.spec.output.clone(),
            None => self.config().output.into(),
        };
        let (processes, meta) = match &host.of {
            Some((group, meta)) => (group.per_job, room::of_job(meta, group.per_job)),
            // The processes of a machine's host request what they need from fiber.
            None => (usize::MAX, Meta::new()),
        };
        let simulates = host.of.as_ref().is_some_and(|(group, _)| group.simulated);
        let (owned, retry_creation) = (Arc::clone(&host), first.retry_creation);
        self.spawn(move || async move {
            let launch = Launch {
                name: owned.name.clone(),
                role: ProcessRole::Host,
                restarts: 0,
                retry_creation,
                meta,
                output: host_output(output),
                request: StartRequest::new(&HostMain { simulates }),
                scheduling: Some(Box::new(Arc::clone(&owned))),
                placement: Placement::as_host(owned.machine.clone(), processes),
            };
            let owner = HostOwner { runtime: self, host: owned, was_ready: false };
            let child = ChildProcess { runtime: self, launch, commands: inbox, owner };
            child.start().exited().await;
        });
        host
    }

    /// Takes a host that is ready, and starts its processes.
    fn host_ready(&'static self, host: &Arc<Host>, child: &ReadyChild<'_>) {
        if let Some(machine) = &host.machine {
            self.hosts.machines.started(machine);
        }
        let mut state = host.state.lock();
        state.waiting = None;
        let (link, is_failing) = (Arc::clone(child.link), Arc::clone(child.is_failing));
        let travel_time = Arc::clone(&self.hosts.travel_time);
        let wire = HostWire::new(link, is_failing, host.number, travel_time);
        state.link = Some(Arc::new(wire));
        if let Some(wire) = host.ready_link(&state) {
            state.processes.iter().for_each(|job| job.start(host.number, &wire));
        }
        drop(state);
        // One that was killed before it could start has left a place.
        self.place_processes();
        self.end_if_unused(host);
    }

    fn receive_from_host(&'static self, host: &Arc<Host>, message: Received) {
        let job = |number| host.state.lock().processes.get(number).cloned();
        match wire::read(message) {
            Some(Arrived::Relayed(number, message)) => {
                if let Some(link) = job(number).and_then(|job| job.link()) {
                    link.receive(message);
                }
            }
            Some(Arrived::WithBlobs { number, travels, message }) => {
                let blobs = host.wire().and_then(|wire| wire.arrive(&travels, &message.blobs));
                match (blobs, job(number).and_then(|job| job.link())) {
                    (Some(blobs), Some(link)) => link.receive(Received { blobs, ..message }),
                    (Some(_), None) => {}
                    (None, _) => tracing::error!("ignored malformed blobs of `{}`", host.name),
                }
            }
            Some(Arrived::Command(FromHost::Room(room))) => {
                self.wait_for_room(host.set_room(room));
                // Others may wait that are now known to be too large.
                self.place_processes();
            }
            Some(Arrived::Blob(key, blob)) => {
                let bytes = blob.map(|blob| blob.to_bytes());
                if let Some(wire) = host.wire() {
                    wire.fetched(key, bytes);
                }
            }
            Some(Arrived::Command(FromHost::Door(door))) => {
                if let Some(wire) = host.wire() {
                    wire.set_door(door);
                }
            }
            Some(Arrived::Command(FromHost::Copied(blobs))) => {
                if let Some(wire) = host.wire() {
                    blobs.into_iter().for_each(|(key, is_there)| wire.copied(key, is_there));
                }
            }
            Some(Arrived::Command(FromHost::Terminating)) => {
                if let Some(wire) = host.wire() {
                    wire.evacuate(|| {});
                }
                self.wait_for_room(host.close());
                self.place_processes();
            }
            Some(Arrived::Command(FromHost::Running { number, place })) => {
                if let Some(job) = job(number) {
                    let (place, host) = (Box::new(place), host.name.clone());
                    job.running(JobPlace::Hosted { place, host });
                }
            }
            Some(Arrived::Command(FromHost::Connected { number, peer })) => {
                if let Some(job) = job(number) {
                    job.connected(peer);
                }
            }
            Some(Arrived::Command(FromHost::Closed { number, problem })) => {
                if let Some(link) = job(number).and_then(|job| job.link()) {
                    link.end(problem);
                }
            }
            Some(Arrived::Command(FromHost::Ended { number, exit })) => {
                if let Some(job) = host.remove(number) {
                    job.ended(exit);
                    self.process_ended(host);
                }
            }
            Some(Arrived::Shared { .. }) | None => {
                tracing::error!("ignored an invalid message of `{}`", host.name);
            }
        }
    }

    /// Lets a process that waits for the place of a killed one go elsewhere if that does not end.
    pub(super) fn limit_wait(&'static self, host: Arc<Host>, number: Number) {
        self.spawn(move || async move {
            sleep(END_LIMIT).await;
            let mut state = host.state.lock();
            if !state.processes.is_queued(number) {
                return;
            }
            let waiting = state.processes.take_queued();
            drop(state);
            tracing::warn!(
                "processes on `{}` were killed {END_LIMIT:?} ago and have not ended: others wait \
                 no longer for their places",
                host.name
            );
            self.wait_for_room(waiting);
            self.place_processes();
        });
    }

    /// Uses the place of a process that has ended, and ends a host that is not needed any more.
    fn process_ended(&'static self, host: &Arc<Host>) {
        self.place_processes();
        self.hosts.end_idle();
        self.end_if_unused(host);
    }

    /// Ends a host that remains without processes. A machine's host stays.
    fn end_if_unused(&'static self, host: &Arc<Host>) {
        let is_empty = host.state.lock().processes.is_empty();
        if host.of.is_some() && is_empty {
            let host = Arc::clone(host);
            fiber_core::spawn_local(async move {
                sleep(LINGER).await;
                host.end_if_idle();
            });
        }
    }

    /// Handles the failed start of a host. On a machine, its processes go to other machines while
    /// there are any.
    fn host_failed(&'static self, host: &Arc<Host>, exit: Exit) {
        // At the exit of this process, it has killed the host.
        let Some(machine) = host.machine.as_ref().filter(|_| !self.is_exiting()) else {
            return self.host_ended(host, exit);
        };
        let problem = exit.start_failure().start_problem();
        let id = self.part::<Random>().process_id();
        let (pause, is_new) = self.hosts.machines.failed(machine, &problem, id);
        if is_new {
            tracing::warn!("no host could be started on `{machine}`: {problem}");
        } else {
            tracing::debug!("no host could be started on `{machine}`: {problem}");
        }
        if is_new && !tracing::dispatcher::has_been_set() {
            // The program works with the other machines, and shows no log.
            let warning = format!("fiber: warning: `{machine}` can't be used for now: {problem}\n");
            fiber_core::spawn_local(print_message(warning));
        }
        let processes = self.remove_host(host);
        self.wait_for_room(processes);
        match self.hosts.machines.all_failed() {
            Some(problems) => self.fail_waiting(&problems),
            None => self.place_processes(),
        }
        self.spawn(move || async move {
            sleep(pause).await;
            self.place_processes();
        });
    }

    /// Ends the processes of a host that has ended.
    fn host_ended(&'static self, host: &Arc<Host>, exit: Exit) {
        if host.of.is_some() {
            let mut state = self.hosts.state.lock();
            state.ended.truncate(ENDED_HOSTS - 1);
            state.ended.push_front((host.name.clone(), exit.reason.to_string()));
        }
        let processes = self.remove_host(host);
        let reason = match exit.reason {
            reason @ ExitReason::NotStarted(_) => reason,
            reason => ExitReason::HostEnded { host: host.name.clone(), reason: Box::new(reason) },
        };
        processes
            .into_iter()
            .for_each(|job| job.ended(Exit::new(reason.clone(), exit.tail.clone())));
        self.place_processes();
    }

    /// Takes a host off the list, and returns its processes in the order of their creation. Those
    /// that wait for a place in it wait for another host.
    fn remove_host(&self, host: &Arc<Host>) -> Vec<Arc<HostedJob>> {
        let mut state = self.hosts.state.lock();
        state.hosts.retain(|other| !Arc::ptr_eq(other, host));
        if let Some(machine) = &host.machine {
            state.taken.remove(machine);
        }
        drop(state);
        let mut state = host.state.lock();
        state.closed = true;
        let queued = state.processes.take_queued();
        let placed = state.processes.take_all();
        let wire = state.link.clone();
        drop(state);
        if let Some(wire) = wire {
            wire.lose();
        }
        self.wait_for_room(queued);
        placed
    }
}

/// Tells the processes of a host that it waits for resources. Each of them decides how long it
/// waits.
impl SchedulingPolicy for Arc<Host> {
    fn set_unschedulable(&self, reason: Option<&str>) {
        let mut state = self.state.lock();
        if state.waiting.as_deref() == reason {
            return;
        }
        state.waiting = reason.map(str::to_string);
        for job in state.processes.iter() {
            job.wait(match reason {
                Some(reason) => JobState::Waiting(WaitReason::Resources(reason.to_string())),
                None => JobState::AwaitsHost,
            });
        }
    }

    fn may_wait_longer(&self) -> bool {
        !self.state.lock().processes.is_empty()
    }
}

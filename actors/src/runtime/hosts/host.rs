//! A host, as its parent sees it, from its start to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fiber_backends::{JobState, Room, WaitReason};
use fiber_core::stats::ProcessRole;
use fiber_core::{Exit, ExitReason, Meta, OutputMode};
use fiber_transport::Received;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::host_main::HostMain;
use super::placed::PlacedProcesses;
use super::shared::HostWire;
use super::wire::{self, Arrived, FromHost, Number};
use super::{HostGroup, HostNumber, HostedJob, State, room};
use crate::runtime::Runtime;
use crate::runtime::child_main::StartRequest;
use crate::runtime::exit::is_exiting;
use crate::runtime::launch::{
    JobKind, Launch, Launched, ProcessCommand, SchedulingPolicy, launch, monitor,
};

/// How long a host of a group that may need it again stays without processes.
const LINGER: Duration = Duration::from_secs(5);

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

#[derive(Debug, Default)]
pub(super) struct HostState {
    pub(super) processes: PlacedProcesses,
    /// The link to it, once it is ready.
    link: Option<Arc<HostWire>>,
    /// The room on its machine, once that is known.
    room: Option<Room>,
    /// Whether it gets no more processes.
    closed: bool,
    /// Why its job waits.
    waiting: Option<String>,
}

impl Host {
    /// Returns whether it has a place for a process.
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
                let taken = state.processes.taken();
                state.room.is_none_or(|room| taken.leaves_room(&room, job.meta()))
            }
        }
    }

    pub(super) fn free_share(&self) -> f64 {
        let state = self.state.lock();
        state.processes.taken().free_share(state.room.as_ref())
    }

    pub(super) fn add(self: &Arc<Host>, job: Arc<HostedJob>) {
        job.assign(self);
        let mut state = self.state.lock();
        if job.has_ended() {
            return;
        }
        match &state.link {
            Some(link) => job.start(self.number, link),
            None => job.wait(match &state.waiting {
                Some(reason) => JobState::Waiting(WaitReason::Resources(reason.clone())),
                None => JobState::AwaitsHost,
            }),
        }
        state.processes.insert(job);
    }

    /// Forgets a process that was killed before it started.
    pub(super) fn forget(&self, number: Number) {
        self.state.lock().processes.remove(number);
    }

    /// Ends the host if it has no processes, unless it ends already.
    pub(super) fn end_if_idle(&self) {
        let mut state = self.state.lock();
        if !state.closed && state.processes.is_empty() {
            state.closed = true;
            let _ = self.commands.send(ProcessCommand::Shutdown);
        }
    }
}

/// Returns where the output of a hosted process goes, in its host. One file is for the host.
pub(super) fn hosted_output(mode: OutputMode) -> OutputMode {
    if mode == OutputMode::File { OutputMode::Prefix } else { mode }
}

/// Returns where the output of a host goes. Its processes have added their names if need be.
fn host_output(mode: OutputMode) -> OutputMode {
    if mode == OutputMode::File { OutputMode::File } else { OutputMode::Inherit }
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
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
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
        state.taken.extend(host.machine.clone());
        state.hosts.push(Arc::clone(&host));
        let output = if host.of.is_some() { first.spec.output } else { self.config().output };
        let (started, retry) = (Arc::clone(&host), first.retry_creation);
        self.spawn(move || self.run_host(started, retry, host_output(output), inbox));
        host
    }

    /// Follows a host from its start to its end.
    async fn run_host(
        &'static self,
        host: Arc<Host>,
        retry_creation: bool,
        output: OutputMode,
        mut commands: mpsc::UnboundedReceiver<ProcessCommand>,
    ) {
        let (processes, meta) = match &host.of {
            Some((group, meta)) => (group.per_job, room::of_job(meta, group.per_job)),
            // The processes of a machine's host request what they need from fiber.
            None => (usize::MAX, Meta::new()),
        };
        let simulates = host.of.as_ref().is_some_and(|(group, _)| group.simulated);
        let launching = launch(
            self,
            Launch {
                name: host.name.clone(),
                role: ProcessRole::Host,
                restarts: 0,
                retry_creation,
                meta,
                output,
                request: StartRequest::new(&HostMain { simulates }),
                scheduling: Some(Box::new(HostScheduling { host: Arc::clone(&host) })),
                kind: JobKind::Host { machine: host.machine.clone(), processes },
            },
        );
        tokio::pin!(launching);
        let launched = loop {
            tokio::select! {
                launched = &mut launching => break launched,
                // No process waits for it any more. Dropping the launch ends what has started.
                command = commands.recv() => match command {
                    Some(ProcessCommand::Terminate) => {}
                    _ => return self.host_ended(&host, Exit::new(ExitReason::Shutdown, Vec::new())),
                },
            }
        };
        match launched {
            Ok(launched) => {
                if let Some(machine) = &host.machine {
                    self.hosts.machines.started(machine);
                }
                self.host_ready(&host, &launched);
                self.end_if_unused(&host);
                let receive = |message| self.receive_from_host(&host, message);
                let exit = monitor(self, launched, commands, receive).await;
                self.host_ended(&host, exit);
            }
            Err(exit) => self.host_failed(&host, exit),
        }
    }

    fn host_ready(&'static self, host: &Host, launched: &Launched) {
        let mut state = host.state.lock();
        state.waiting = None;
        let wire = Arc::new(HostWire::new(
            Arc::clone(&launched.connection.link),
            Arc::clone(&launched.is_failing),
        ));
        state.link = Some(Arc::clone(&wire));
        // On a machine, its own answer says first how many processes it has room for.
        if host.machine.is_none() || state.room.is_some() {
            state.processes.iter().for_each(|job| job.start(host.number, &wire));
        }
    }

    /// Takes the room of a machine. Processes for which it has no room wait again.
    fn set_room(&'static self, host: &Host, own: Room) {
        let mut state = host.state.lock();
        if let Some(room) = &mut state.room
            && room.gpu == u32::MAX
        {
            room.gpu = own.gpu;
        }
        let (None, Some(link)) = (state.room, state.link.clone()) else { return };
        if host.machine.is_none() {
            return;
        }
        state.room = Some(own);
        let mut waiting = Vec::new();
        for job in state.processes.take_all() {
            if state.processes.taken().leaves_room(&own, job.meta()) {
                job.start(host.number, &link);
                state.processes.insert(job);
            } else {
                waiting.push(job);
            }
        }
        drop(state);
        if !waiting.is_empty() {
            self.wait_for_room(waiting);
            self.place_processes();
        }
    }

    fn receive_from_host(&'static self, host: &Arc<Host>, message: Received) {
        let job = |number| host.state.lock().processes.get(number).cloned();
        match wire::read(message) {
            Some(Arrived::Relayed(number, message)) => {
                if let Some(link) = job(number).and_then(|job| job.link()) {
                    link.receive(message);
                }
            }
            Some(Arrived::Command(FromHost::Room(room))) => self.set_room(host, room),
            Some(Arrived::Command(FromHost::Terminating)) => host.state.lock().closed = true,
            Some(Arrived::Command(FromHost::Running { number, place })) => {
                if let Some(job) = job(number) {
                    job.running(format!("{place} in {}", host.name));
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
                let ended = host.state.lock().processes.remove(number);
                if let Some(job) = ended {
                    job.ended(exit);
                    self.process_ended(host);
                }
            }
            Some(Arrived::Shared { .. }) | None => {
                tracing::error!("ignored an invalid message of `{}`", host.name);
            }
        }
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
            tokio::task::spawn_local(async move {
                sleep(LINGER).await;
                host.end_if_idle();
            });
        }
    }

    /// Handles the failed start of a host. On a machine, its processes go to other machines while
    /// there are any.
    fn host_failed(&'static self, host: &Arc<Host>, exit: Exit) {
        let Some(machine) = &host.machine else { return self.host_ended(host, exit) };
        if is_exiting() {
            // This process has killed it.
            return self.host_ended(host, exit);
        }
        let problem = exit.start_failure().start_problem();
        tracing::warn!("no host could be started on `{machine}`: {problem}");
        let pause = self.hosts.machines.failed(machine, &problem);
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

    /// Takes a host off the list, and returns its processes in the order of their creation.
    fn remove_host(&self, host: &Arc<Host>) -> Vec<Arc<HostedJob>> {
        let mut state = self.hosts.state.lock();
        state.hosts.retain(|other| !Arc::ptr_eq(other, host));
        if let Some(machine) = &host.machine {
            state.taken.remove(machine);
        }
        drop(state);
        let mut state = host.state.lock();
        state.closed = true;
        state.processes.take_all()
    }
}

/// Tells the processes of a host that it waits for resources. Each of them decides how long it
/// waits.
struct HostScheduling {
    host: Arc<Host>,
}

impl SchedulingPolicy for HostScheduling {
    fn set_unschedulable(&self, reason: Option<&str>) {
        let mut state = self.host.state.lock();
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
        !self.host.state.lock().processes.is_empty()
    }
}

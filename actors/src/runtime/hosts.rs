//! Hosts: jobs with several processes.
//!
//! A host is a process that starts others beside itself, for its parent. To the parent, a hosted
//! process is a [job](hosted_job) like any other, and has a [link](hosted_link) like any other,
//! whose messages go over the link to the host.
//!
//! - This file: which host gets which process, and the life of hosts, in the parent.
//! - `host_main`: the host itself. `wire`: the messages between both.
//! - `shared`: messages that go to several processes of a host.
//! - `room`: what processes take of a machine. `placed`: those of one host; `waiting`: those that
//!   wait for room.
//!
//! There are two ways to choose. Where an engine finds a place for each job, a host is for a fixed
//! number of processes of one [group], and the fullest host that has a place is chosen, so that
//! others may become empty and end. Where there are machines, each has one host for all groups, and
//! the machine with the largest free share is chosen.
//!
//! [group]: HostGroup

mod host_main;
mod hosted_job;
mod hosted_link;
mod machines;
mod placed;
mod room;
mod shared;
#[cfg(feature = "simulation")]
mod simulated;
mod waiting;
mod wire;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fiber_backends::{JobSpec, JobState, Room, WaitReason};
use fiber_core::stats::ProcessRole;
use fiber_core::{Exit, ExitReason, Meta, OutputMode, ProcessId};
use fiber_transport::Received;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::sleep;

use self::host_main::HostMain;
pub(super) use self::hosted_job::HostedJob;
use self::machines::Machines;
use self::placed::PlacedProcesses;
use self::shared::HostWire;
use self::waiting::WaitingProcesses;
pub(super) use self::wire::is_relayed_control;
use self::wire::{Arrived, FromHost, Number};
use super::Runtime;
use super::child_main::StartRequest;
use super::exit::is_exiting;
use super::launch::{
    JobKind, Launch, Launched, ProcessCommand, SchedulingPolicy, launch, monitor, not_started,
};
use super::parent_info::ChildPlace;

/// How long a host of a group that may need it again stays without processes.
const LINGER: Duration = Duration::from_secs(5);

/// Processes that share hosts with each other, where an engine finds a place for each job.
#[derive(Debug)]
pub(crate) struct HostGroup {
    name: String,
    /// How many processes a job is for.
    per_job: usize,
    /// Whether there will be no more processes.
    closed: AtomicBool,
    /// Whether the processes are threads of their hosts: see `simulated`.
    simulated: bool,
}

impl HostGroup {
    pub(crate) fn new(name: impl Into<String>, per_job: usize) -> Arc<HostGroup> {
        let closed = AtomicBool::new(false);
        Arc::new(HostGroup { name: name.into(), per_job, closed, simulated: false })
    }

    /// Makes a group whose processes are threads of their hosts.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(name: impl Into<String>, per_job: usize) -> Arc<HostGroup> {
        let closed = AtomicBool::new(false);
        Arc::new(HostGroup { name: name.into(), per_job, closed, simulated: true })
    }

    /// Notes that there will be no more processes: hosts without any end at once.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(runtime) = Runtime::current() {
            runtime.spawn(move || async move { runtime.hosts.end_idle() });
        }
    }
}

/// The number of a host, for its parent.
pub(crate) type HostNumber = u64;

/// The hosts of a process's children.
#[derive(Default)]
pub(super) struct Hosts {
    state: Mutex<State>,
    machines: Machines,
    last: AtomicU64,
    /// The group of processes that belong to none.
    others: OnceLock<Arc<HostGroup>>,
}

#[derive(Default)]
struct State {
    hosts: Vec<Arc<Host>>,
    /// The machines that have a host.
    taken: HashSet<String>,
    /// Processes that wait for room.
    waiting: WaitingProcesses,
    /// Whether the backend is asked for another machine.
    growing: bool,
}

/// A host, as its parent sees it.
#[derive(Debug)]
struct Host {
    number: HostNumber,
    name: String,
    /// The machine on which it runs, if the backend has machines.
    machine: Option<String>,
    /// The group and the request of its processes, if it is for a fixed number of them.
    of: Option<(Arc<HostGroup>, Meta)>,
    state: Mutex<HostState>,
    commands: mpsc::UnboundedSender<ProcessCommand>,
}

#[derive(Debug, Default)]
struct HostState {
    processes: PlacedProcesses,
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
    fn has_place(&self, job: &HostedJob) -> bool {
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

    fn free_share(&self) -> f64 {
        let state = self.state.lock();
        state.processes.taken().free_share(state.room.as_ref())
    }

    fn add(self: &Arc<Host>, job: Arc<HostedJob>) {
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
    fn forget(&self, number: Number) {
        self.state.lock().processes.remove(number);
    }
}

/// Returns where the output of a hosted process goes, in its host. One file is for the host.
fn hosted_output(mode: OutputMode) -> OutputMode {
    if mode == OutputMode::File { OutputMode::Prefix } else { mode }
}

/// Returns where the output of a host goes. Its processes have added their names if need be.
fn host_output(mode: OutputMode) -> OutputMode {
    if mode == OutputMode::File { OutputMode::File } else { OutputMode::Inherit }
}

impl Runtime {
    /// Returns whether a process of a group goes into a host.
    ///
    /// # Errors
    /// The problem of the backend with its machines.
    pub(super) async fn uses_hosts(&self, group: &HostGroup) -> Result<bool, Exit> {
        // Below a host, all processes are beside it.
        if self.place != ChildPlace::Alone {
            return Ok(false);
        }
        let machines = self.hosts.machines.known(&*self.backend).await;
        let machines = machines.map_err(|error| not_started(error.to_string()))?;
        Ok(machines || group.per_job > 1)
    }

    /// Returns the group of processes that belong to no pool or ring.
    pub(crate) fn common_hosts(&self) -> Arc<HostGroup> {
        let others = || HostGroup::new("processes", self.config().processes_per_job.max(1));
        Arc::clone(self.hosts.others.get_or_init(others))
    }

    /// Makes the job of a process that goes into a host.
    pub(super) fn create_hosted(
        &'static self,
        id: ProcessId,
        group: Arc<HostGroup>,
        spec: JobSpec,
        retry_creation: bool,
    ) -> Arc<HostedJob> {
        let number = self.hosts.last.fetch_add(1, Ordering::Relaxed);
        let job = HostedJob::new(number, group, spec, retry_creation, (id, self.id()));
        let job = Arc::new(job);
        self.hosts.state.lock().waiting.push(Arc::clone(&job));
        self.place_processes();
        job
    }

    /// Puts the processes that wait into hosts, and starts hosts for them.
    fn place_processes(&'static self) {
        let mut state = self.hosts.state.lock();
        let mut waiting = std::mem::take(&mut state.waiting);
        waiting.place(|job| {
            let host = self.choose(&mut state, job);
            host.inspect(|host| host.add(Arc::clone(job))).is_some()
        });
        state.waiting = waiting;
        let Some(meta) = state.waiting.first() else { return };
        state.waiting.tell(self.hosts.machines.full());
        if !state.growing {
            state.growing = true;
            self.spawn(move || self.grow(meta));
        }
    }

    /// Returns the host for a process, which may be new; `None` if no machine has room.
    fn choose(&'static self, state: &mut State, job: &Arc<HostedJob>) -> Option<Arc<Host>> {
        let with_place = state.hosts.iter().filter(|host| host.has_place(job));
        if !self.hosts.machines.exist() {
            let fullest = with_place.max_by_key(|host| host.state.lock().processes.len());
            let of = (Arc::clone(&job.group), *job.meta());
            return Some(match fullest {
                Some(host) => Arc::clone(host),
                None => self.start_host(state, None, Some(of), job),
            });
        }
        // A machine without a host is all free.
        let taken = |name: &str| state.taken.contains(name);
        if let Some(machine) = self.hosts.machines.next_free(taken, job.meta()) {
            return Some(self.start_host(state, Some(machine), None, job));
        }
        with_place.max_by(|a, b| a.free_share().total_cmp(&b.free_share())).cloned()
    }

    /// Asks the backend for another machine.
    async fn grow(&'static self, meta: Meta) {
        let added = self.hosts.machines.add_another(&*self.backend, &meta).await;
        self.hosts.state.lock().growing = false;
        match added {
            Ok(true) => self.place_processes(),
            // The end of a process makes room.
            Ok(false) => {}
            Err(error) => self.fail_waiting(&error.to_string()),
        }
    }

    /// Lets processes wait that have no host any more.
    fn wait_for_room(&self, processes: Vec<Arc<HostedJob>>) {
        let mut state = self.hosts.state.lock();
        processes.into_iter().for_each(|job| state.waiting.push(job));
    }

    /// Ends the processes that wait for room that does not come.
    fn fail_waiting(&self, problem: &str) {
        let waiting = self.hosts.state.lock().waiting.take_all();
        waiting.for_each(|job| job.ended(not_started(problem.to_string())));
    }

    /// Starts a host, for a process first of all.
    fn start_host(
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
                // Nobody waits for it any more. Dropping the launch ends what has started.
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

impl Host {
    /// Ends the host if it has no processes, unless it ends already.
    fn end_if_idle(&self) {
        let mut state = self.state.lock();
        if !state.closed && state.processes.is_empty() {
            state.closed = true;
            let _ = self.commands.send(ProcessCommand::Shutdown);
        }
    }
}

impl Hosts {
    /// Returns whether each job is the host of a machine.
    pub(super) fn have_machines(&self) -> bool {
        self.machines.exist()
    }

    /// Ends hosts of closed groups that have no processes.
    fn end_idle(&self) {
        let hosts = self.state.lock().hosts.clone();
        for host in hosts {
            if let Some((group, _)) = &host.of
                && group.closed.load(Ordering::Acquire)
            {
                host.end_if_idle();
            }
        }
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts")
            .field("hosts", &self.state.lock().hosts.len())
            .finish_non_exhaustive()
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

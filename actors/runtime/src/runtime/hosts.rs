//! Hosts: jobs with several processes.
//!
//! A host is a process that starts others beside itself, for its parent. To the parent, a hosted
//! process is a [job](hosted_job) like any other, and has a [link](hosted_link) like any other,
//! whose messages go over the link to the host.
//!
//! - `host`: a host from its start to its end, in the parent. `host_main`: the host itself. `wire`:
//!   the messages between both.
//! - `placement`: which host gets which process. `rule`: the rules that processes have for that.
//!   `neighbors`: the hosts of actors beside which they are to run.
//! - `shared`: messages that go to several processes of a host. `kept_blobs`: blobs that cross the
//!   wire once. `stays`: those that do not cross it until they are wanted.
//! - `room`: what processes take of a machine. `placed`: those of one host; `waiting`: those that
//!   wait for room.
//!
//! There are two ways to choose. Where an engine finds a place for each job, a host is for a fixed
//! number of processes of one [group], and the fullest host that has a place is chosen, so that
//! others may become empty and end. Where there are machines, each has one host for all groups, and
//! the machine with the largest free share is chosen. A process whose [rule](HostRule) names a host
//! goes there, whichever group has that host, or waits for a place in it.
//!
//! [group]: HostGroup

mod host;
mod host_main;
mod hosted_job;
mod hosted_link;
mod kept_blobs;
mod machines;
mod neighbors;
mod placed;
mod placement;
mod room;
mod rule;
mod shared;
#[cfg(feature = "simulation")]
mod simulated;
mod source;
mod stays;
mod waiting;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fiber_core::stats::ProcessStats;
use fiber_core::{Exit, ProcessId};
use parking_lot::Mutex;

use self::host::Host;
use self::hosted_job::HostedJob;
use self::machines::Machines;
use self::stays::TravelTime;
use self::waiting::WaitingProcesses;
use super::Runtime;
use super::launch::not_started;
use super::parent_info::ChildPlace;

pub use self::rule::{HostRule, Neighbor, Spread};
pub use self::stays::MIN_STAY;

/// Processes that share hosts with each other, where an engine finds a place for each job.
#[derive(Debug)]
pub struct HostGroup {
    name: String,
    /// How many processes a job is for.
    per_job: usize,
    /// Whether there will be no more processes.
    closed: AtomicBool,
    /// Whether the processes are threads of their hosts: see `simulated`.
    simulated: bool,
}

impl HostGroup {
    /// Returns a group of this name whose jobs are for `per_job` processes each.
    pub fn new(name: impl Into<String>, per_job: usize) -> Arc<HostGroup> {
        let closed = AtomicBool::new(false);
        Arc::new(HostGroup { name: name.into(), per_job, closed, simulated: false })
    }

    /// Makes a group whose processes are threads of their hosts.
    #[cfg(feature = "simulation")]
    pub fn simulated(name: impl Into<String>, per_job: usize) -> Arc<HostGroup> {
        let closed = AtomicBool::new(false);
        Arc::new(HostGroup { name: name.into(), per_job, closed, simulated: true })
    }

    /// Notes that there will be no more processes: hosts without any end at once.
    pub fn close(&self, runtime: &'static Runtime) {
        self.closed.store(true, Ordering::Release);
        runtime.spawn(move || async move { runtime.hosts.end_idle() });
    }
}

/// How many hosts are remembered that have ended, for processes that are to start there.
const ENDED_HOSTS: usize = 64;

/// The number of a host, for its parent.
pub type HostNumber = u64;

/// The hosts of a process's children.
#[derive(Default)]
pub(super) struct Hosts {
    state: Mutex<State>,
    machines: Machines,
    last: AtomicU64,
    last_host: AtomicU64,
    travel_time: Arc<TravelTime>,
    /// The group of processes that belong to none.
    others: OnceLock<Arc<HostGroup>>,
}

#[derive(Default)]
struct State {
    hosts: Vec<Arc<Host>>,
    /// The hosts without machines that ended last, and why.
    ended: VecDeque<(String, String)>,
    /// The hosts of the machines that have one.
    taken: HashMap<String, Arc<Host>>,
    /// Processes that wait for room.
    waiting: WaitingProcesses,
    /// Whether the backend is asked for another machine.
    growing: bool,
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

    /// Returns whether this process is in a host, with others of its parent.
    pub fn is_hosted(&self) -> bool {
        matches!(self.place, ChildPlace::InHost(_))
    }

    /// Returns the host in which this process is, with others of its parent: over every kind of
    /// link, unlike [`is_hosted`](Runtime::is_hosted).
    pub fn host(&self) -> Option<ProcessId> {
        self.host
    }

    /// Returns the group of processes that belong to no pool or ring.
    pub fn common_hosts(&self) -> Arc<HostGroup> {
        let others = || HostGroup::new("processes", self.config().processes_per_job.max(1));
        Arc::clone(self.hosts.others.get_or_init(others))
    }
}

impl Hosts {
    /// Returns whether there are or were any.
    fn have_been(&self) -> bool {
        self.last_host.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the host of this name may get more processes.
    fn is_open(&self, name: &str) -> bool {
        self.state.lock().hosts.iter().any(|host| host.name == name && host.is_open())
    }

    /// Returns the machines that can't be used for now, each as a child of `parent` that waits.
    pub(super) fn failing(&self, parent: ProcessId) -> Vec<ProcessStats> {
        let state = self.state.lock();
        let mut failing = self.machines.failing(|name| state.taken.contains_key(name));
        failing.iter_mut().for_each(|host| host.parent = Some(parent));
        failing
    }

    /// Returns the names of those that have not ended: they start, work or end.
    #[cfg(feature = "simulation")]
    pub(super) fn names(&self) -> Vec<String> {
        self.state.lock().hosts.iter().map(|host| host.name.clone()).collect()
    }

    /// Asks the hosts that work to end. Returns their names.
    pub(super) fn end_all(&self) -> Vec<String> {
        let hosts = self.state.lock().hosts.clone();
        hosts.iter().filter(|host| host.end()).map(|host| host.name.clone()).collect()
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

//! Hosts: jobs with several processes.
//!
//! A host is a process that starts others beside itself, for its parent. To the parent, a hosted
//! process is a [job](hosted_job) like any other, and has a [link](hosted_link) like any other,
//! whose messages go over the link to the host.
//!
//! - `host`: a host from its start to its end, in the parent. `host_main`: the host itself. `wire`:
//!   the messages between both.
//! - `placement`: which host gets which process.
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

mod host;
mod host_main;
mod hosted_job;
mod hosted_link;
mod machines;
mod placed;
mod placement;
mod room;
mod shared;
#[cfg(feature = "simulation")]
mod simulated;
mod source;
mod waiting;
mod wire;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fiber_core::Exit;
use parking_lot::Mutex;

use self::host::Host;
use self::hosted_job::HostedJob;
use self::machines::Machines;
use self::waiting::WaitingProcesses;
use super::Runtime;
use super::launch::not_started;
use super::parent_info::ChildPlace;

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

/// The number of a host, for its parent.
pub type HostNumber = u64;

/// The hosts of a process's children.
#[derive(Default)]
pub(super) struct Hosts {
    state: Mutex<State>,
    machines: Machines,
    last: AtomicU64,
    last_host: AtomicU64,
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
    pub fn common_hosts(&self) -> Arc<HostGroup> {
        let others = || HostGroup::new("processes", self.config().processes_per_job.max(1));
        Arc::clone(self.hosts.others.get_or_init(others))
    }
}

impl Hosts {
    /// Returns whether each job is the host of a machine.
    pub(super) fn have_machines(&self) -> bool {
        self.machines.exist()
    }

    /// Ends hosts of closed groups that have no processes.
    /// Asks the hosts that work to end. Returns their names.
    pub(super) fn end_all(&self) -> Vec<String> {
        let hosts = self.state.lock().hosts.clone();
        hosts.iter().filter(|host| host.end()).map(|host| host.name.clone()).collect()
    }

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

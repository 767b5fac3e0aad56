//! Starts child processes, and follows them to their end.
//!
//! - A job is [created](creation), from the backend or in a host: see [`source`].
//! - [`life`] decides what becomes of the child, and why it died. It is a state machine without
//!   processes, links and clocks.
//! - [`child`] has these: it feeds the life and carries out its effects, for the child's
//!   [owner](Owner).
//! - [`failure`] explains failed starts; [`waits`] says what waits for room.

mod child;
mod creation;
mod failure;
mod life;
mod source;
mod waits;

use std::sync::{Arc, Once};
use std::time::Duration;

use fiber_backends::{ChildOutput, Job, JobSpec, JobState, Locality};
use fiber_core::stats::ProcessRole;
use fiber_core::{Config, Exit, ExitReason, Meta, ProcessId};
use tokio::sync::watch;
use tokio::time::sleep;

use self::child::Prepared;
pub use self::child::{ChildProcess, Owner, ReadyChild, StartedChild};
pub(super) use self::creation::create;
pub(super) use self::failure::not_started;
pub use self::source::Placement;
pub(super) use self::source::{CreatedJob, JobPlan};
use super::Runtime;
use super::backtraces::Backtraces;
use super::child_main::StartRequest;
use super::listen::{ExpectedChild, expect_child};
use super::parent_info::ParentInfo;
use super::protocol::ControlMessage;
use super::time_limit;
use crate::directory::Seat;
use crate::mesh::ProcessRef;
use crate::random::Random;

/// Time by which the ends of a process and of its link may differ, before the parent forces the
/// other.
pub(super) const MAX_LAG: Duration = Duration::from_secs(1);
/// As [`MAX_LAG`], for a container or pod, whose end comes by way of its engine.
pub(super) const MAX_LAG_REMOTE: Duration = Duration::from_secs(5);

/// With fewer levels of processes left, a process that starts some says so.
const FEW_LEVELS: u32 = 6;

/// Decides how long a process waits for resources of its cluster.
pub trait SchedulingPolicy {
    /// Is called with the cluster's message while the process can't be scheduled, and with `None`
    /// when that is over.
    fn set_unschedulable(&self, reason: Option<&str>);

    /// Returns whether the process may wait for longer than `schedule_timeout`.
    fn may_wait_longer(&self) -> bool;
}

/// A child process to start.
pub struct Launch {
    /// The name of the child in logs, in errors and at its backend.
    pub name: String,
    /// The kind of work, as the session's tree of processes shows it.
    pub role: ProcessRole,
    /// How often a process of this name was restarted before.
    pub restarts: u64,
    /// Whether to retry for `start_timeout` if the backend can't create the job. A job that has run
    /// before fails then for lack of descriptors, processes or memory, or because its engine does
    /// not answer.
    pub retry_creation: bool,
    /// The resources that the child requests, which are its limits, too.
    pub meta: Meta,
    /// The destination of the child's output.
    pub output: ChildOutput,
    /// The work of the child.
    pub request: StartRequest,
    /// Without a policy, the process waits for resources as long as the configuration allows.
    pub scheduling: Option<Box<dyn SchedulingPolicy>>,
    /// Whether the child gets a job of its own, or shares one with others.
    pub placement: Placement,
}

/// A command to a child process.
#[derive(Debug)]
pub enum ProcessCommand {
    /// Asks it to end when its work is done.
    Shutdown,
    /// Sends SIGTERM.
    Terminate,
    /// Kills it; its exit has this reason.
    Kill(ExitReason),
}

/// Kills a job when it is dropped.
struct JobGuard {
    runtime: &'static Runtime,
    id: ProcessId,
    job: Arc<dyn Job>,
    /// Given back with the end of the job.
    seat: Option<Seat>,
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        self.job.kill();
        self.runtime.children.remove(self.id);
        self.runtime.part::<Backtraces>().note_child(self.id, false);
        // The job stays in the list until it has ended, so that the exit of this process waits.
        let (runtime, id, job) = (self.runtime, self.id, Arc::clone(&self.job));
        let seat = self.seat.take();
        if let JobState::Ended(_) = *job.states().borrow() {
            runtime.jobs.remove(&id);
        } else {
            runtime.spawn(move || async move {
                ended(&mut job.states()).await;
                runtime.jobs.remove(&id);
                drop(seat);
            });
        }
    }
}

/// Returns how many levels of processes a child of this one may have below it.
///
/// # Errors
/// This process may have no children.
fn levels_below(config: &Config) -> Result<u32, String> {
    // A person reads it once.
    static WARN: Once = Once::new();
    let Some(levels) = config.max_depth.checked_sub(1) else {
        return Err("processes that start processes are nested deeper than `max_depth` allows. A \
                    pool in a `static` is made again in each process that uses it: make it where \
                    only one process does, or raise `FIBER_MAX_DEPTH`"
            .into());
    };
    if levels < FEW_LEVELS {
        WARN.call_once(|| {
            tracing::warn!(
                "workers start workers of their own: {levels} more levels of processes may follow \
                 (`max_depth`). A pool in a `static` is made again in each process that uses it"
            );
        });
    }
    Ok(levels)
}

/// The pause before a start is refused because the program is about to end.
const PAUSE_AT_END: Duration = Duration::from_millis(100);

/// Refuses children of a program that is about to end.
///
/// # Errors
/// The exit of a process that is not created.
fn check_end(runtime: &'static Runtime) -> Result<(), Exit> {
    let ends = || not_started("this program is about to end".into());
    if runtime.is_exiting() { Err(ends()) } else { Ok(()) }
}

/// Makes the job of a child.
///
/// # Errors
/// The exit of a process that could not be created.
async fn prepare(runtime: &'static Runtime, launch: Launch) -> Result<Prepared, Exit> {
    if let Err(exit) = check_end(runtime) {
        // A supervisor without pauses would do nothing but try until the program has ended.
        sleep(PAUSE_AT_END).await;
        return Err(exit);
    }
    let config = runtime.config();
    if let Some(problem) = launch.meta.problem() {
        return Err(not_started(problem));
    }
    let levels_below = levels_below(config).map_err(not_started)?;
    let seat = match launch.role {
        // It is there for others, which take some.
        ProcessRole::Host => None,
        _ => runtime.directory().take_seat().await.map_err(not_started)?,
    };
    let address = runtime.listen().await.map_err(|error| not_started(error.to_string()))?;
    if let Some(problem) = runtime.starts_are_over() {
        return Err(not_started(problem));
    }
    time_limit::watch(runtime);
    let plan = (launch.placement.0)(runtime, launch.meta).await?;
    let mut child_config = plan.config;
    child_config.max_depth = levels_below;
    let (id, parent) = (runtime.part::<Random>().process_id(), runtime.id());
    let expected = expect_child(id);
    let parent_pid = match address.locality {
        Locality::Child => Some(std::process::id().cast_signed()),
        Locality::Remote => None,
    };
    let own = || ProcessRef { id: parent, address: address.url.as_str().into() };
    let head = runtime.head().cloned().unwrap_or_else(own);
    let url = address.link.clone();
    let info =
        ParentInfo { id, parent, parent_pid, listener: parent, place: plan.place, address: url };
    let name = launch.name.clone();
    let spec = JobSpec {
        restarts: launch.restarts,
        meta: launch.meta,
        output: launch.output,
        ..info.job_spec(runtime, launch.name)
    };
    let CreatedJob { job, host, max_lag } = (plan.create)(id, spec, launch.retry_creation).await?;
    runtime.jobs.insert(id, Arc::clone(&job));
    runtime.children.add(id, name, launch.role, launch.restarts, Arc::clone(&job));
    Ok(Prepared {
        guard: JobGuard { runtime, id, job, seat },
        host,
        max_lag,
        expected,
        start: ControlMessage::Start {
            config: Box::new(child_config),
            head,
            request: launch.request,
        },
        scheduling: launch.scheduling,
    })
}

/// Waits for the end of a job.
pub(super) async fn ended(states: &mut watch::Receiver<JobState>) -> Exit {
    let state = states.wait_for(|state| matches!(state, JobState::Ended(_))).await;
    match state.as_deref() {
        Ok(JobState::Ended(exit)) => exit.clone(),
        _ => Exit::new(ExitReason::LinkLost("its backend lost track of it".into()), Vec::new()),
    }
}

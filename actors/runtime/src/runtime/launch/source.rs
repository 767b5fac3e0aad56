//! Where the job of a child comes from: the backend, or a host.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fiber_backends::{Job, JobSpec};
use fiber_core::{Config, Exit, Meta, ProcessId};
use futures_util::future::LocalBoxFuture;

use crate::runtime::Runtime;
use crate::runtime::parent_info::ChildPlace;

/// Where a child is to run.
pub struct Placement(pub(in crate::runtime) Box<PlanJob>);

/// Decides where a child with these requests runs. An error is the exit of a child that can't be
/// started.
pub(in crate::runtime) type PlanJob =
    dyn FnOnce(&'static Runtime, Meta) -> LocalBoxFuture<'static, Result<JobPlan, Exit>>;

/// Where a child runs, and how its job is made.
pub(in crate::runtime) struct JobPlan {
    pub(in crate::runtime) place: ChildPlace,
    /// The child's configuration.
    pub(in crate::runtime) config: Config,
    pub(in crate::runtime) create: Box<CreateJob>,
}

/// Makes a job for a child with an id. The last argument says whether to try again for a while.
pub(in crate::runtime) type CreateJob =
    dyn FnOnce(ProcessId, JobSpec, bool) -> LocalBoxFuture<'static, Result<CreatedJob, Exit>>;

/// A job that has been made.
pub(in crate::runtime) struct CreatedJob {
    pub(in crate::runtime) job: Arc<dyn Job>,
    /// The host in which it runs, if it shares a job.
    pub(in crate::runtime) host: Option<HostOfJob>,
    /// By how much the ends of the process and of its link may differ.
    pub(in crate::runtime) max_lag: Duration,
}

/// Returns the number of a child's host, and whether that is being lost, once it is to start there.
pub(in crate::runtime) type HostOfJob = Box<dyn Fn() -> Option<(u64, Arc<AtomicBool>)>>;

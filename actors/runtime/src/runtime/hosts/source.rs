//! The jobs of processes that may share one, and of hosts.

use std::sync::Arc;

use fiber_backends::{Job, Locality};
use fiber_core::{Config, Exit, LinkKind, Meta};

use super::{HostGroup, HostRule};
use crate::runtime::Runtime;
use crate::runtime::launch::{
    CreatedJob, JobPlan, MAX_LAG, MAX_LAG_REMOTE, Placement, create, not_started,
};
use crate::runtime::parent_info::ChildPlace;

impl Placement {
    /// Places one process, which shares a job with others of its group if these have hosts.
    pub fn in_group(group: Arc<HostGroup>) -> Placement {
        Placement::by_rule(group, HostRule::Any)
    }

    /// Places one process, in the host that `rule` chooses.
    pub fn by_rule(group: Arc<HostGroup>, rule: HostRule) -> Placement {
        Placement(Box::new(|runtime, _| Box::pin(plan_in_group(runtime, group, rule))))
    }

    /// Places a host of up to `processes`, on a machine if the backend has some.
    pub(super) fn as_host(machine: Option<String>, processes: usize) -> Placement {
        Placement(Box::new(move |runtime, meta| {
            Box::pin(plan_host(runtime, machine, processes, meta))
        }))
    }
}

/// Returns the plan of a process that shares a job with others of its group, if these have hosts,
/// or goes into the host that its rule chooses.
async fn plan_in_group(
    runtime: &'static Runtime,
    group: Arc<HostGroup>,
    rule: HostRule,
) -> Result<JobPlan, Exit> {
    let place = runtime.interface.map_or(ChildPlace::Alone, ChildPlace::InHost);
    let uses_hosts = runtime.uses_hosts(&group).await?;
    let rule = runtime.resolve(rule, uses_hosts).await.map_err(not_started)?;
    // Another group may have the host that was chosen.
    if !uses_hosts && !rule.is_named() {
        let mut plan = from_backend(runtime, place, None, 1).await?;
        // A container's interfaces are not those of machines.
        plan.config.interface = None;
        return Ok(plan);
    }
    let mut config = beside_host(runtime.config());
    config.interface = None;
    if is_remote(runtime).await? && !runtime.hosts.machines.exist() {
        // It has those that its host lets it see.
        config.gpus = None;
    }
    Ok(JobPlan {
        place,
        config,
        create: Box::new(move |id, spec, retry| {
            let hosted = runtime.create_hosted(id, (group, rule), spec, retry);
            let job = Arc::clone(&hosted) as Arc<dyn Job>;
            let host = Some(Box::new(move || hosted.host()) as _);
            let created = CreatedJob { job, host, max_lag: MAX_LAG_REMOTE };
            Box::pin(async { Ok(created) })
        }),
    })
}

/// Returns the plan of a host of up to `processes`, on a machine if the backend has some.
async fn plan_host(
    runtime: &'static Runtime,
    machine: Option<String>,
    processes: usize,
    meta: Meta,
) -> Result<JobPlan, Exit> {
    let mut plan = from_backend(runtime, ChildPlace::Host, machine, processes).await?;
    plan.config = beside_host(runtime.config());
    if runtime.hosts.machines.exist() {
        return Ok(plan);
    }
    plan.config.interface = None;
    if is_remote(runtime).await? {
        // The container has the GPUs that its engine gives to it, and counts them from 0.
        let gpus = (0..meta.gpu.unwrap_or(0)).map(|gpu| gpu.to_string());
        plan.config.gpus = Some(gpus.collect());
    }
    Ok(plan)
}

/// Returns the plan of a job that the backend makes.
async fn from_backend(
    runtime: &'static Runtime,
    place: ChildPlace,
    machine: Option<String>,
    processes: usize,
) -> Result<JobPlan, Exit> {
    let max_lag = if is_remote(runtime).await? { MAX_LAG_REMOTE } else { MAX_LAG };
    Ok(JobPlan {
        place,
        config: runtime.config().clone(),
        create: Box::new(move |_, mut spec, retry| {
            (spec.machine, spec.processes) = (machine, processes);
            Box::pin(async move {
                let job = create(runtime, spec, retry).await?;
                Ok(CreatedJob { job, host: None, max_lag })
            })
        }),
    })
}

pub(super) async fn is_remote(runtime: &'static Runtime) -> Result<bool, Exit> {
    let address = runtime.listen().await.map_err(|error| not_started(error.to_string()))?;
    Ok(address.locality == Locality::Remote)
}

/// Returns the configuration of a host and of what runs in it: processes beside it.
fn beside_host(config: &Config) -> Config {
    let mut beside = config.clone();
    beside.backend = "local".into();
    beside.link = LinkKind::Unix;
    beside.processes_per_job = 1;
    beside
}

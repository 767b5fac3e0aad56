//! Requests to the engine for containers of jobs and heads.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::{
    ContainerCreateBody, DeviceRequest, HostConfig, Mount, MountType, RestartPolicy,
    RestartPolicyNameEnum,
};
use bytesize::ByteSize;
use fiber_core::{Config, Meta, Result};

use super::access::EngineAccess;
use super::cluster::Command;
use super::context::DockerContext;
use super::current_container::CurrentContainer;
use super::engine::Engine;
use super::image::ContainerImage;
use super::labels;
use crate::cluster::session::RunRequest;
use crate::gpus::{GpuAllocation, GpuAllocator};
use crate::mounts::{MountSource, MountSpec};
use crate::{BackendError, DockerSection, HEAD_END, JobSpec, PROCESS_END, configured_environment};

/// The resource limits of a container, checked against the engine's host.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) memory: Option<i64>,
    nano_cpus: Option<i64>,
    gpus: Option<GpuRequest>,
}

#[derive(Debug)]
enum GpuRequest {
    /// GPUs that this process has allocated.
    Allocated(GpuAllocation),
    /// This number of the engine's GPUs, which this process can't list.
    Count(u32),
}

/// Checks the configuration, without an engine.
pub(super) fn check(config: &Config) -> Result<()> {
    Ok(MountSpec::all(config).map(drop)?)
}

/// Returns the resource limits of a job.
///
/// # Errors
/// A resource that the engine's host does not have.
pub(super) fn resources(
    meta: &Meta,
    engine: &Engine,
    gpus: &GpuAllocator,
) -> Result<Resources, BackendError> {
    if let (Some(asked), Some(available)) = (meta.memory, engine.memory)
        && asked.as_u64() > available
    {
        return Err(refused!(
            "it asks for {asked} of memory, but the Docker host has {}: ask for less, or use a \
             larger host",
            ByteSize(available)
        ));
    }
    if let (Some(asked), Some(available)) = (meta.cpu, engine.cores)
        && asked > available as f64
    {
        return Err(refused!(
            "it asks for {asked} CPU cores, but the Docker host has {available}: ask for fewer, or \
             use a larger host"
        ));
    }
    let gpus = match meta.gpu {
        None | Some(0) => None,
        Some(count) if gpus.count()? == 0 => Some(GpuRequest::Count(count)),
        Some(count) => Some(GpuRequest::Allocated(gpus.take(count)?)),
    };
    Ok(Resources {
        memory: meta.memory.map(|size| i64::try_from(size.as_u64()).unwrap_or(i64::MAX)),
        nano_cpus: meta.cpu.map(|cores| (cores * 1e9) as i64),
        gpus,
    })
}

/// Returns a readable container name that the engine accepts.
pub(super) fn container_name(session: &str, number: u64, job: &str) -> String {
    let job: String = job
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' })
        .collect();
    format!("fiber-{session}-{number}-{}", job.get(..40).unwrap_or(&job))
}

pub(super) fn body(
    config: &Config,
    spec: &JobSpec,
    image: &ContainerImage,
    context: &DockerContext,
    resources: &Resources,
    labels: HashMap<String, String>,
) -> ContainerCreateBody {
    // The engine shows a container's environment to its users, so secrets go through standard
    // input.
    let own = spec.shown_variables().map(|(name, value)| (name.to_string(), value));
    let environment = image.environment.iter().cloned();
    let environment = environment.chain(configured_environment(config));
    let environment = environment.chain(context.access.environment.clone()).chain(own);
    let mut mounts: Vec<Mount> = configured_mounts(config).collect();
    // Children mount what this process has mounted, at the same paths.
    for mount in context.current.iter().flat_map(CurrentContainer::mounts) {
        if !mounts.iter().any(|other| other.target == mount.target) {
            mounts.push(mount);
        }
    }
    mounts.extend(context.access.mount.clone());
    ContainerCreateBody {
        image: Some(image.id.clone()),
        entrypoint: Some(vec![image.program.clone()]),
        cmd: Some(spec.arguments_as_text()),
        env: Some(assignments(environment)),
        user: config.user.clone().or_else(|| image.user.clone()),
        working_dir: config.working_dir.clone(),
        labels: Some(labels),
        stop_timeout: Some(stop_timeout(config, PROCESS_END)),
        open_stdin: Some(true),
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        host_config: Some(HostConfig {
            auto_remove: Some(true),
            network_mode: Some(context.network.name.clone()),
            mounts: Some(mounts),
            ..host_config(config, resources, &context.access)
        }),
        ..Default::default()
    }
}

/// Returns the part of a request with limits and the access to the engine.
fn host_config(config: &Config, resources: &Resources, access: &EngineAccess) -> HostConfig {
    let pids_limit = config.section::<DockerSection>().pids_limit;
    HostConfig {
        // An init process as PID 1, which forwards signals and reaps orphans.
        init: Some(true),
        // A program with the bit of another user gets none of that user's rights.
        security_opt: Some(vec!["no-new-privileges".into()]),
        pids_limit: (pids_limit > 0).then(|| pids_limit.into()),
        group_add: access.group.clone().map(|group| vec![group]),
        memory: resources.memory,
        // No additional swap, so the memory limit is a real one.
        memory_swap: resources.memory,
        nano_cpus: resources.nano_cpus,
        device_requests: resources.gpus.as_ref().map(|gpus| vec![gpus.request()]),
        ..Default::default()
    }
}

/// Returns how many seconds `docker stop` waits before it kills the process.
fn stop_timeout(config: &Config, end: Duration) -> i64 {
    i64::try_from(config.grace.saturating_add(end).as_secs()).unwrap_or(i64::MAX)
}

/// Returns environment variables as `NAME=VALUE`.
fn assignments(variables: impl Iterator<Item = (String, String)>) -> Vec<String> {
    variables.map(|(name, value)| format!("{name}={value}")).collect()
}

/// Returns the request for a session's head. The head gets the engine's socket, because it starts
/// the session's other containers. Its container stays after its exit, so its status can be read.
pub(super) fn head(
    config: &Config,
    run: &RunRequest,
    image: &ContainerImage,
    (program, cmd): Command,
    access: &EngineAccess,
    resources: &Resources,
) -> ContainerCreateBody {
    let volumes = run.volumes.iter().map(|volume| {
        mount(MountType::VOLUME, volume.claim.clone(), &volume.path, volume.read_only)
    });
    let mounts = volumes.chain(configured_mounts(config)).chain(access.mount.clone());
    let environment = configured_environment(config)
        .chain(image.environment.iter().cloned())
        .chain(access.environment.clone())
        .chain([("FIBER_BACKEND".to_string(), "docker".to_string())])
        .chain(run.environment.iter().cloned());
    ContainerCreateBody {
        image: Some(image.id.clone()),
        entrypoint: program.map(|program| vec![program]),
        cmd: Some(cmd).filter(|cmd| !cmd.is_empty()),
        env: Some(assignments(environment)),
        user: config.user.clone().or_else(|| image.user.clone()),
        working_dir: config.working_dir.clone(),
        labels: Some(labels::head_labels(run)),
        stop_timeout: Some(stop_timeout(config, HEAD_END)),
        host_config: Some(HostConfig {
            network_mode: config.section::<DockerSection>().network,
            mounts: Some(mounts.collect()),
            restart_policy: restart_policy(run.restarts),
            ..host_config(config, resources, access)
        }),
        ..Default::default()
    }
}

/// Returns the policy by which the engine starts a head again.
fn restart_policy(restarts: u32) -> Option<RestartPolicy> {
    (restarts > 0).then(|| RestartPolicy {
        name: Some(RestartPolicyNameEnum::ON_FAILURE),
        maximum_retry_count: Some(restarts.into()),
    })
}

impl GpuRequest {
    fn request(&self) -> DeviceRequest {
        let (count, device_ids) = match self {
            GpuRequest::Allocated(lease) => (None, Some(lease.ids.clone())),
            GpuRequest::Count(count) => (Some(i64::from(*count)), None),
        };
        DeviceRequest {
            count,
            device_ids,
            capabilities: Some(vec![vec!["gpu".into()]]),
            ..Default::default()
        }
    }
}

/// Returns the configured mounts, which [`check`] has seen.
fn configured_mounts(config: &Config) -> impl Iterator<Item = Mount> {
    MountSpec::all(config).unwrap_or_default().into_iter().map(|mounted| {
        let (typ, source) = match mounted.source {
            MountSource::Path(path) => (MountType::BIND, path),
            MountSource::Volume(name) => (MountType::VOLUME, name),
        };
        mount(typ, source, &mounted.target, mounted.read_only)
    })
}

/// Returns the mount of a path of the engine's host, or of a volume.
pub(super) fn mount(typ: MountType, source: String, target: &str, read_only: bool) -> Mount {
    Mount {
        source: Some(source),
        target: Some(target.into()),
        typ: Some(typ),
        read_only: Some(read_only),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_gain_no_rights_and_have_a_limit_of_processes() {
        let resources = Resources { memory: None, nano_cpus: None, gpus: None };
        let host = host_config(&Config::default(), &resources, &EngineAccess::default());
        assert_eq!(host.security_opt, Some(vec!["no-new-privileges".to_string()]));
        assert_eq!(host.pids_limit, Some(16_384));
    }

    #[test]
    fn container_names_are_valid() {
        assert_eq!(container_name("s", 3, "pool 1/worker ä"), "fiber-s-3-pool-1-worker--");
    }
}

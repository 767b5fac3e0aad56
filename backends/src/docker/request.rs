//! What the engine is asked for: a container for a job.

use std::collections::HashMap;

use bollard::models::{ContainerCreateBody, DeviceRequest, HostConfig, Mount, MountType};
use bytesize::ByteSize;
use fiber_core::{Config, Error, Meta, Result};

use super::access::EngineAccess;
use super::context::DockerContext;
use super::engine::Engine;
use super::image::ContainerImage;
use super::owner::{self, CurrentContainer};
use crate::cluster::session::RunRequest;
use crate::gpus::{GpuAllocation, GpuAllocator};
use crate::mounts::{MountSource, MountSpec};
use crate::{JobSpec, configured_environment};

/// What a container may take, checked against what there is.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) memory: Option<i64>,
    nano_cpus: Option<i64>,
    gpus: Option<GpuRequest>,
}

#[derive(Debug)]
enum GpuRequest {
    /// Those that this process has set aside.
    These(GpuAllocation),
    /// So many, of whatever the engine's host has: this process can't see them.
    Any(u32),
}

/// What can be said of the configuration before there is an engine.
pub(super) fn check(config: &Config) -> Result<()> {
    MountSpec::all(config).map(drop).map_err(Error::Config)
}

/// What a job asks for.
///
/// # Errors
/// What the engine's host does not have.
pub(super) fn resources(
    meta: &Meta,
    engine: &Engine,
    gpus: &GpuAllocator,
) -> Result<Resources, String> {
    if let (Some(asked), Some(there)) = (meta.memory, engine.memory)
        && asked.as_u64() > there
    {
        return Err(format!(
            "it is to have {asked} of memory, but the Docker host has {}: ask for less, or use a larger host",
            ByteSize(there)
        ));
    }
    if let (Some(asked), Some(there)) = (meta.cpu, engine.cores)
        && asked > there as f64
    {
        return Err(format!(
            "it is to have {asked} processor cores, but the Docker host has {there}: ask for fewer, or use a larger host"
        ));
    }
    let gpus = match meta.gpu {
        None | Some(0) => None,
        Some(count) if gpus.count()? == 0 => Some(GpuRequest::Any(count)),
        Some(count) => Some(GpuRequest::These(gpus.take(count)?)),
    };
    Ok(Resources {
        memory: meta.memory.map(|size| i64::try_from(size.as_u64()).unwrap_or(i64::MAX)),
        nano_cpus: meta.cpu.map(|cores| (cores * 1e9) as i64),
        gpus,
    })
}

/// A name that people recognise and the engine accepts.
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
    let given = spec.environment.iter().map(|(name, value)| format!("{name}={value}"));
    // Who may ask the engine sees its environment. Secrets come by standard input.
    let own = given.chain(spec.secrets.iter().map(|(name, _)| format!("{name}=-")));
    let mut mounts: Vec<Mount> =
        MountSpec::all(config).unwrap_or_default().iter().map(docker_mount).collect();
    // What this process has itself, its children have in the same places.
    for mount in context.current.iter().flat_map(CurrentContainer::mounts) {
        if !mounts.iter().any(|other| other.target == mount.target) {
            mounts.push(mount);
        }
    }
    mounts.extend(context.access.mount.clone());
    ContainerCreateBody {
        image: Some(image.id.clone()),
        entrypoint: Some(vec![image.program.clone()]),
        cmd: Some(
            spec.arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        ),
        env: Some(
            image
                .environment
                .iter()
                .cloned()
                .chain(environment(config))
                .chain(context.access.environment.clone())
                .chain(own)
                .collect(),
        ),
        user: config.user.clone().or_else(|| image.user.clone()),
        working_dir: config.working_dir.clone(),
        labels: Some(labels),
        open_stdin: Some(true),
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        host_config: Some(HostConfig {
            auto_remove: Some(true),
            network_mode: Some(context.network.name.clone()),
            mounts: Some(mounts),
            ..host_config(resources, &context.access)
        }),
        ..Default::default()
    }
}

/// What a container may take, and how it gets to the engine.
fn host_config(resources: &Resources, access: &EngineAccess) -> HostConfig {
    HostConfig {
        // A process number 1 that passes signals on, buries orphans, and does not take the
        // program's place.
        init: Some(true),
        group_add: access.group.clone().map(|group| vec![group]),
        memory: resources.memory,
        // No swap on top: a limit on memory is one.
        memory_swap: resources.memory,
        nano_cpus: resources.nano_cpus,
        device_requests: resources.gpus.as_ref().map(|gpus| vec![gpus.request()]),
        ..Default::default()
    }
}

/// The variables that the configuration gives to containers.
fn environment(config: &Config) -> impl Iterator<Item = String> {
    configured_environment(config).map(|(name, value)| format!("{name}={value}"))
}

/// The container of a session's head. It has the engine's socket, because the session's other
/// containers are started from it, and stays when it has ended, so that it can be asked how.
pub(super) fn head(
    config: &Config,
    run: &RunRequest,
    image: &ContainerImage,
    (entrypoint, cmd): (Option<Vec<String>>, Vec<String>),
    access: &EngineAccess,
    resources: &Resources,
) -> ContainerCreateBody {
    let volumes = run.volumes.iter().map(|volume| Mount {
        source: Some(volume.claim.clone()),
        target: Some(volume.path.clone()),
        typ: Some(MountType::VOLUME),
        read_only: Some(volume.read_only),
        ..Default::default()
    });
    let mounts: Vec<Mount> =
        MountSpec::all(config).unwrap_or_default().iter().map(docker_mount).collect();
    let environment = environment(config)
        .chain(image.environment.iter().cloned())
        .chain(access.environment.clone())
        .chain(["FIBER_BACKEND=docker".to_string()])
        .chain(run.environment.iter().map(|(name, value)| format!("{name}={value}")));
    ContainerCreateBody {
        image: Some(image.id.clone()),
        entrypoint,
        cmd: Some(cmd).filter(|cmd| !cmd.is_empty()),
        env: Some(environment.collect()),
        user: config.user.clone().or_else(|| image.user.clone()),
        working_dir: config.working_dir.clone(),
        labels: Some(owner::head_labels(run)),
        host_config: Some(HostConfig {
            network_mode: config.network.clone(),
            mounts: Some(volumes.chain(mounts).chain(access.mount.clone()).collect()),
            ..host_config(resources, access)
        }),
        ..Default::default()
    }
}

impl GpuRequest {
    fn request(&self) -> DeviceRequest {
        let (count, device_ids) = match self {
            GpuRequest::These(lease) => (None, Some(lease.ids.clone())),
            GpuRequest::Any(count) => (Some(i64::from(*count)), None),
        };
        DeviceRequest {
            count,
            device_ids,
            capabilities: Some(vec![vec!["gpu".into()]]),
            ..Default::default()
        }
    }
}

fn docker_mount(mount: &MountSpec) -> Mount {
    let (typ, source) = match &mount.source {
        MountSource::Path(path) => (MountType::BIND, path),
        MountSource::Volume(name) => (MountType::VOLUME, name),
    };
    Mount {
        source: Some(source.clone()),
        target: Some(mount.target.clone()),
        typ: Some(typ),
        read_only: Some(mount.read_only),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_engine_accepts() {
        assert_eq!(container_name("s", 3, "pool 1/worker ä"), "fiber-s-3-pool-1-worker--");
    }
}

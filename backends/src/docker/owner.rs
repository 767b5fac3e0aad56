//! Who made a container, and whether they are still alive.

use std::collections::HashMap;
use std::fs;

use bollard::errors::Error;
use bollard::models::{ContainerInspectResponse, Mount, MountType};
use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use fiber_core::shortage;

use super::engine::{Engine, SOCKET, is_missing};
use crate::JobSpec;
use crate::cluster::session::RunRequest;
use crate::owner::JobOwner;

/// The label that tells sessions apart.
pub(super) const SESSION: &str = "fiber.session";
/// The label that says who made a container, as [`JobOwner`] writes it.
pub(super) const OWNER: &str = "fiber.owner";
/// The job's name.
pub(super) const NAME: &str = "fiber.name";
/// How often the job was started again before.
pub(super) const RESTARTS: &str = "fiber.restarts";

/// The labels of a container that this process makes.
///
/// # Errors
/// That this process can't be named as their owner.
pub(super) fn labels(
    session: &str,
    spec: &JobSpec,
    current: Option<&CurrentContainer>,
) -> Result<HashMap<String, String>, String> {
    let (owner, restarts) = (this_owner(current)?.to_text(), spec.restarts.to_string());
    let labels = [(SESSION, session), (OWNER, &owner), (NAME, &spec.name), (RESTARTS, &restarts)];
    Ok(HashMap::from(labels.map(|(key, value)| (key.into(), value.into()))))
}

/// The labels of the container of a session's head: it belongs to nobody.
pub(super) fn head_labels(run: &RunRequest) -> HashMap<String, String> {
    let role = run.role();
    HashMap::from(
        [(SESSION, run.session.as_str()), (NAME, role.as_str())]
            .map(|(key, value)| (key.into(), value.into())),
    )
}

/// The container that this process runs in.
#[derive(Clone, Debug)]
pub(super) struct CurrentContainer {
    pub(super) id: String,
    pub(super) details: ContainerInspectResponse,
}

impl CurrentContainer {
    /// The container of this engine that this process runs in, if it runs in one.
    pub(super) async fn find(engine: &Engine) -> Result<Option<CurrentContainer>, String> {
        // Where it can't be read for now, to take this process for one of the host would be kept.
        let mounts = match fs::read_to_string("/proc/self/mountinfo") {
            Err(error) if shortage::is_shortage(&error) => {
                return Err(format!(
                    "/proc/self/mountinfo can't be read: {}",
                    shortage::explain(&error)
                ));
            }
            mounts => mounts.unwrap_or_default(),
        };
        let Some(id) = container_of(&mounts) else { return Ok(None) };
        match engine.api.inspect_container(id, None).await {
            Ok(details) => Ok(Some(CurrentContainer { id: id.to_string(), details })),
            // It is a container of another engine.
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(engine.explain(&error)),
        }
    }
}

impl CurrentContainer {
    /// What is mounted into this container for its program, so that its children may have it too:
    /// volumes with a name and paths of the host, but not the engine's socket.
    pub(super) fn mounts(&self) -> Vec<Mount> {
        let mount = |point: &bollard::models::MountPoint| {
            let target = point.destination.clone().filter(|target| target != SOCKET)?;
            let (typ, source) = match point.typ.as_deref() {
                Some("volume") => {
                    (MountType::VOLUME, point.name.clone().filter(|name| !is_anonymous(name))?)
                }
                Some("bind") => (MountType::BIND, point.source.clone()?),
                _ => return None,
            };
            Some(Mount {
                source: Some(source),
                target: Some(target),
                typ: Some(typ),
                read_only: Some(point.rw == Some(false)),
                ..Default::default()
            })
        };
        self.details.mounts.iter().flatten().filter_map(mount).collect()
    }

    /// Where something that is mounted into this container is on the engine's host.
    pub(super) fn source_of(&self, path: &str) -> Option<String> {
        let mounts = self.details.mounts.iter().flatten();
        let real = fs::canonicalize(path).ok()?;
        let same = |target: &str| fs::canonicalize(target).is_ok_and(|target| target == real);
        mounts.clone().find(|mount| mount.destination.as_deref().is_some_and(same))?.source.clone()
    }
}

/// Volumes without a name are called by 64 digits, and belong to one container.
fn is_anonymous(volume: &str) -> bool {
    volume.len() == 64 && volume.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The id of the container in which this table of mounts is seen: Docker keeps some files of a
/// container's /etc in a directory that has its name.
fn container_of(mountinfo: &str) -> Option<&str> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        if !["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"].contains(&point) {
            return None;
        }
        let id = root.split_once("/containers/")?.1.split('/').next()?;
        (id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
    })
}

fn this_owner(current: Option<&CurrentContainer>) -> Result<JobOwner, String> {
    current
        .map_or_else(JobOwner::this_process, |current| Ok(JobOwner::Container(current.id.clone())))
}

/// Whether it is certain that an owner is no more.
pub(super) async fn is_dead(owner: &JobOwner, engine: &Engine) -> bool {
    let JobOwner::Container(id) = owner else { return owner.is_a_dead_process() };
    match engine.api.inspect_container(id, None).await {
        Ok(details) => details.state.and_then(|state| state.running) == Some(false),
        Err(error) => is_missing(&error),
    }
}

/// Removes the containers of owners that are dead, and says which.
pub(super) async fn sweep(
    engine: &Engine,
    current: Option<&CurrentContainer>,
) -> Result<Vec<String>, String> {
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_string(), vec![SESSION.to_string()])])),
        ..Default::default()
    };
    let this = this_owner(current)?;
    let mut removed = Vec::new();
    let listed =
        engine.api.list_containers(Some(options)).await.map_err(|error| engine.explain(&error))?;
    for container in listed {
        let (Some(id), Some(labels)) = (container.id, container.labels) else { continue };
        let Some(owner) = labels.get(OWNER).and_then(|text| JobOwner::from_text(text)) else {
            continue;
        };
        if owner == this || !is_dead(&owner, engine).await {
            continue;
        }
        remove(engine, &id).await.map_err(|error| engine.explain(&error))?;
        let names = container.names.unwrap_or_default();
        removed.push(
            names.first().map_or(id.as_str(), |name| name.trim_start_matches('/')).to_string(),
        );
    }
    Ok(removed)
}

/// Kills a container and removes it, with its volumes that have no name. One that is gone is fine.
pub(super) async fn remove(engine: &Engine, id: &str) -> Result<(), Error> {
    let options = RemoveContainerOptions { force: true, v: true, link: false };
    match engine.api.remove_container(id, Some(options)).await {
        // Gone, or about to be.
        Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_container_is_found_in_its_own_mounts_only() {
        let id = "0123456789abcdef".repeat(4);
        let inside = format!(
            "700 690 8:1 /var/lib/docker/containers/{id}/hostname /etc/hostname rw - ext4 /dev/sda1 rw"
        );
        assert_eq!(container_of(&inside), Some(id.as_str()));
        // What the host of a container sees.
        let outside =
            format!("700 690 0:50 / /var/lib/docker/containers/{id}/mounts/shm rw - tmpfs shm rw");
        assert_eq!(container_of(&outside), None);
        assert_eq!(
            container_of("700 690 8:1 /etc/hostname /etc/hostname rw - ext4 /dev/sda1 rw"),
            None
        );
    }
}

//! The owners of containers: the labels that name them, this process's own container, and the
//! removal of orphans.

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

/// The label with the session's id.
pub(super) const SESSION: &str = "fiber.session";
/// The label with the process that created a container, as [`JobOwner`] formats it.
pub(super) const OWNER: &str = "fiber.owner";
/// The label with the job's name.
pub(super) const NAME: &str = "fiber.name";
/// The label with the number of the job's earlier restarts.
pub(super) const RESTARTS: &str = "fiber.restarts";

/// Returns the labels of a job's container.
///
/// # Errors
/// The owner of the container can't be determined.
pub(super) fn labels(
    session: &str,
    spec: &JobSpec,
    current: Option<&CurrentContainer>,
) -> Result<HashMap<String, String>, String> {
    let (owner, restarts) = (this_owner(current)?.to_text(), spec.restarts.to_string());
    let labels = [(SESSION, session), (OWNER, &owner), (NAME, &spec.name), (RESTARTS, &restarts)];
    Ok(HashMap::from(labels.map(|(key, value)| (key.into(), value.into()))))
}

/// Returns the labels of a session's head. It has no owner.
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
    /// Returns this process's own container, if it runs in one of this engine.
    pub(super) async fn find(engine: &Engine) -> Result<Option<CurrentContainer>, String> {
        // If it can't be read for now, the wrong answer "on a host" would be cached.
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
    /// Returns the named volumes and host paths mounted into this container, which its children
    /// mount too. The engine's socket is not among them.
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

    /// Returns the path on the engine's host of something mounted into this container.
    pub(super) fn source_of(&self, path: &str) -> Option<String> {
        let mounts = self.details.mounts.iter().flatten();
        let real = fs::canonicalize(path).ok()?;
        let same = |target: &str| fs::canonicalize(target).is_ok_and(|target| target == real);
        mounts.clone().find(|mount| mount.destination.as_deref().is_some_and(same))?.source.clone()
    }
}

/// Returns whether a volume is anonymous. These are named by 64 hexadecimal digits, and belong to
/// one container.
fn is_anonymous(volume: &str) -> bool {
    volume.len() == 64 && volume.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the id of the container that has this mount table: Docker mounts some files of /etc from
/// a directory with the container's id.
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

/// Returns whether an owner is certainly dead.
pub(super) async fn is_dead(owner: &JobOwner, engine: &Engine) -> bool {
    let JobOwner::Container(id) = owner else { return owner.is_a_dead_process() };
    match engine.api.inspect_container(id, None).await {
        Ok(details) => details.state.and_then(|state| state.running) == Some(false),
        Err(error) => is_missing(&error),
    }
}

/// Removes containers whose owners are dead, and returns their names.
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

/// Kills and removes a container and its anonymous volumes. A container that does not exist is no
/// error.
pub(super) async fn remove(engine: &Engine, id: &str) -> Result<(), Error> {
    let options = RemoveContainerOptions { force: true, v: true, link: false };
    match engine.api.remove_container(id, Some(options)).await {
        // It is gone, or being removed.
        Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_finds_its_id_in_its_own_mount_table_only() {
        let id = "0123456789abcdef".repeat(4);
        let inside = format!(
            "700 690 8:1 /var/lib/docker/containers/{id}/hostname /etc/hostname rw - ext4 \
             /dev/sda1 rw"
        );
        assert_eq!(container_of(&inside), Some(id.as_str()));
        // The mount table of the container's host.
        let outside =
            format!("700 690 0:50 / /var/lib/docker/containers/{id}/mounts/shm rw - tmpfs shm rw");
        assert_eq!(container_of(&outside), None);
        assert_eq!(
            container_of("700 690 8:1 /etc/hostname /etc/hostname rw - ext4 /dev/sda1 rw"),
            None
        );
    }
}

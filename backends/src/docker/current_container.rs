//! The container that this process runs in, if it runs in one.

use std::fs;
use std::path::Path;

use bollard::models::{ContainerInspectResponse, Mount, MountType};
use fiber_core::{read_lossy, shortage};

use super::engine::{Engine, SOCKET, found};
use super::request::mount;
use crate::BackendError;
use crate::owner::JobOwner;

/// The container that this process runs in.
#[derive(Clone, Debug)]
pub(super) struct CurrentContainer {
    pub(super) id: String,
    pub(super) details: ContainerInspectResponse,
    /// The engine's socket on the engine's host, if it is mounted here.
    socket: Option<String>,
}

impl CurrentContainer {
    /// Returns this process's own container, if it runs in one of this engine.
    pub(super) async fn find(engine: &Engine) -> Result<Option<CurrentContainer>, BackendError> {
        // If it can't be read for now, the wrong answer "on a host" would be cached.
        let mounts = match read_lossy("/proc/self/mountinfo") {
            Err(error) if shortage::is_shortage(&error) => {
                return Err(BackendError::unreadable("/proc/self/mountinfo", &error));
            }
            mounts => mounts.unwrap_or_default(),
        };
        let Some(id) = container_of(&mounts) else { return Ok(None) };
        let details = found(engine.api.inspect_container(id, None).await);
        // Without details, it is a container of another engine.
        Ok(details.map_err(|error| engine.explain(&error))?.map(|details| {
            let mut current = CurrentContainer { id: id.to_string(), details, socket: None };
            current.socket = engine.socket().and_then(|socket| current.source_of(socket));
            current
        }))
    }

    /// Returns this process as the owner of containers.
    pub(super) fn owner(&self) -> JobOwner {
        let started = self.details.state.as_ref().and_then(|state| state.started_at.clone());
        JobOwner::Container { id: self.id.clone(), started }
    }

    /// Returns the named volumes and host paths mounted into this container, which its children
    /// mount too. The engine's socket is not among them, and no directory that has it.
    pub(super) fn mounts(&self) -> Vec<Mount> {
        let has_socket = |source: &str| {
            self.socket.as_ref().is_some_and(|socket| Path::new(socket).starts_with(source))
        };
        let mount_of = |point: &bollard::models::MountPoint| {
            let target = point.destination.clone().filter(|target| target != SOCKET)?;
            let (typ, source) = match point.typ.as_deref() {
                Some("volume") => {
                    (MountType::VOLUME, point.name.clone().filter(|name| !is_anonymous(name))?)
                }
                Some("bind") => {
                    (MountType::BIND, point.source.clone().filter(|source| !has_socket(source))?)
                }
                _ => return None,
            };
            Some(mount(typ, source, &target, point.rw == Some(false)))
        };
        self.details.mounts.iter().flatten().filter_map(mount_of).collect()
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

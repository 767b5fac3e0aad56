//! The variable `FIBER_PARENT`, by which a parent makes a process its child.

use std::net::IpAddr;
use std::str::FromStr;

use fiber_backends::{JobSpec, Parent};
use fiber_core::{Address, ProcessId, variables};

use super::Runtime;

/// Stands in place of the parent's process id in containers, in pods and on other machines, where
/// it has no meaning.
const REMOTE: &str = "elsewhere";

/// The value: who the child is, and where to find its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParentInfo {
    /// The child's own id.
    pub(super) id: ProcessId,
    pub(super) parent: ProcessId,
    /// The parent's process id in the operating system, if the child is a process beside it.
    pub(super) parent_pid: Option<i32>,
    /// The process that listens at the address: the parent, or the host of a hosted process.
    pub(super) listener: ProcessId,
    pub(super) place: ChildPlace,
    pub(super) address: Address,
}

/// The processes with which a child shares its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildPlace {
    /// With no other child.
    Alone,
    /// With the processes that it starts: it is a host.
    Host,
    /// With the other processes of a host. Processes elsewhere reach it by this interface.
    InHost(IpAddr),
}

const ALONE: &str = "alone";
const HOST: &str = "host";

impl ParentInfo {
    /// Returns the way to the parent, which becomes the variable.
    pub(super) fn parent(&self) -> Parent {
        Parent { identity: self.identity(), address: self.address.clone() }
    }

    /// Returns the job of the child, with what it needs to join its parent.
    pub(super) fn job_spec(&self, runtime: &Runtime, name: String) -> JobSpec {
        JobSpec {
            arguments: std::env::args_os().skip(1).collect(),
            parent: Some(self.parent()),
            secrets: vec![(variables::KEY, runtime.key().ticket(self.id).reveal().into())],
            log_dir: runtime.config().log_dir.clone(),
            ..JobSpec::new(name)
        }
    }

    /// Returns the host of a hosted process, which listens for it in place of the parent.
    pub(super) fn host(&self) -> Option<ProcessId> {
        (self.listener != self.parent).then_some(self.listener)
    }

    fn identity(&self) -> String {
        let ParentInfo { id, parent, parent_pid, listener, place, .. } = self;
        let pid = parent_pid.map_or(REMOTE.into(), |pid| pid.to_string());
        let place = match place {
            ChildPlace::Alone => ALONE.into(),
            ChildPlace::Host => HOST.into(),
            ChildPlace::InHost(interface) => interface.to_string(),
        };
        format!("{id},{parent},{pid},{listener},{place}")
    }
}

impl FromStr for ParentInfo {
    type Err = ();

    fn from_str(text: &str) -> Result<ParentInfo, ()> {
        let mut fields = text.splitn(6, ',');
        let mut next = || fields.next().ok_or(());
        let id = next()?.parse().map_err(drop)?;
        let parent = next()?.parse().map_err(drop)?;
        let parent_pid = match next()? {
            REMOTE => None,
            pid => Some(pid.parse().map_err(drop)?),
        };
        let listener = next()?.parse().map_err(drop)?;
        let place = match next()? {
            ALONE => ChildPlace::Alone,
            HOST => ChildPlace::Host,
            interface => ChildPlace::InHost(interface.parse().map_err(drop)?),
        };
        let address = next()?.parse().map_err(drop)?;
        Ok(ParentInfo { id, parent, parent_pid, listener, place, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_says_it_all() {
        let places = [
            ChildPlace::Alone,
            ChildPlace::Host,
            ChildPlace::InHost([10, 0, 0, 7].into()),
            ChildPlace::InHost("fd00::7".parse().unwrap()),
        ];
        for (place, parent_pid) in places.into_iter().zip([None, Some(7), None, Some(8)]) {
            let info = ParentInfo {
                id: ProcessId::random(),
                parent: ProcessId::random(),
                parent_pid,
                listener: ProcessId::random(),
                place,
                address: "near:a|fiber,odd|nng:tcp://[fd00::1]:7000".parse().unwrap(),
            };
            assert_eq!(info.parent().to_string().parse(), Ok(info));
        }
        assert!("".parse::<ParentInfo>().is_err());
    }
}

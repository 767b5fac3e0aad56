//! The place of a job, as data and in words.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a job runs, in the terms of its backend.
///
/// `{}` shows it in words, for logs, errors and lists.
///
/// # Examples
/// ```
/// use fiber_core::stats::JobPlace;
///
/// let process = JobPlace::Process { pid: 31 };
/// assert_eq!(process.to_string(), "pid 31");
/// let hosted = JobPlace::Hosted { place: Box::new(process), host: "pool-1/host-1".into() };
/// assert_eq!(hosted.to_string(), "pid 31 in pool-1/host-1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum JobPlace {
    /// Nowhere yet: the host in which it will run has not started it.
    AwaitsHost,
    /// A process beside its parent, on the same machine: `pid 4711`.
    Process {
        /// Its pid there.
        pid: u32,
    },
    /// A container with a host name and pids of its own: `container fiber-1`.
    Container {
        /// Its name.
        name: String,
    },
    /// A pod of Kubernetes: `pod fiber-1`.
    Pod {
        /// Its name.
        name: String,
    },
    /// A machine that the backend reaches: `machine node1`.
    Machine {
        /// Its name.
        name: String,
    },
    /// A job of an engine that queues jobs: `job 17`.
    Job {
        /// Its id.
        id: String,
    },
    /// A part of such a job: `step 17.0, node n1, srun pid 4711`.
    Step {
        /// Its id, once the engine has told it.
        id: Option<String>,
        /// Its node, if that was chosen.
        node: Option<String>,
        /// The process that has started it and watches it, in words: `srun pid 4711`.
        client: Option<String>,
    },
    /// A host, beside other processes: `pid 31 in pool-1/host-1`.
    Hosted {
        /// Its place as the host calls it.
        place: Box<JobPlace>,
        /// The name of the host.
        host: String,
    },
    /// A place for which there is no other variant.
    Other {
        /// The place in words.
        words: String,
    },
}

impl JobPlace {
    /// Returns the name by which the engine knows it: that of the container or pod, or the id of
    /// the step. There is none for a process, and for one that shares its job with others.
    pub fn name(&self) -> Option<&str> {
        match self {
            JobPlace::Container { name } | JobPlace::Pod { name } | JobPlace::Machine { name } => {
                Some(name)
            }
            JobPlace::Job { id } | JobPlace::Step { id: Some(id), .. } => Some(id),
            _ => None,
        }
    }

    /// Returns the name of the host in which it runs.
    pub fn host(&self) -> Option<&str> {
        match self {
            JobPlace::Hosted { host, .. } => Some(host),
            _ => None,
        }
    }

    /// Returns whether it is a process on the machine of its parent, or of its host.
    pub fn is_process(&self) -> bool {
        match self {
            JobPlace::Process { .. } => true,
            JobPlace::Hosted { place, .. } => place.is_process(),
            _ => false,
        }
    }

    /// Returns whether its host name and its pids are those of a container or pod, and not of the
    /// machine.
    pub fn is_container(&self) -> bool {
        matches!(self, JobPlace::Container { .. } | JobPlace::Pod { .. })
    }
}

impl fmt::Display for JobPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobPlace::AwaitsHost => f.write_str("waiting for a host"),
            JobPlace::Process { pid } => write!(f, "pid {pid}"),
            JobPlace::Container { name } => write!(f, "container {name}"),
            JobPlace::Pod { name } => write!(f, "pod {name}"),
            JobPlace::Machine { name } => write!(f, "machine {name}"),
            JobPlace::Job { id } => write!(f, "job {id}"),
            JobPlace::Step { id, node, client } => {
                let step = id.as_ref().map(|id| format!("step {id}"));
                let node = match (node, client) {
                    (Some(node), _) => Some(format!("node {node}")),
                    (None, Some(_)) => Some("a node".into()),
                    (None, None) => None,
                };
                let parts: Vec<String> =
                    [step, node, client.clone()].into_iter().flatten().collect();
                f.write_str(&parts.join(", "))
            }
            JobPlace::Hosted { place, host } => write!(f, "{place} in {host}"),
            JobPlace::Other { words } => f.write_str(words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: Option<&str>, node: Option<&str>, client: Option<&str>) -> JobPlace {
        let [id, node, client] = [id, node, client].map(|text| text.map(String::from));
        JobPlace::Step { id, node, client }
    }

    #[test]
    fn a_step_is_shown_with_what_is_known_of_it() {
        for (place, words) in [
            (step(Some("17.0"), Some("n1"), Some("srun pid 3")), "step 17.0, node n1, srun pid 3"),
            (step(None, Some("n1"), Some("srun pid 3")), "node n1, srun pid 3"),
            (step(None, None, Some("srun pid 3")), "a node, srun pid 3"),
            (step(Some("17.0"), None, None), "step 17.0"),
        ] {
            assert_eq!(place.to_string(), words);
        }
    }

    #[test]
    fn a_process_in_a_host_is_called_by_its_path_alone() {
        let inner = Box::new(JobPlace::Container { name: "fiber-1".into() });
        let hosted = JobPlace::Hosted { place: inner, host: "pool-1/host-1".into() };
        assert_eq!((hosted.name(), hosted.host()), (None, Some("pool-1/host-1")));
        assert_eq!(step(None, Some("n1"), Some("srun pid 3")).name(), None);
        assert_eq!(step(Some("17.0"), Some("n1"), None).name(), Some("17.0"));
    }

    #[test]
    fn a_place_travels_as_data() {
        let place = step(Some("17.0"), Some("n1"), None);
        let json = serde_json::to_value(&place).unwrap();
        assert_eq!(json["step"]["id"], "17.0");
        assert_eq!(serde_json::from_value::<JobPlace>(json).unwrap(), place);
        let waits = serde_json::from_str::<JobPlace>("\"awaits-host\"").unwrap();
        assert_eq!(waits.to_string(), "waiting for a host");
    }
}

//! The variable `FIBER_PARENT`, by which a parent makes a process its child.

use std::fmt;
use std::str::FromStr;

use fiber_core::ProcessId;

/// Stands in place of the parent's process id in containers and pods, where it has no meaning.
const REMOTE: &str = "elsewhere";

/// The value: who the child is, and where to find its parent.
#[derive(Clone)]
pub(super) struct ParentInfo {
    /// The child's own id.
    pub(super) id: ProcessId,
    pub(super) parent: ProcessId,
    /// There is none in a container or pod.
    pub(super) parent_pid: Option<i32>,
    pub(super) address: String,
}

impl fmt::Display for ParentInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParentInfo { id, parent, parent_pid, address } = self;
        match parent_pid {
            Some(pid) => write!(f, "{id}:{parent}:{pid}:{address}"),
            None => write!(f, "{id}:{parent}:{REMOTE}:{address}"),
        }
    }
}

impl FromStr for ParentInfo {
    type Err = ();

    fn from_str(text: &str) -> Result<ParentInfo, ()> {
        let mut fields = text.splitn(4, ':');
        let mut next = || fields.next().ok_or(());
        let id = next()?.parse().map_err(drop)?;
        let parent = next()?.parse().map_err(drop)?;
        let parent_pid = match next()? {
            REMOTE => None,
            pid => Some(pid.parse().map_err(drop)?),
        };
        Ok(ParentInfo { id, parent, parent_pid, address: next()?.to_string() })
    }
}

//! The tree of a process's supervisors and their children.

pub(super) mod display;

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::units;
use crate::exit::ExitReason;
use crate::value_memory::ValueMemory;

/// Which children a supervisor restarts when one fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// Only the failed child.
    #[default]
    OneForOne,
    /// All children: the supervisor stops the others in reverse order, then starts all in order.
    OneForAll,
    /// The failed child and those that started after it.
    RestForOne,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strategy::OneForOne => "one for one",
            Strategy::OneForAll => "one for all",
            Strategy::RestForOne => "rest for one",
        })
    }
}

/// The kind of a branch of a [`Tree`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ChildKind {
    /// A supervisor.
    Supervisor {
        /// Which children it restarts together.
        strategy: Strategy,
        /// How many times it has restarted a child.
        restarts: u64,
    },
    /// An actix actor.
    Actor,
    /// A process, container or pod.
    Process,
    /// Something else.
    Other(String),
}

/// The state of a branch of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildState {
    /// It starts for the first time.
    Starting,
    /// It runs.
    Running,
    /// It has ended, and a restart follows or is under way.
    Restarting,
    /// Its supervisor stops it.
    Stopping,
    /// It has ended, and is not restarted.
    Ended,
}

/// A snapshot of the supervisors of a process, their children, and the memory of its values.
/// `Display` draws it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tree {
    /// The supervisors that are no children of others, oldest first.
    pub roots: Vec<Branch>,
    /// The memory that values take in this process.
    pub memory: ValueMemory,
}

impl Tree {
    #[doc(hidden)]
    pub fn new(roots: Vec<Branch>, memory: ValueMemory) -> Tree {
        Tree { roots, memory }
    }

    /// Returns the branch with this full name: `app/counter`.
    pub fn find(&self, path: &str) -> Option<&Branch> {
        let mut names = path.split('/');
        let first = names.next()?;
        let root = self.roots.iter().find(|branch| branch.name == first)?;
        names.try_fold(root, |branch, name| branch.children.iter().find(|child| child.name == name))
    }
}

/// A supervisor or a child in a [`Tree`], with its own children. `Display` draws it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Branch {
    /// The name, without those of the supervisors above.
    pub name: String,
    /// The registered names of a managed actor, by which other processes find it.
    #[serde(default)]
    pub names: Vec<String>,
    /// The kind of child.
    pub kind: ChildKind,
    /// The current state.
    pub state: ChildState,
    /// Where it runs: `pid 4711`.
    pub place: Option<String>,
    /// How many times it was restarted.
    pub restarts: u64,
    /// Why its last incarnation ended.
    pub last_exit: Option<ExitReason>,
    /// When it entered its state.
    #[serde(with = "units::time")]
    pub since: SystemTime,
    /// Its children, in the order of their start.
    pub children: Vec<Branch>,
}

impl Branch {
    #[doc(hidden)]
    pub fn new(name: String, kind: ChildKind, state: ChildState, since: SystemTime) -> Branch {
        Branch {
            name,
            names: Vec::new(),
            kind,
            state,
            place: None,
            restarts: 0,
            last_exit: None,
            since,
            children: Vec::new(),
        }
    }

    /// Returns how long the branch has been in its state.
    pub fn age(&self) -> Duration {
        self.since.elapsed().unwrap_or_default()
    }
}

//! The tree of all supervisors of this process and their children.

mod display;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use dashmap::DashMap;
use fiber_core::{ExitReason, ValueMemory, value_memory};
use serde::Serialize;

use super::strategy::Strategy;

/// What a branch of the [tree](tree()) is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

/// The state of a branch of the [tree](tree()).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

/// A branch, without the branches below.
#[derive(Clone, Debug)]
pub(super) struct EntryData {
    parent: Option<u64>,
    name: String,
    pub(super) kind: ChildKind,
    state: ChildState,
    pub(super) place: Option<String>,
    pub(super) incarnation: u64,
    pub(super) last_exit: Option<ExitReason>,
    since: SystemTime,
}

impl EntryData {
    pub(super) fn enter(&mut self, state: ChildState) {
        if self.state != state {
            self.state = state;
            self.since = SystemTime::now();
        }
    }
}

static ENTRIES: LazyLock<DashMap<u64, EntryData>> = LazyLock::new(DashMap::new);

/// Identifies an entry of the tree, which may be gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryId(u64);

impl EntryId {
    /// Changes the entry, if it is still there. `change` must not read the tree.
    pub(super) fn update(self, change: impl FnOnce(&mut EntryData)) {
        if let Some(mut data) = ENTRIES.get_mut(&self.0) {
            change(&mut data);
        }
    }
}

/// An entry of the tree, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Entry(EntryId);

impl Entry {
    pub(super) fn new(parent: Option<EntryId>, name: &str, kind: ChildKind) -> Entry {
        // Ids ascend: they are also the order of siblings, and a parent's is smaller than its
        // children's.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = EntryId(NEXT.fetch_add(1, Ordering::Relaxed));
        let data = EntryData {
            parent: parent.map(|EntryId(id)| id),
            name: name.into(),
            kind,
            state: ChildState::Starting,
            place: None,
            incarnation: 0,
            last_exit: None,
            since: SystemTime::now(),
        };
        ENTRIES.insert(id.0, data);
        Entry(id)
    }

    pub(super) fn id(&self) -> EntryId {
        self.0
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut EntryData)) {
        self.0.update(change);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        ENTRIES.remove(&self.0.0);
    }
}

/// Returns all supervisors of this process and their children, as they are now.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Supervisor;
/// use fiber::supervisor::ChildState;
///
/// let app = Supervisor::builder("app").start().wait()?;
/// let tree = fiber::tree();
/// assert_eq!(tree.find("app").map(|branch| branch.state), Some(ChildState::Running));
/// println!("{tree}");
/// app.stop().wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn tree() -> Tree {
    let mut all: Vec<(u64, EntryData)> =
        ENTRIES.iter().map(|entry| (*entry.key(), entry.value().clone())).collect();
    all.sort_by_key(|(id, _)| *id);
    let mut branches: Vec<(u64, Option<u64>, Branch)> =
        all.into_iter().map(|(id, data)| (id, data.parent, Branch::new(data))).collect();
    let mut roots = Vec::new();
    // From the back, so that a branch has all its children when it is moved to its parent.
    while let Some((_, parent, mut branch)) = branches.pop() {
        branch.children.reverse();
        let above = parent.and_then(|id| branches.binary_search_by_key(&id, |(id, _, _)| *id).ok());
        match (above, parent) {
            (Some(position), _) => branches[position].2.children.push(branch),
            (None, None) => roots.push(branch),
            // Its supervisor has just ended.
            (None, Some(_)) => {}
        }
    }
    roots.reverse();
    Tree { roots, memory: value_memory() }
}

/// A snapshot of the supervisors of a process, their children, and the memory of its values.
/// `Display` draws it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Tree {
    /// The supervisors that are no children of others, oldest first.
    pub roots: Vec<Branch>,
    /// The memory that values take in this process.
    pub memory: ValueMemory,
}

impl Tree {
    /// Returns the branch with this full name: `app/counter`. [`tree`](tree()) has an example.
    pub fn find(&self, path: &str) -> Option<&Branch> {
        let mut names = path.split('/');
        let first = names.next()?;
        let root = self.roots.iter().find(|branch| branch.name == first)?;
        names.try_fold(root, |branch, name| branch.children.iter().find(|child| child.name == name))
    }
}

/// A supervisor or a child in a [`Tree`], with its own children. `Display` draws it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Branch {
    /// The name, without those of the supervisors above.
    pub name: String,
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
    pub since: SystemTime,
    /// Its children, in the order of their start.
    pub children: Vec<Branch>,
}

impl Branch {
    fn new(data: EntryData) -> Branch {
        Branch {
            name: data.name,
            kind: data.kind,
            state: data.state,
            place: data.place,
            restarts: data.incarnation.saturating_sub(1),
            last_exit: data.last_exit,
            since: data.since,
            children: Vec::new(),
        }
    }

    /// Returns how long the branch has been in its state.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let app = fiber::Supervisor::builder("app").start().wait()?;
    /// println!("app has run for {:?}", fiber::tree().find("app").unwrap().age());
    /// # app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn age(&self) -> Duration {
        self.since.elapsed().unwrap_or_default()
    }
}

/// Returns the names in the tree that begin with `prefix`.
#[cfg(test)]
pub(super) fn names(prefix: &str) -> Vec<String> {
    ENTRIES.iter().map(|entry| entry.name.clone()).filter(|name| name.starts_with(prefix)).collect()
}

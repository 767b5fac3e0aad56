//! The tree of all supervisors of this process and their children.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use dashmap::DashMap;
pub use fiber_core::stats::{Branch, ChildKind, ChildState, Tree};
use fiber_core::stats::{Report, Supervisors};
use fiber_core::{ExitReason, ProcessId, value_memory};

use super::start::Within;
use fiber_runtime::parts::Parts;
use fiber_runtime::sources::{Source, Sources};

/// Returns the registered names of an actor.
pub(super) type Names = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// A branch, without the branches below.
pub(super) struct EntryData {
    parent: Option<u64>,
    name: String,
    pub(super) kind: ChildKind,
    state: ChildState,
    pub(super) place: Option<String>,
    pub(super) incarnation: u64,
    /// How often what is in the child was restarted without the child.
    pub(super) restarts_within: u64,
    pub(super) last_exit: Option<ExitReason>,
    pub(super) names: Option<Names>,
    /// Whether another entry is shown in its place.
    is_replaced: bool,
    since: SystemTime,
}

impl EntryData {
    /// Shows what has happened to an actor in a process that restarts it.
    pub(super) fn note_within(&mut self, event: Within) {
        match event {
            Within::Failed(reason) => {
                self.last_exit = Some(reason);
                self.enter(ChildState::Restarting);
            }
            Within::Restarted => {
                self.restarts_within += 1;
                self.enter(ChildState::Running);
            }
        }
    }

    pub(super) fn enter(&mut self, state: ChildState) {
        if self.state != state {
            self.state = state;
            self.since = SystemTime::now();
        }
    }
}

/// The supervisors of a session in this process, as a source of statistics.
#[derive(Default)]
struct Supervised {
    entries: DashMap<u64, EntryData>,
    last: AtomicU64,
    /// Set with the first entry.
    source: OnceLock<Arc<AllSupervisors>>,
}

struct AllSupervisors(&'static Supervised);

impl Source for AllSupervisors {
    fn report(&self, process: ProcessId, report: &mut Report) {
        let roots = self.0.roots();
        if !roots.is_empty() {
            report.supervisors.push(Supervisors::new(process, roots));
        }
    }
}

/// Identifies an entry of the tree, which may be gone.
#[derive(Clone, Copy)]
pub(super) struct EntryId {
    supervised: &'static Supervised,
    number: u64,
}

impl EntryId {
    /// Changes the entry, if it is still there. `change` must not read the tree.
    pub(super) fn update(self, change: impl FnOnce(&mut EntryData)) {
        if let Some(mut data) = self.supervised.entries.get_mut(&self.number) {
            change(&mut data);
        }
    }

    /// Shows an entry below this one in its place.
    pub(super) fn replace_by(self, entry: &Entry) {
        entry.update(|data| data.parent = None);
        self.update(|data| data.is_replaced = true);
    }
}

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EntryId").field(&self.number).finish()
    }
}

/// An entry of the tree, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Entry(EntryId);

impl Entry {
    pub(super) fn new(parent: Option<EntryId>, name: &str, kind: ChildKind) -> Entry {
        let supervised = parent.map_or_else(Supervised::current, |parent| parent.supervised);
        // Numbers ascend: they are also the order of siblings, and a parent's is smaller than its
        // children's.
        let number = supervised.last.fetch_add(1, Ordering::Relaxed);
        let data = EntryData {
            parent: parent.map(|parent| parent.number),
            name: name.into(),
            kind,
            state: ChildState::Starting,
            place: None,
            incarnation: 0,
            restarts_within: 0,
            last_exit: None,
            names: None,
            is_replaced: false,
            since: SystemTime::now(),
        };
        supervised.entries.insert(number, data);
        Entry(EntryId { supervised, number })
    }

    pub(super) fn id(&self) -> EntryId {
        self.0
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut EntryData)) {
        self.0.update(change);
    }

    /// Returns the registered names of the actor.
    pub(super) fn names(&self) -> Vec<String> {
        let EntryId { supervised, number } = self.0;
        let names = supervised.entries.get(&number).and_then(|data| data.names.clone());
        names.map(|names| names()).unwrap_or_default()
    }

    pub(super) fn last_exit(&self) -> Option<ExitReason> {
        let EntryId { supervised, number } = self.0;
        supervised.entries.get(&number).and_then(|data| data.last_exit.clone())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.0.supervised.entries.remove(&self.0.number);
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
    Tree::new(Parts::current().get::<Supervised>().roots(), value_memory())
}

impl Supervised {
    /// Returns those of this thread's session.
    fn current() -> &'static Supervised {
        let parts = Parts::current();
        let supervised = parts.get::<Supervised>();
        supervised.source.get_or_init(|| {
            let source = Arc::new(AllSupervisors(supervised));
            parts.get::<Sources>().register(&source);
            source
        });
        supervised
    }

    /// Returns the supervisors that are no children of others, oldest first.
    fn roots(&self) -> Vec<Branch> {
        let mut numbers: Vec<u64> = self.entries.iter().map(|entry| *entry.key()).collect();
        numbers.sort_unstable();
        let mut branches: Vec<(u64, Option<u64>, Branch)> = Vec::with_capacity(numbers.len());
        for number in numbers {
            if let Some(data) = self.entries.get(&number).filter(|data| !data.is_replaced) {
                branches.push((number, data.parent, data.branch()));
            }
        }
        let mut roots = Vec::new();
        // From the back, so that a branch has all its children when it is moved to its parent.
        while let Some((_, parent, mut branch)) = branches.pop() {
            branch.children.reverse();
            let above =
                parent.and_then(|id| branches.binary_search_by_key(&id, |(id, _, _)| *id).ok());
            match (above, parent) {
                (Some(position), _) => branches[position].2.children.push(branch),
                (None, None) => roots.push(branch),
                // Its supervisor has just ended.
                (None, Some(_)) => {}
            }
        }
        roots.reverse();
        roots
    }
}

impl EntryData {
    fn branch(&self) -> Branch {
        let mut branch = Branch::new(self.name.clone(), self.kind.clone(), self.state, self.since);
        branch.place.clone_from(&self.place);
        branch.names = self.names.as_ref().map(|names| names()).unwrap_or_default();
        branch.restarts = self.incarnation.saturating_sub(1) + self.restarts_within;
        branch.last_exit.clone_from(&self.last_exit);
        branch
    }
}

/// Returns the names in the tree that begin with `prefix`.
#[cfg(test)]
pub(super) fn names(prefix: &str) -> Vec<String> {
    let names = Supervised::current().entries.iter().map(|entry| entry.name.clone());
    names.filter(|name| name.starts_with(prefix)).collect::<Vec<_>>()
}

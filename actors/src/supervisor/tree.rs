//! The tree of all supervisors of this process and their children.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use dashmap::DashMap;
use fiber_core::ExitReason;
use serde::Serialize;

use super::strategy::Strategy;

/// What a member of the tree is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum ChildKind {
    /// A supervisor.
    Supervisor {
        /// Which children it restarts together.
        strategy: Strategy,
        /// How often it restarted a child.
        restarts: u64,
    },
    /// An actix actor.
    Actor,
    /// A process, container or pod.
    Process,
    /// Something else.
    Other(String),
}

/// What a member of the tree is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// It is being started for the first time.
    Starting,
    /// It runs.
    Running,
    /// It ended and is about to be started again.
    Restarting,
    /// It was told to end.
    Stopping,
    /// It ended, and stays so.
    Ended,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Starting => "starting",
            State::Running => "running",
            State::Restarting => "restarting",
            State::Stopping => "stopping",
            State::Ended => "ended",
        })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Facts {
    parent: Option<u64>,
    name: String,
    pub(super) kind: ChildKind,
    state: State,
    pub(super) place: Option<String>,
    pub(super) incarnation: u64,
    pub(super) last_exit: Option<ExitReason>,
    since: SystemTime,
}

impl Facts {
    pub(super) fn enter(&mut self, state: State) {
        if self.state != state {
            self.state = state;
            self.since = SystemTime::now();
        }
    }
}

static ENTRIES: LazyLock<DashMap<u64, Facts>> = LazyLock::new(DashMap::new);

/// A member's place in the tree. It does not keep the member there.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryId(u64);

impl EntryId {
    /// Changes what is known of it, if it is still there. `change` must not look at the tree.
    pub(super) fn update(self, change: impl FnOnce(&mut Facts)) {
        if let Some(mut facts) = ENTRIES.get_mut(&self.0) {
            change(&mut facts);
        }
    }
}

/// Keeps a member in the tree until dropped.
#[derive(Debug)]
pub(super) struct Entry(EntryId);

impl Entry {
    pub(super) fn new(parent: Option<EntryId>, name: &str, kind: ChildKind) -> Entry {
        // Ids grow, so that they also give the order.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = EntryId(NEXT.fetch_add(1, Ordering::Relaxed));
        let facts = Facts {
            parent: parent.map(|EntryId(id)| id),
            name: name.into(),
            kind,
            state: State::Starting,
            place: None,
            incarnation: 0,
            last_exit: None,
            since: SystemTime::now(),
        };
        ENTRIES.insert(id.0, facts);
        Entry(id)
    }

    pub(super) fn id(&self) -> EntryId {
        self.0
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Facts)) {
        self.0.update(change);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        ENTRIES.remove(&self.0.0);
    }
}

/// All supervisors of this process and their children, as they are now.
pub fn tree() -> Tree {
    let mut all: Vec<(u64, Facts)> =
        ENTRIES.iter().map(|id| (*id.key(), id.value().clone())).collect();
    all.sort_by_key(|(id, _)| *id);
    // A parent's id is smaller than its children's, so from the back each branch is whole when it
    // joins its parent.
    let mut branches: Vec<(u64, Option<u64>, Branch)> =
        all.into_iter().map(|(id, facts)| (id, facts.parent, Branch::new(facts))).collect();
    let mut roots = Vec::new();
    while let Some((_, parent, mut branch)) = branches.pop() {
        branch.children.reverse();
        let above = parent.and_then(|id| branches.binary_search_by_key(&id, |(id, _, _)| *id).ok());
        match (above, parent) {
            (Some(place), _) => branches[place].2.children.push(branch),
            (None, None) => roots.push(branch),
            // Its supervisor has just ended.
            (None, Some(_)) => {}
        }
    }
    roots.reverse();
    Tree { roots }
}

/// Supervisors and their children, as they were at one moment. Prints as a tree.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Tree {
    /// The supervisors that have none above them, oldest first.
    pub roots: Vec<Branch>,
}

impl Tree {
    /// The member with this full name: `app/counter`.
    pub fn find(&self, path: &str) -> Option<&Branch> {
        let mut names = path.split('/');
        let first = names.next()?;
        let root = self.roots.iter().find(|branch| branch.name == first)?;
        names.try_fold(root, |branch, name| branch.children.iter().find(|child| child.name == name))
    }
}

/// A member of the tree, and those below it. Prints as a tree.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Branch {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ChildKind,
    /// What it is doing.
    pub state: State,
    /// Where it runs: `pid 4711`.
    pub place: Option<String>,
    /// How often it was restarted.
    pub restarts: u64,
    /// Why its last incarnation ended.
    pub last_exit: Option<ExitReason>,
    /// Since when it is in its state.
    pub since: SystemTime,
    /// Its children, in the order of their start.
    pub children: Vec<Branch>,
}

impl Branch {
    fn new(facts: Facts) -> Branch {
        Branch {
            name: facts.name,
            kind: facts.kind,
            state: facts.state,
            place: facts.place,
            restarts: facts.incarnation.saturating_sub(1),
            last_exit: facts.last_exit,
            since: facts.since,
            children: Vec::new(),
        }
    }

    /// For how long it has been in its state.
    pub fn age(&self) -> Duration {
        self.since.elapsed().unwrap_or_default()
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        for (place, child) in self.children.iter().enumerate() {
            let last = place + 1 == self.children.len();
            let (fork, bar) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            write!(f, "\n{indent}{fork}{}", Line(child))?;
            child.print(f, &format!("{indent}{bar}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Line(self))?;
        self.print(f, "")
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, root) in self.roots.iter().enumerate() {
            let gap = if place == 0 { "" } else { "\n" };
            write!(f, "{gap}{root}")?;
        }
        Ok(())
    }
}

struct Line<'a>(&'a Branch);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line(branch) = self;
        f.write_str(&branch.name)?;
        if let ChildKind::Supervisor { strategy, restarts } = &branch.kind {
            write!(f, " (supervisor, {strategy}")?;
            if *restarts > 0 {
                write!(f, ", {}", Restarts(*restarts))?;
            }
            f.write_str(")")?;
            if branch.state == State::Running && branch.restarts == 0 {
                return Ok(());
            }
        }
        write!(f, "  {}", branch.state)?;
        match (branch.state, &branch.last_exit) {
            (State::Running | State::Starting | State::Stopping, _) | (_, None) => {}
            (State::Restarting | State::Ended, Some(reason)) => {
                write!(f, " ({})", reason.to_string().lines().next().unwrap_or_default())?;
            }
        }
        if let Some(place) = &branch.place {
            write!(f, "  {place}")?;
        }
        if branch.state == State::Running {
            write!(f, "  {}", Age(branch.age().as_secs()))?;
        }
        if branch.restarts > 0 {
            write!(f, "  {}", Restarts(branch.restarts))?;
        }
        Ok(())
    }
}

struct Restarts(u64);

impl fmt::Display for Restarts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} restart{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

struct Age(u64);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds @ 0..60 => write!(f, "{seconds}s"),
            seconds @ 60..3_600 => write!(f, "{}m", seconds / 60),
            seconds @ 3_600..86_400 => write!(f, "{}h", seconds / 3_600),
            seconds => write!(f, "{}d", seconds / 86_400),
        }
    }
}

#[cfg(test)]
pub(super) fn members(prefix: &str) -> Vec<String> {
    ENTRIES.iter().map(|id| id.name.clone()).filter(|name| name.starts_with(prefix)).collect()
}

//! The nodes of a world: its head, and the processes that are threads of it.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::log::Kind;
use crate::world::{Me, State};

impl Me {
    /// Makes this thread the first of a node.
    pub(crate) fn begin_node(&self, name: &str) -> usize {
        let state = self.state();
        let node = state.nodes.len();
        state.parents.push(self.node());
        state.threads[self.id].node = node;
        state.nodes.push(name.into());
        state.note(node, Kind::Start, format_args!("{name}"));
        node
    }

    /// Makes this thread the first of a head, whose waits end when it dies.
    pub(crate) fn begin_head(&self, name: &str) -> usize {
        let node = self.begin_node(name);
        self.state().heads.insert(node, BTreeMap::new());
        node
    }

    pub(crate) fn end_node(&self, node: usize) {
        let state = self.state();
        // A kill ends a process that is stopped, too, and so does the death of its parent.
        let State { stopped, parents, .. } = state;
        stopped.retain(|stopped| *stopped != node && parents[*stopped] != node);
        if !state.dead.contains(&node) {
            state.dead.push(node);
            state.note(node, Kind::End, format_args!("ends"));
        }
        let waiting = state.heads.get_mut(&node).map(std::mem::take);
        waiting.into_iter().flatten().for_each(|(_, waker)| waker.wake());
    }

    /// Returns the node of this thread.
    pub(crate) fn node(&self) -> usize {
        self.state().threads[self.id].node
    }

    /// Returns whether this thread's process is a head that has died. If it is one that lives, its
    /// end wakes `waker`.
    pub(crate) fn has_died(&self, waker: &Waker) -> bool {
        let is_dead = self.is_dead();
        let state = self.state();
        let Some(waiting) = state.heads.get_mut(&state.threads[self.id].node) else { return false };
        let earlier = (!is_dead).then(|| waiting.insert(self.id, waker.clone()));
        // Without the state: the last clone of a waker may belong to other code.
        drop(earlier);
        is_dead
    }

    /// Returns whether this thread's node is dead.
    pub(crate) fn is_dead(&self) -> bool {
        self.state().dead.contains(&self.node())
    }

    /// Chooses one of the nodes that faults may hit: the one of this name, or any, by the seed.
    pub(crate) fn choose_node(&self, name: Option<&str>) -> Option<usize> {
        let state = self.state();
        let nodes = state.running_nodes();
        match name {
            Some(name) => nodes.into_iter().rev().find(|node| state.nodes[*node] == name),
            None => state.rng.choice(nodes),
        }
    }

    /// Returns the names of the nodes that faults may hit, in their order.
    pub(crate) fn node_names(&self) -> Vec<String> {
        let state = self.state();
        let nodes = state.running_nodes().into_iter();
        let mut names: Vec<_> = nodes.map(|node| state.nodes[node].clone()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the last node of a name.
    pub(crate) fn last_node(&self, name: &str) -> Option<usize> {
        self.state().nodes.iter().rposition(|node| node == name)
    }

    pub(crate) fn node_name(&self, node: usize) -> String {
        self.state().nodes[node].clone()
    }

    /// Stops a node for a time, or until it is killed.
    pub(crate) fn stop_node(&self, node: usize, nanos: Option<u64>) {
        let state = self.state();
        match nanos.map(|nanos| nanos / 1_000_000) {
            Some(millis) => {
                state.note(node, Kind::Fault, format_args!("is stopped for {millis} ms"));
            }
            None => state.note(node, Kind::Fault, format_args!("is stopped for good")),
        }
        state.stopped.push(node);
        let Some(nanos) = nanos else { return };
        self.sleep(nanos);
        let state = self.state();
        state.stopped.retain(|stopped| *stopped != node);
        state.note(node, Kind::Fault, format_args!("goes on"));
    }
}

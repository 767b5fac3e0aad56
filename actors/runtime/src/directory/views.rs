//! The names and groups that a process below the head knows.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::wire::{Key, Member, MemberId, Members};

/// How many keys a process watches that nothing holds.
const MOST_IDLE: usize = 1024;

/// The keys that this process has asked for. The head tells it their changes. It has no links.
#[derive(Debug, Default)]
pub(super) struct Views {
    views: HashMap<Key, View>,
    /// The keys that nothing holds, in the order in which they were asked for. Some are held again.
    idle: VecDeque<Key>,
}

#[derive(Debug, Default)]
struct View {
    /// `None` until the head has answered.
    members: Option<Members>,
    holders: usize,
}

impl Views {
    /// Returns the members of a key, as far as this process knows them.
    pub(super) fn members(&self, key: &Key) -> Option<Members> {
        self.views.get(key).and_then(|view| view.members.clone())
    }

    /// Notes that the head is asked for a key. Returns a key that is to be watched no more.
    pub(super) fn ask(&mut self, key: &Key) -> Option<Key> {
        if !self.views.contains_key(key) {
            self.views.insert(key.clone(), View::default());
            self.idle.push_back(key.clone());
        }
        self.evict()
    }

    /// Keeps a key watched until it is released as often as it was held.
    pub(super) fn hold(&mut self, key: &Key) {
        self.views.entry(key.clone()).or_default().holders += 1;
    }

    /// Ends what [`hold`](Views::hold) began. Returns a key that is to be watched no more.
    pub(super) fn release(&mut self, key: &Key) -> Option<Key> {
        let view = self.views.get_mut(key)?;
        view.holders -= 1;
        if view.holders == 0 {
            self.idle.push_back(key.clone());
        }
        self.evict()
    }

    fn evict(&mut self) -> Option<Key> {
        while self.idle.len() > MOST_IDLE {
            let key = self.idle.pop_front()?;
            if self.views.get(&key).is_some_and(|view| view.holders == 0) {
                self.views.remove(&key);
                return Some(key);
            }
        }
        None
    }

    /// Takes the answer of the head.
    pub(super) fn answered(&mut self, key: &Key, members: Members) {
        if let Some(view) = self.views.get_mut(key) {
            view.members = Some(members);
        }
    }

    /// Takes a change that the head tells. One before the answer is in the answer, too.
    pub(super) fn entered(&mut self, key: &Key, member: Member) {
        let view = self.views.get_mut(key).and_then(|view| view.members.as_mut());
        let Some(members) = view.map(Arc::make_mut) else { return };
        let member = Arc::new(member);
        match members.iter_mut().find(|known| known.id == member.id) {
            Some(known) => *known = member,
            None => members.push(member),
        }
    }

    /// Takes a change that the head tells.
    pub(super) fn left(&mut self, key: &Key, id: MemberId) {
        let view = self.views.get_mut(key).and_then(|view| view.members.as_mut());
        if let Some(members) = view.map(Arc::make_mut) {
            members.retain(|member| member.id != id);
        }
    }

    /// Forgets everything, because the head can't tell the changes: its link is lost.
    pub(super) fn lost(&mut self) {
        self.idle.clear();
        self.views.retain(|_, view| view.holders > 0);
        self.views.values_mut().for_each(|view| view.members = None);
    }
}

#[cfg(test)]
mod tests {
    use fiber_core::ProcessId;

    use super::*;
    use crate::directory::{Decoded, Kind};
    use crate::mesh::ActorId;

    fn key(name: &str) -> Key {
        Key { kind: Kind::Group, name: name.into() }
    }

    fn member(actor: u64) -> Member {
        let id = MemberId { home: ProcessId(1), actor: ActorId(actor) };
        let decoded = Decoded::default();
        Member { id, address: vec![], actor_type: None, messages: vec![], decoded }
    }

    fn ids(views: &Views, name: &str) -> Option<Vec<u64>> {
        let members = views.members(&key(name))?;
        Some(members.iter().map(|member| member.id.actor.0).collect())
    }

    #[test]
    fn changes_before_the_answer_do_not_count() {
        let mut views = Views::default();
        views.ask(&key("a"));
        views.entered(&key("a"), member(1));
        assert_eq!(ids(&views, "a"), None);
        views.answered(&key("a"), Arc::new(vec![Arc::new(member(1)), Arc::new(member(2))]));
        views.entered(&key("a"), member(3));
        views.entered(&key("a"), member(1));
        views.left(&key("a"), member(2).id);
        views.entered(&key("b"), member(1));
        assert_eq!((ids(&views, "a"), ids(&views, "b")), (Some(vec![1, 3]), None));
        views.lost();
        assert_eq!(ids(&views, "a"), None);
    }

    #[test]
    fn the_oldest_key_that_nothing_holds_is_forgotten() {
        let mut views = Views::default();
        views.hold(&key("held"));
        views.ask(&key("held"));
        views.ask(&key("first"));
        let others = |views: &mut Views, from: usize, to: usize| {
            (from..to).filter_map(|at| views.ask(&key(&at.to_string()))).collect::<Vec<_>>()
        };
        assert_eq!(others(&mut views, 1, MOST_IDLE), []);
        assert_eq!(others(&mut views, MOST_IDLE, MOST_IDLE + 2), [key("first"), key("1")]);
        assert_eq!(views.release(&key("held")), Some(key("2")));
        assert_eq!(views.views.len(), MOST_IDLE);
    }
}

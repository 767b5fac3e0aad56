//! The head's table of names and groups. It has neither links nor a clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::wire::{Key, Kind, Member, MemberId, Members, Refusal};
use crate::mesh::PeerId;

/// The holders of names, the members of groups, and the processes that want to know.
#[derive(Debug, Default)]
pub(super) struct Table {
    listings: BTreeMap<Key, Listing>,
    /// How many seats there are.
    max_seats: u64,
    /// The members that each process has entered, and the keys that it watches.
    peers: HashMap<PeerId, OfPeer>,
}

/// The members of a key, and who wants to know its changes.
#[derive(Debug, Default)]
struct Listing {
    /// In the order in which they entered.
    members: Members,
    /// The processes that have entered them, in the same order.
    entered_by: Vec<PeerId>,
    watchers: BTreeSet<PeerId>,
}

#[derive(Debug, Default)]
struct OfPeer {
    entered: BTreeSet<(Key, MemberId)>,
    watched: BTreeSet<Key>,
}

/// A change, and who wants to know it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) key: Key,
    pub(super) event: Event,
    pub(super) watchers: Vec<PeerId>,
}

/// The event of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Entered(Arc<Member>),
    Left(MemberId),
}

impl Table {
    pub(super) fn new(max_seats: u64) -> Table {
        Table { max_seats, ..Table::default() }
    }

    /// Enters a member for a process.
    pub(super) fn enter(
        &mut self,
        peer: PeerId,
        key: Key,
        member: Member,
    ) -> Result<Change, Refusal> {
        let listing = self.listings.entry(key.clone()).or_default();
        if let Err(refusal) = listing.admits(key.kind, &member, self.max_seats) {
            self.forget_if_empty(&key);
            return Err(refusal);
        }
        let id = member.id;
        let members = Arc::make_mut(&mut listing.members);
        let (entered, earlier) = match members.iter().position(|known| known.id == id) {
            Some(at) => {
                let mut merged = Member::clone(&members[at]);
                merged.merge(member);
                members[at] = Arc::new(merged);
                let earlier = std::mem::replace(&mut listing.entered_by[at], peer);
                (Arc::clone(&members[at]), Some(earlier))
            }
            None => {
                let member = Arc::new(member);
                members.push(Arc::clone(&member));
                listing.entered_by.push(peer);
                (member, None)
            }
        };
        let watchers = listing.watchers.iter().copied().collect();
        let place = (key.clone(), id);
        // Its process has come by another link before the loss of the earlier one is known.
        if let Some(earlier) = earlier.filter(|earlier| *earlier != peer) {
            self.change_peer(earlier, |of_peer| of_peer.entered.remove(&place));
        }
        self.peers.entry(peer).or_default().entered.insert(place);
        Ok(Change { key, event: Event::Entered(entered), watchers })
    }

    /// Lets a member leave. Returns the change, if it was one.
    pub(super) fn leave(&mut self, key: Key, id: MemberId) -> Option<Change> {
        let listing = self.listings.get_mut(&key)?;
        let at = listing.members.iter().position(|member| member.id == id)?;
        Arc::make_mut(&mut listing.members).remove(at);
        let peer = listing.entered_by.remove(at);
        let watchers = listing.watchers.iter().copied().collect();
        self.forget_if_empty(&key);
        self.change_peer(peer, |of_peer| of_peer.entered.remove(&(key.clone(), id)));
        Some(Change { key, event: Event::Left(id), watchers })
    }

    /// Has a process told of each change of a key. Returns the members.
    pub(super) fn watch(&mut self, peer: PeerId, key: Key) -> Members {
        let listing = self.listings.entry(key.clone()).or_default();
        listing.watchers.insert(peer);
        let members = Arc::clone(&listing.members);
        self.peers.entry(peer).or_default().watched.insert(key);
        members
    }

    /// Ends what [`watch`](Table::watch) began.
    pub(super) fn unwatch(&mut self, peer: PeerId, key: &Key) {
        if let Some(listing) = self.listings.get_mut(key) {
            listing.watchers.remove(&peer);
        }
        self.forget_if_empty(key);
        self.change_peer(peer, |of_peer| of_peer.watched.remove(key));
    }

    /// Handles the loss of a process: what it has entered leaves.
    pub(super) fn lost(&mut self, peer: PeerId) -> Vec<Change> {
        let Some(OfPeer { entered, watched }) = self.peers.remove(&peer) else {
            return Vec::new();
        };
        watched.iter().for_each(|key| self.unwatch(peer, key));
        entered.into_iter().filter_map(|(key, id)| self.leave(key, id)).collect()
    }

    /// Returns the members of a key.
    pub(super) fn members(&self, key: &Key) -> Members {
        self.listings.get(key).map(|listing| Arc::clone(&listing.members)).unwrap_or_default()
    }

    /// Returns the keys of this kind that have members, in the order of their names.
    pub(super) fn list(&self, kind: Kind) -> Vec<(Key, Members)> {
        let of_kind = self
            .listings
            .iter()
            .filter(|(key, listing)| key.kind == kind && !listing.members.is_empty());
        of_kind.map(|(key, listing)| (key.clone(), Arc::clone(&listing.members))).collect()
    }

    fn forget_if_empty(&mut self, key: &Key) {
        let is_empty =
            |listing: &Listing| listing.members.is_empty() && listing.watchers.is_empty();
        if self.listings.get(key).is_some_and(is_empty) {
            self.listings.remove(key);
        }
    }

    fn change_peer(&mut self, peer: PeerId, change: impl FnOnce(&mut OfPeer) -> bool) {
        if let Some(of_peer) = self.peers.get_mut(&peer) {
            change(of_peer);
            if of_peer.entered.is_empty() && of_peer.watched.is_empty() {
                self.peers.remove(&peer);
            }
        }
    }
}

impl Listing {
    /// Returns whether a member may enter.
    fn admits(&self, kind: Kind, new: &Member, max_seats: u64) -> Result<(), Refusal> {
        let is_new = || self.members.iter().all(|member| member.id != new.id);
        match (kind, self.members.first()) {
            (Kind::Name, Some(first)) if first.id != new.id => {
                Err(Refusal::Taken { holder: first.description(), process: first.id.home })
            }
            (Kind::Group, Some(first)) if !first.gets_a_message_of(new) => {
                Err(Refusal::OtherMessage(first.description()))
            }
            (Kind::Seat, _) if self.members.len() as u64 >= max_seats && is_new() => {
                Err(Refusal::Full(max_seats))
            }
            (Kind::Name | Kind::Group | Kind::Seat, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use fiber_core::ProcessId;
    use fiber_values::entry::EntryRef;

    use super::*;
    use crate::directory::Decoded;
    use crate::mesh::ActorId;

    const HERE: PeerId = PeerId::LOCAL;
    const THERE: PeerId = PeerId::OTHER;

    impl Table {
        /// Returns whether the table lists nothing and has no peer.
        fn is_empty(&self) -> bool {
            self.listings.is_empty() && self.peers.is_empty()
        }
    }

    fn name(name: &str) -> Key {
        Key { kind: Kind::Name, name: name.into() }
    }

    fn group(name: &str) -> Key {
        Key { kind: Kind::Group, name: name.into() }
    }

    fn member(actor: u64, message: &str) -> Member {
        Member {
            id: MemberId { home: ProcessId(1), actor: ActorId(actor) },
            address: vec![actor as u8],
            actor_type: None,
            messages: vec![(message.into(), EntryRef { offset: actor, name: 0 })],
            decoded: Decoded::default(),
        }
    }

    fn ids(table: &Table, key: &Key) -> Vec<u64> {
        table.members(key).iter().map(|member| member.id.actor.0).collect()
    }

    #[test]
    fn a_name_has_one_holder() {
        let mut table = Table::default();
        table.enter(HERE, name("a"), member(1, "Add")).unwrap();
        let taken = table.enter(THERE, name("a"), member(2, "Add")).unwrap_err();
        let process = member(1, "").id.home;
        assert_eq!(taken, Refusal::Taken { holder: "Add".into(), process });
        // The holder itself may say more.
        table.enter(HERE, name("a"), member(1, "Remove")).unwrap();
        assert_eq!(table.members(&name("a"))[0].description(), "Add, Remove");
        assert!(table.leave(name("a"), member(2, "").id).is_none());
        assert!(table.leave(name("a"), member(1, "").id).is_some());
        table.enter(THERE, name("a"), member(2, "Add")).unwrap();
        assert_eq!(ids(&table, &name("a")), [2]);
    }

    #[test]
    fn members_of_a_group_get_one_type_of_message_and_are_in_order() {
        let mut table = Table::default();
        for actor in [3, 1, 2, 1] {
            table.enter(HERE, group("a"), member(actor, "Add")).unwrap();
        }
        assert_eq!(ids(&table, &group("a")), [3, 1, 2]);
        let refused = table.enter(HERE, group("a"), member(4, "Remove")).unwrap_err();
        assert_eq!(refused, Refusal::OtherMessage("Add".into()));
        // A name of the same text is something else.
        table.enter(HERE, name("a"), member(4, "Remove")).unwrap();
    }

    #[test]
    fn a_lost_process_takes_what_it_has_entered_with_it_and_others_hear_of_it() {
        let mut table = Table::default();
        assert!(table.watch(HERE, group("a")).is_empty());
        table.watch(THERE, group("a"));
        let change = table.enter(THERE, group("a"), member(1, "Add")).unwrap();
        assert_eq!(change.watchers, [HERE, THERE]);
        table.enter(HERE, group("a"), member(2, "Add")).unwrap();
        table.enter(THERE, name("b"), member(1, "Add")).unwrap();
        let changes = table.lost(THERE);
        let id = member(1, "").id;
        let left = |key, watchers| Change { key, event: Event::Left(id), watchers };
        assert_eq!(changes, [left(name("b"), vec![]), left(group("a"), vec![HERE])]);
        assert_eq!(ids(&table, &group("a")), [2]);
        assert_eq!(table.lost(THERE), []);
        table.leave(group("a"), member(2, "").id);
        table.unwatch(HERE, &group("a"));
        assert!(table.is_empty());
    }

    #[test]
    fn seats_are_limited_and_come_back_with_the_end_of_their_process() {
        let seat = || Key { kind: Kind::Seat, name: "".into() };
        let mut table = Table::new(2);
        table.enter(HERE, seat(), member(1, "")).unwrap();
        table.enter(THERE, seat(), member(2, "")).unwrap();
        assert_eq!(table.enter(HERE, seat(), member(3, "")).unwrap_err(), Refusal::Full(2));
        // After the loss of a link, before the head knows of it.
        table.enter(HERE, seat(), member(2, "")).unwrap();
        assert_eq!(table.lost(THERE), []);
        assert!(table.leave(seat(), member(1, "").id).is_some());
        table.enter(THERE, seat(), member(3, "")).unwrap();
        assert_eq!(table.lost(HERE).len(), 1);
        assert_eq!(ids(&table, &seat()), [3]);
        table.lost(THERE);
        assert!(table.is_empty());
        table.max_seats = 0;
        assert_eq!(table.enter(HERE, seat(), member(1, "")).unwrap_err(), Refusal::Full(0));
        assert!(table.is_empty());
    }

    #[test]
    fn a_member_that_has_come_by_a_later_link_survives_the_loss_of_the_earlier_one() {
        let mut table = Table::default();
        table.enter(THERE, name("a"), member(1, "Add")).unwrap();
        table.enter(HERE, name("a"), member(1, "Add")).unwrap();
        assert_eq!(table.lost(THERE), []);
        assert_eq!(ids(&table, &name("a")), [1]);
    }
}

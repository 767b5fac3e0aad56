//! The decisions of a topic: which subscription gets a message, and which publisher waits. It has
//! neither links nor a clock.
//!
//! All subscriptions get messages in the same order: a message for which one that waits has no room
//! holds up those behind it.

use std::collections::{BTreeMap, VecDeque};

use fiber_transport::Received;

use super::wire::{Read, Retention, Subscribe, WhenFull};
use crate::mesh::{PeerId, PortId};

/// A client: its process, and the port of that process to which messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ClientId {
    pub(super) peer: PeerId,
    pub(super) port: PortId,
}

/// Takes what a topic has to say. Each call is at once, in the order of the calls.
pub(super) trait Outlet<P> {
    /// Sends a message to subscriptions of a client: to these, or to all.
    fn deliver(&mut self, client: ClientId, to: Option<&[u64]>, message: &Received);

    /// Tells a subscription that it misses so many messages before the next one.
    fn missed(&mut self, client: ClientId, subscription: u64, count: u64);

    /// Tells a subscription that it has ended.
    fn too_slow(&mut self, client: ClientId, subscription: u64);

    /// Tells a publisher that all that wait have room for its message.
    fn admitted(&mut self, publisher: P);
}

/// A topic. `P` stands for a publisher that waits.
#[derive(Debug)]
pub(super) struct Machine<P> {
    /// The clients, each with its subscriptions in the order of their numbers.
    clients: BTreeMap<ClientId, Vec<Subscription>>,
    /// How many subscriptions that publishers wait for have no room.
    full: usize,
    waiting: VecDeque<Publication<P>>,
    retained: Option<Received>,
    /// Memory for the subscriptions that get a message.
    getting: Vec<u64>,
}

#[derive(Debug)]
struct Publication<P> {
    message: Received,
    retention: Retention,
    publisher: P,
}

#[derive(Debug)]
struct Subscription {
    id: u64,
    when_full: WhenFull,
    window: u32,
    window_bytes: u64,
    /// The messages that it was sent and has not read.
    unread: u32,
    unread_bytes: u64,
    /// The newest messages for which it has no room, and how many it misses before them.
    kept: VecDeque<Received>,
    kept_bytes: u64,
    missed: u64,
}

/// The fate of a message for one subscription.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Sent,
    Kept,
    TooSlow,
}

impl Subscription {
    fn has_room(&self) -> bool {
        self.unread < self.window && self.unread_bytes < self.window_bytes
    }

    fn holds_up(&self) -> bool {
        self.when_full == WhenFull::Wait && !self.has_room()
    }

    fn note_sent(&mut self, message: &Received) {
        self.unread += 1;
        self.unread_bytes += size(message);
    }

    fn take(&mut self, message: &Received) -> Outcome {
        if self.has_room() {
            self.note_sent(message);
            return Outcome::Sent;
        }
        let WhenFull::KeepNewest(most) = self.when_full else { return Outcome::TooSlow };
        self.kept.push_back(message.clone());
        self.kept_bytes += size(message);
        while self.kept.len() > most as usize
            || (self.kept.len() > 1 && self.kept_bytes > self.window_bytes)
        {
            self.take_kept();
            self.missed += 1;
        }
        Outcome::Kept
    }

    fn take_kept(&mut self) -> Option<Received> {
        let message = self.kept.pop_front()?;
        self.kept_bytes -= size(&message);
        Some(message)
    }
}

/// Returns the length of a message in bytes, with its blobs.
pub fn size(message: &Received) -> u64 {
    (message.bytes.len() + message.blobs.total_len()) as u64
}

impl<P> Default for Machine<P> {
    fn default() -> Machine<P> {
        Machine {
            clients: BTreeMap::new(),
            full: 0,
            waiting: VecDeque::new(),
            retained: None,
            getting: Vec::new(),
        }
    }
}

impl<P> Machine<P> {
    /// Publishes a message: at once, or when those that wait have room.
    pub(super) fn publish(
        &mut self,
        message: Received,
        retention: Retention,
        publisher: P,
        out: &mut impl Outlet<P>,
    ) {
        self.waiting.push_back(Publication { message, retention, publisher });
        self.admit(out);
    }

    /// Publishes what waits, as long as there is room.
    fn admit(&mut self, out: &mut impl Outlet<P>) {
        while self.full == 0
            && let Some(Publication { message, retention, publisher }) = self.waiting.pop_front()
        {
            match retention {
                Retention::Clear => self.retained = None,
                Retention::None => self.send(&message, out),
                Retention::Message => {
                    self.send(&message, out);
                    self.retained = Some(message.unshared());
                }
            }
            out.admitted(publisher);
        }
    }

    /// Sends a message to all subscriptions, one frame to each client.
    fn send(&mut self, message: &Received, out: &mut impl Outlet<P>) {
        for (client, subscriptions) in &mut self.clients {
            self.getting.clear();
            let mut ended = false;
            for subscription in subscriptions.iter_mut() {
                match subscription.take(message) {
                    Outcome::Sent => {
                        self.getting.push(subscription.id);
                        self.full += usize::from(subscription.holds_up());
                    }
                    Outcome::Kept => {}
                    Outcome::TooSlow => {
                        out.too_slow(*client, subscription.id);
                        // It gets nothing more.
                        subscription.window = 0;
                        ended = true;
                    }
                }
            }
            if ended {
                subscriptions.retain(|subscription| subscription.window > 0);
            }
            if !self.getting.is_empty() {
                let are_all = self.getting.len() == subscriptions.len();
                out.deliver(*client, (!are_all).then_some(&*self.getting), message);
            }
        }
    }

    /// Adds a client without subscriptions.
    pub(super) fn open(&mut self, client: ClientId) {
        self.clients.entry(client).or_default();
    }

    /// Adds a subscription, which gets the retained message.
    pub(super) fn subscribe(
        &mut self,
        client: ClientId,
        subscribe: &Subscribe,
        out: &mut impl Outlet<P>,
    ) {
        let Some(subscriptions) = self.clients.get_mut(&client) else { return };
        let &Subscribe { id, when_full, window, window_bytes } = subscribe;
        let mut new = Subscription {
            id,
            when_full,
            window: window.max(1),
            window_bytes: window_bytes.max(1),
            unread: 0,
            unread_bytes: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            missed: 0,
        };
        if let Some(retained) = &self.retained {
            new.note_sent(retained);
            out.deliver(client, Some(&[id]), retained);
        }
        self.full += usize::from(new.holds_up());
        let at = subscriptions.partition_point(|other| other.id < id);
        subscriptions.insert(at, new);
    }

    /// Removes a subscription.
    pub(super) fn unsubscribe(&mut self, client: ClientId, id: u64, out: &mut impl Outlet<P>) {
        let Some(subscriptions) = self.clients.get_mut(&client) else { return };
        if let Ok(at) = subscriptions.binary_search_by_key(&id, |subscription| subscription.id) {
            let removed = subscriptions.remove(at);
            self.full -= usize::from(removed.holds_up());
            self.admit(out);
        }
    }

    /// Notes what subscriptions have read, and sends what was kept for them.
    pub(super) fn read(
        &mut self,
        client: ClientId,
        reads: impl Iterator<Item = Read>,
        out: &mut impl Outlet<P>,
    ) {
        let Some(subscriptions) = self.clients.get_mut(&client) else { return };
        for Read { subscription: id, messages, bytes } in reads {
            let Ok(at) = subscriptions.binary_search_by_key(&id, |other| other.id) else {
                continue;
            };
            let subscription = &mut subscriptions[at];
            let held_up = subscription.holds_up();
            subscription.unread = subscription.unread.saturating_sub(messages);
            subscription.unread_bytes = subscription.unread_bytes.saturating_sub(bytes);
            if held_up && !subscription.holds_up() {
                self.full -= 1;
            }
            while subscription.has_room()
                && let Some(message) = subscription.take_kept()
            {
                match std::mem::take(&mut subscription.missed) {
                    0 => {}
                    missed => out.missed(client, id, missed),
                }
                subscription.note_sent(&message);
                out.deliver(client, Some(&[id]), &message);
            }
        }
        self.admit(out);
    }

    /// Removes a client with its subscriptions. What it has published stays.
    pub(super) fn close(&mut self, client: ClientId, out: &mut impl Outlet<P>) {
        if let Some(subscriptions) = self.clients.remove(&client) {
            self.full -= subscriptions.iter().filter(|removed| removed.holds_up()).count();
            self.admit(out);
        }
    }

    /// Returns the clients.
    pub(super) fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.clients.keys().copied()
    }

    /// Returns how many subscriptions there are.
    pub(super) fn subscriptions(&self) -> usize {
        self.clients.values().map(Vec::len).sum()
    }

    /// Returns whether nothing is lost if the topic is forgotten.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.retained.is_none() && self.waiting.is_empty()
    }
}

//! The directory of the head, which decides, and tells the other processes what they want to know.

use std::collections::HashMap;
use std::sync::Arc;

use fiber_transport::Link;
use fiber_values::blob::Blobs;
use fiber_values::codec;
use parking_lot::Mutex;

use super::seats;
use super::table::{Change, Event, Table};
use super::wire::{Key, Kind, Member, MemberId, Members, Message, Refusal};
use crate::mesh::{PeerId, PortId, Request, push, push_head};

/// The table of the session, and the links of the processes that watch keys.
pub(super) struct Head(Mutex<State>);

#[derive(Default)]
struct State {
    table: Table,
    links: HashMap<PeerId, Arc<dyn Link>>,
    /// Whether the program has said that all seats are taken.
    has_warned: bool,
}

impl Head {
    pub(super) fn new(max_seats: u64) -> Head {
        Head(Mutex::new(State { table: Table::new(max_seats), ..State::default() }))
    }

    pub(super) fn enter(&self, key: Key, member: Member) -> Result<(), Refusal> {
        self.0.lock().enter(PeerId::LOCAL, key, member)
    }

    pub(super) fn leave(&self, key: Key, id: MemberId) {
        self.0.lock().leave(key, id);
    }

    pub(super) fn members(&self, key: &Key) -> Members {
        self.0.lock().table.members(key)
    }

    pub(super) fn list(&self, kind: Kind) -> Vec<(Key, Members)> {
        self.0.lock().table.list(kind)
    }

    /// Handles a request of another process. It is answered before anything later is told to that
    /// process, and while no change can happen in between.
    pub(super) fn receive(&self, message: Message, request: Request) {
        let Request { requester, link, .. } = request;
        let peer = requester.peer;
        let mut state = self.0.lock();
        match message {
            Message::Enter(key, member) => {
                let entered = state.enter(peer, key, member);
                if let Err(Refusal::Full(max_seats)) = entered
                    && !std::mem::replace(&mut state.has_warned, true)
                {
                    seats::warn(max_seats);
                }
                requester.answer(&entered);
            }
            Message::Leave(key, id) => {
                state.leave(key, id);
                requester.answer(&());
            }
            Message::Watch(key) => {
                state.links.extend(link.map(|link| (peer, link)));
                requester.answer(&*state.table.watch(peer, key));
            }
            Message::Unwatch(key) => state.table.unwatch(peer, &key),
            Message::List(kind) => requester.answer(&state.table.list(kind)),
            Message::EnterHere(..)
            | Message::LeaveHere(..)
            | Message::Entered(..)
            | Message::Left(..) => {
                tracing::error!("a message to a process below came to the head: it was ignored");
            }
        }
    }

    pub(super) fn lost(&self, peer: PeerId) {
        let mut state = self.0.lock();
        state.links.remove(&peer);
        let changes = state.table.lost(peer);
        changes.into_iter().for_each(|change| state.tell(change));
    }
}

impl State {
    fn enter(&mut self, peer: PeerId, key: Key, member: Member) -> Result<(), Refusal> {
        let change = self.table.enter(peer, key, member)?;
        self.tell(change);
        Ok(())
    }

    fn leave(&mut self, key: Key, id: MemberId) {
        if let Some(change) = self.table.leave(key, id) {
            self.tell(change);
        }
    }

    /// Tells a change to the processes that want to know it.
    fn tell(&self, Change { key, event, watchers }: Change) {
        if watchers.is_empty() {
            return;
        }
        let message = match event {
            Event::Entered(member) => Message::Entered(key, Member::clone(&member)),
            Event::Left(id) => Message::Left(key, id),
        };
        let mut frame = push_head(PortId::DIRECTORY);
        codec::append(&mut frame, &message).expect("members can be serialized");
        for link in watchers.iter().filter_map(|peer| self.links.get(peer)) {
            push(link, frame.clone(), Default::default(), Blobs::default());
        }
    }
}

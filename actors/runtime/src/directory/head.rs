//! The directory of the head, which decides, and tells the other processes what they want to know.

use std::collections::HashMap;
use std::sync::Arc;

use fiber_transport::Link;
use fiber_values::blob::Blobs;
use fiber_values::codec;

use super::seats;
use super::table::{Change, Event, Table};
use super::wire::{Key, Member, MemberId, Message, Refusal};
use crate::mesh::{PeerId, PortId, Request, port_head, push};

/// The table of the session, and the links of the processes that watch keys.
#[derive(Default)]
pub(super) struct Head {
    pub(super) table: Table,
    links: HashMap<PeerId, Arc<dyn Link>>,
    /// Whether the program has said that all seats are taken.
    has_warned: bool,
}

impl Head {
    pub(super) fn new(max_seats: u64) -> Head {
        Head { table: Table::new(max_seats), ..Head::default() }
    }

    /// Handles a request of another process. It is answered before anything later is told to that
    /// process, and while no change can happen in between.
    pub(super) fn receive(&mut self, message: Message, request: Request) {
        let Request { requester, link, .. } = request;
        let peer = requester.peer;
        match message {
            Message::Enter(key, member) => {
                let entered = self.enter(peer, key, member);
                if let Err(Refusal::Full(max_seats)) = entered
                    && !std::mem::replace(&mut self.has_warned, true)
                {
                    fiber_backends::warn(&seats::all_taken(max_seats));
                }
                requester.answer(&entered);
            }
            Message::Leave(key, id) => {
                self.leave(key, id);
                requester.answer(&());
            }
            Message::Watch(key) => {
                self.links.extend(link.map(|link| (peer, link)));
                requester.answer(&*self.table.watch(peer, key));
            }
            Message::Unwatch(key) => self.table.unwatch(peer, &key),
            Message::List(kind) => requester.answer(&self.table.list(kind)),
            Message::EnterHere(..)
            | Message::LeaveHere(..)
            | Message::Entered(..)
            | Message::Left(..) => {
                tracing::error!("a message to a process below came to the head: it was ignored");
            }
        }
    }

    pub(super) fn lost(&mut self, peer: PeerId) {
        self.links.remove(&peer);
        let changes = self.table.lost(peer);
        changes.into_iter().for_each(|change| self.tell(change));
    }

    pub(super) fn enter(&mut self, peer: PeerId, key: Key, member: Member) -> Result<(), Refusal> {
        let change = self.table.enter(peer, key, member)?;
        self.tell(change);
        Ok(())
    }

    pub(super) fn leave(&mut self, key: Key, id: MemberId) {
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
        let mut frame = port_head(PortId::DIRECTORY);
        codec::append(&mut frame, &message).expect("members can be serialized");
        for link in watchers.iter().filter_map(|peer| self.links.get(peer)) {
            push(link, frame.clone(), Default::default(), Blobs::default());
        }
    }
}

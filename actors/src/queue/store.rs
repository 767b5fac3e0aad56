//! A queue where it lives: what is in it, and who gets it.
//!
//! QueueStream go to those who wait in the order in which they began to. Beyond what it waits for, a
//! process is *lent* elements that nobody waits for, so that it need not ask for each. It says how
//! many it has used; the rest is taken back when somebody else waits in vain, and when that process
//! dies.
//!
//! Nobody is sent an element after a later one: who stops at a later one, as at a sentinel, would
//! leave it unused, and everybody else may have stopped by then too. So a process is given
//! something only when it waits for more than is on its way to it, and what came back goes only to
//! who waits: who does not may have stopped.

mod claims;
mod clients;
mod deliveries;
mod demands;
mod outstanding;
mod unfinished;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use fiber_core::{FailureKind, codec};
use fiber_transport::Link;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use self::claims::Claims;
use self::clients::Clients;
use self::deliveries::Deliveries;
use self::demands::{Demand, Demands};
use self::unfinished::Unfinished;
use super::blocks::{Block, Blocks, Encoded};
use super::wire::{ADMITTED, ASK, Ask, Closing, PUT, Role, WANT, read_block};
use crate::mesh::{PeerId, Port, PortId, Request, Requester};
use crate::objects::Ticket;
use crate::runtime::Runtime;

/// How much a queue holds before who puts has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capacity {
    Unbounded,
    QueueStream(usize),
    Bytes(usize),
}

/// A queue of this process.
pub(super) struct Store {
    pub(super) port: PortId,
    state: Mutex<State>,
}

pub(super) struct State {
    capacity: Capacity,
    ready: Blocks,
    /// What finds no room yet.
    blocked: VecDeque<Blocked>,
    demands: Demands,
    clients: Clients,
    deliveries: Deliveries,
    unfinished: Unfinished,
    closing: Option<Closing>,
    claims: Claims,
}

/// QueueStream that somebody waits to put in.
struct Blocked {
    /// `None` for what was sent through a pipe: who sent it does not wait until it is in.
    ticket: Option<Ticket>,
    block: Block,
    requester: Requester,
}

impl Store {
    pub(super) fn new(port: PortId, capacity: Capacity) -> Store {
        let state = State {
            capacity,
            ready: Blocks::default(),
            blocked: VecDeque::new(),
            demands: Demands::default(),
            clients: Clients::default(),
            deliveries: Deliveries::default(),
            unfinished: Unfinished::default(),
            closing: None,
            claims: Claims::default(),
        };
        Store { port, state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(runtime) = Runtime::current() {
            runtime.registry().ports().close(self.port);
        }
    }
}

impl Port for Store {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn receive(&self, request: Request) {
        let Request { mut body, requester, link } = request;
        let mut state = self.state.lock();
        match (!body.is_empty()).then(|| body.get_u8()) {
            Some(PUT) => match read_block(body) {
                Some(block) => state.put(None, block, requester),
                None => requester.fail(FailureKind::Arguments, &"it is no block of elements"),
            },
            Some(WANT) if body.len() >= 16 => {
                let (demand, extra, used) =
                    (body.get_u32_le(), body.get_u32_le(), body.get_u64_le());
                state.want(requester.peer, demand, extra as usize, used);
            }
            Some(ASK) => match codec::decode(&body) {
                Ok(ask) => state.ask(ask, requester, link),
                Err(error) => requester.fail(FailureKind::Arguments, &error),
            },
            _ => requester.fail(FailureKind::Arguments, &"it is nothing that a queue understands"),
        }
    }

    fn lost(&self, peer: PeerId) {
        self.state.lock().lost(peer);
    }
}

impl State {
    pub(super) fn closing(&self) -> Option<Closing> {
        self.closing
    }

    fn has_room(&self) -> bool {
        match self.capacity {
            Capacity::Unbounded => true,
            Capacity::QueueStream(most) => self.ready.len() + self.clients.lent() < most,
            Capacity::Bytes(most) => self.ready.bytes() < most,
        }
    }

    /// Puts an element of this process in, if there is room.
    pub(super) fn put_here(&mut self, element: Encoded) -> Result<(), Encoded> {
        if !self.blocked.is_empty() || !self.has_room() {
            return Err(element);
        }
        self.unfinished.add(1);
        self.ready.push(element);
        if !self.demands.is_empty() {
            self.distribute();
        }
        Ok(())
    }

    fn put(&mut self, ticket: Option<Ticket>, block: Block, requester: Requester) {
        if let Some(closing) = self.closing {
            return requester.answer_bytes(&[closing as u8]);
        }
        self.blocked.push_back(Blocked { ticket, block, requester });
        self.distribute();
    }

    /// An element for this process, or a promise of one; `None` when nothing will come any more.
    pub(super) fn get_here(&mut self) -> Option<Result<Bytes, oneshot::Receiver<Bytes>>> {
        // Who waits was first, but would have been given what is there.
        if let Some(element) = self.ready.pop() {
            if !self.blocked.is_empty() {
                self.distribute();
            }
            return Some(Ok(element));
        }
        if self.is_over() {
            return None;
        }
        let promise = self.demands.wait_here();
        self.distribute();
        Some(Err(promise))
    }

    /// An element that was given and is not wanted.
    pub(super) fn give_back(&mut self, element: &[u8]) {
        self.ready.put_back_first(element);
        self.distribute();
    }

    /// Somebody here does not wait any more.
    pub(super) fn forget_promises(&mut self) {
        self.demands.forget_promises();
    }

    fn want(&mut self, peer: PeerId, demand: u32, extra: usize, used: u64) {
        let Some(lacking) = self.clients.want(peer, demand as usize, used) else { return };
        self.demands.set(peer, lacking, extra);
        if lacking > 0 || !self.blocked.is_empty() {
            self.distribute();
        }
        if lacking == 0 && !self.ready.begins_with_returned() {
            self.lend(peer, extra);
        }
    }

    fn lend(&mut self, peer: PeerId, extra: usize) {
        if self.clients.lend(peer, extra, &mut self.ready) && !self.blocked.is_empty() {
            self.distribute();
        }
    }

    fn admit(&mut self, Blocked { block, requester, .. }: Blocked) {
        self.unfinished.add(block.count);
        self.ready.push_block(block);
        requester.answer_bytes(&[ADMITTED]);
    }

    /// Gives those who wait what is there, and lets in what waits for room.
    fn distribute(&mut self) {
        let mut served: Vec<(PeerId, usize, Vec<Block>)> = Vec::new();
        loop {
            while self.has_room()
                && let Some(blocked) = self.blocked.pop_front()
            {
                self.admit(blocked);
            }
            if self.demands.is_empty() {
                break;
            }
            let Some(block) = self.ready.pop_block() else { break };
            match self.demands.pop().expect("somebody waits") {
                Demand::Here(sender) => {
                    if sender.send(block.clone().into_element()).is_err() {
                        self.ready.put_back(block);
                    }
                }
                Demand::Client { peer, extra } => {
                    match served.iter_mut().find(|(other, ..)| *other == peer) {
                        Some((.., blocks)) => blocks.push(block),
                        None => served.push((peer, extra, vec![block])),
                    }
                }
                Demand::Taker { requester, .. } => {
                    let element = block.clone().into_element();
                    let delivery = self.deliveries.begin(requester.peer, block);
                    requester
                        .answer(&Ok::<_, Closing>((delivery, serde_bytes::Bytes::new(&element))));
                }
            }
        }
        // All are given what they wait for before any is lent more.
        for (peer, _, blocks) in &mut served {
            self.clients.give(*peer, std::mem::take(blocks));
        }
        served.into_iter().for_each(|(peer, extra, _)| self.lend(peer, extra));
        if !self.demands.is_empty() && self.ready.is_empty() {
            // Somebody waits in vain.
            self.clients.recall();
            self.end_if_over();
        }
    }

    fn is_over(&self) -> bool {
        self.closing.is_some()
            && self.ready.is_empty()
            && self.blocked.is_empty()
            && self.clients.lent() == 0
            && self.deliveries.is_empty()
    }

    /// Tells those who wait for more than will come.
    fn end_if_over(&mut self) {
        let Some(closing) = self.closing.filter(|_| self.is_over()) else { return };
        for demand in self.demands.take_all() {
            match demand {
                // Dropping the promise says it.
                Demand::Here(_) => {}
                Demand::Client { peer, .. } => self.clients.tell_ended(peer, closing),
                Demand::Taker { requester, .. } => {
                    requester.answer(&Err::<(u64, serde_bytes::ByteBuf), _>(closing));
                }
            }
        }
    }

    pub(super) fn close(&mut self, closing: Closing) {
        self.closing.get_or_insert(closing);
        for blocked in std::mem::take(&mut self.blocked) {
            blocked.requester.answer_bytes(&[closing as u8]);
        }
        self.distribute();
        self.end_if_over();
    }

    fn ask(&mut self, ask: Ask, requester: Requester, link: Option<Arc<dyn Link>>) {
        let peer = requester.peer;
        match ask {
            Ask::Attach { port } => {
                let Some(link) = link else { return };
                // The process had one before if that has failed, and so did not settle.
                self.demands.set(peer, 0, 0);
                self.clients.attach(port, link, requester, &mut self.ready);
            }
            Ask::Settle { used, demand } => {
                let lacking = self.clients.settle(peer, demand, used, &mut self.ready);
                requester.answer(&());
                if let Some(lacking) = lacking {
                    self.demands.set(peer, lacking, 0);
                }
                self.distribute();
                self.end_if_over();
            }
            Ask::GiveBack(element) => self.give_back(&element),
            Ask::Take { ticket } => {
                self.demands.wait_to_take(ticket, requester);
                self.distribute();
            }
            Ask::Untake { ticket } => self.demands.untake(peer, ticket),
            Ask::Acknowledge { delivery } => {
                if self.deliveries.end(delivery).is_some() {
                    self.unfinished.done(1);
                }
                requester.answer(&());
                self.end_if_over();
            }
            Ask::Return { delivery } => {
                if let Some(block) = self.deliveries.end(delivery) {
                    self.ready.put_back(block);
                    self.distribute();
                }
            }
            Ask::TryGet => {
                let element = self.ready.pop();
                requester.answer(&element.as_ref().map(|element| serde_bytes::Bytes::new(element)));
                self.distribute();
            }
            Ask::TryPut(element) => {
                let room = self.closing.is_none() && self.blocked.is_empty() && self.has_room();
                if room {
                    self.unfinished.add(1);
                    self.ready.push_block(Block::of(&element));
                    self.distribute();
                }
                requester.answer(&self.closing.map_or(Ok(room), Err));
            }
            Ask::PutOne { ticket, element } => {
                self.put(Some(ticket), Block::of(&element), requester)
            }
            Ask::Unput { ticket } => {
                let is_it = |blocked: &Blocked| {
                    blocked.ticket == Some(ticket) && blocked.requester.peer == peer
                };
                let place = self.blocked.iter().position(is_it);
                if let Some(place) = place {
                    self.blocked.remove(place);
                }
                requester.answer(&place.is_some());
            }
            Ask::Len => requester.answer(&(self.ready.len() + self.clients.lent())),
            Ask::TaskDone(count) => self.unfinished.done(count),
            Ask::Join { ticket } => self.unfinished.join(ticket, requester),
            Ask::Unjoin { ticket } => self.unfinished.unjoin(peer, ticket),
            Ask::Close => {
                self.close(Closing::Closed);
                requester.answer(&());
            }
            Ask::Claim { role, token } => self.claims.claim(role, peer, token),
            Ask::Unclaim { role } => {
                self.claims.unclaim(role, peer);
                self.end_if_unclaimed(role);
            }
            Ask::Travel { role, token } => self.travel(role, token),
            Ask::TravelNoMore { role, token } => self.travel_no_more(role, token),
        }
    }

    /// An end of this process is there, perhaps arrived again.
    pub(super) fn claim_here(&mut self, role: Role, token: Option<u64>) {
        self.claims.claim_here(role, token);
    }

    pub(super) fn unclaim_here(&mut self, role: Role) {
        self.claims.unclaim_here(role);
        self.end_if_unclaimed(role);
    }

    pub(super) fn travel(&mut self, role: Role, token: u64) {
        self.claims.travel(role, token);
    }

    pub(super) fn travel_no_more(&mut self, role: Role, token: u64) {
        if self.claims.travel_no_more(role, token) {
            self.end_if_unclaimed(role);
        }
    }

    fn end_if_unclaimed(&mut self, role: Role) {
        if !self.claims.are_gone(role) {
            return;
        }
        match role {
            Role::Reader => self.ready.clear(),
            // What was sent is still to be received, and no more will come than waits for room now.
            Role::Writer => std::mem::take(&mut self.blocked)
                .into_iter()
                .for_each(|blocked| self.admit(blocked)),
        }
        self.close(Closing::OtherEnd);
    }

    fn lost(&mut self, peer: PeerId) {
        // Who waited was not told that it is in the queue. What nobody waited for has been sent.
        self.blocked.retain(|blocked| blocked.ticket.is_none() || blocked.requester.peer != peer);
        self.demands.lost(peer);
        self.unfinished.lost(peer);
        self.clients.lost(peer, &mut self.ready);
        for block in self.deliveries.lost(peer) {
            self.ready.put_back(block);
        }
        for role in self.claims.lost(peer) {
            self.end_if_unclaimed(role);
        }
        self.distribute();
        self.end_if_over();
    }
}

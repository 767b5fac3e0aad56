//! A queue where it lives: what is in it, who waits, and what was lent to whom.
//!
//! Elements go to those who wait in the order in which they began to. Beyond what it waits for, a process is *lent*
//! elements that nobody waits for, so that it need not ask for each. It says how many it has used; the rest is taken back
//! when somebody else waits in vain, and when that process dies.
//!
//! Nobody is sent an element after a later one: who stops at a later one, as at a sentinel, would leave it unused, and
//! everybody else may have stopped by then too. So a process is given something only when it waits for more than is on
//! its way to it, and what came back goes only to who waits: who does not may have stopped.

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use fiber_core::{FailureKind, codec};
use fiber_transport::Link;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::blocks::{Block, Blocks, Encoded};
use super::wire::{ADMITTED, ASK, Ask, Closing, ENDED, GIVE, LEND, PUT, RECALL, Role, WANT, read_block};
use crate::node::Node;
use crate::remote::{Asker, Letter, PeerId, Port, PortId, push, push_head};
use crate::sync::{Key, Ticket};

/// The most that is lent at a time, unless one element is larger.
const LENT_BYTES: usize = 1 << 20;

/// How much a queue holds before who puts has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capacity {
    Unbounded,
    Elements(usize),
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
    waiting: VecDeque<Demand>,
    clients: HashMap<PeerId, Client>,
    /// Elements in all clients' hands that they may give back.
    lent: usize,
    /// Deliveries that are to be acknowledged.
    taken: HashMap<u64, (PeerId, Block)>,
    last_delivery: u64,
    unfinished: u64,
    joiners: Vec<(Ticket, Asker)>,
    closing: Option<Closing>,
    writers: Claims,
    readers: Claims,
}

struct Blocked {
    ticket: Option<Ticket>,
    block: Block,
    asker: Asker,
}

/// Somebody who waits for an element.
enum Demand {
    Here(oneshot::Sender<Bytes>),
    Client { peer: PeerId, extra: usize },
    Taker { ticket: Ticket, asker: Asker },
}

/// A process that gets from the queue or puts into it.
struct Client {
    port: PortId,
    link: Arc<dyn Link>,
    /// Told that the queue has ended, when it has.
    _attached: Asker,
    /// What it was sent and has not said that it used.
    sent: VecDeque<Sent>,
    /// How many of all that it was sent it has used, as far as `sent` knows.
    used: u64,
    /// How often it has settled.
    epoch: u32,
    recalled: bool,
    gets: bool,
    /// How many of those who wait are of this client.
    waiting: usize,
}

/// What a client was sent.
struct Sent {
    block: Block,
    /// It waited for this: then it is most likely used by now.
    given: bool,
}

/// Who holds one end of a pipe.
#[derive(Default)]
struct Claims {
    here: usize,
    elsewhere: HashMap<PeerId, usize>,
    /// Sent away, and not arrived.
    travelling: HashSet<u64>,
    /// Arrived before it was known that they had been sent.
    early: HashSet<u64>,
}

impl Claims {
    fn are_gone(&self) -> bool {
        self.here == 0 && self.elsewhere.is_empty() && self.travelling.is_empty()
    }
}

impl Store {
    pub(super) fn new(port: PortId, capacity: Capacity) -> Store {
        let state = State {
            capacity,
            ready: Blocks::default(),
            blocked: VecDeque::new(),
            waiting: VecDeque::new(),
            clients: HashMap::new(),
            lent: 0,
            taken: HashMap::new(),
            last_delivery: 0,
            unfinished: 0,
            joiners: Vec::new(),
            closing: None,
            writers: Claims::default(),
            readers: Claims::default(),
        };
        Store { port, state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(node) = Node::current() {
            node.mesh().ports().close(self.port);
        }
    }
}

impl Port for Store {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn receive(&self, letter: Letter) {
        let Letter { mut body, asker, link } = letter;
        let mut state = self.state.lock();
        match (!body.is_empty()).then(|| body.get_u8()) {
            Some(PUT) => match read_block(body) {
                Some(block) => state.put(None, block, asker),
                None => asker.fail(FailureKind::Arguments, &"it is no block of elements"),
            },
            Some(WANT) if body.len() >= 16 => {
                let (demand, extra, used) = (body.get_u32_le(), body.get_u32_le(), body.get_u64_le());
                state.want(asker.peer, demand, extra as usize, used);
            }
            Some(ASK) => match codec::decode(&body) {
                Ok(ask) => state.ask(ask, asker, link),
                Err(error) => asker.fail(FailureKind::Arguments, &error),
            },
            _ => asker.fail(FailureKind::Arguments, &"it is nothing that a queue understands"),
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
            Capacity::Elements(most) => self.ready.len() + self.lent < most,
            Capacity::Bytes(most) => self.ready.bytes() < most,
        }
    }

    /// Puts an element of this process in, if there is room.
    pub(super) fn put_here(&mut self, element: Encoded) -> Result<(), Encoded> {
        if !self.blocked.is_empty() || !self.has_room() {
            return Err(element);
        }
        self.unfinished += 1;
        self.ready.push(element);
        if !self.waiting.is_empty() {
            self.distribute();
        }
        Ok(())
    }

    fn put(&mut self, ticket: Option<Ticket>, block: Block, asker: Asker) {
        if let Some(closing) = self.closing {
            return asker.answer_bytes(&[closing as u8]);
        }
        self.blocked.push_back(Blocked { ticket, block, asker });
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
        let (sender, promise) = oneshot::channel();
        self.waiting.push_back(Demand::Here(sender));
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
        self.waiting.retain(|demand| !matches!(demand, Demand::Here(sender) if sender.is_closed()));
    }

    fn want(&mut self, peer: PeerId, demand: u32, extra: usize, used: u64) {
        let Some(client) = self.clients.get_mut(&peer) else { return };
        client.gets = true;
        self.used(peer, used);
        let waits = self.set_demand(peer, demand as usize, extra);
        if waits || !self.blocked.is_empty() {
            self.distribute();
        }
        if !waits && !self.ready.begins_with_returned() {
            self.lend(peer, extra);
        }
    }

    /// A client waits for so many, of which some may be on their way to it; says whether it waits for more than those.
    fn set_demand(&mut self, peer: PeerId, demand: usize, extra: usize) -> bool {
        let Some(client) = self.clients.get_mut(&peer) else { return false };
        let demand = client.sent.iter().fold(demand, |left, sent| left.saturating_sub(sent.block.count));
        for _ in client.waiting..demand {
            self.waiting.push_back(Demand::Client { peer, extra });
        }
        for _ in demand..client.waiting {
            let is_its = |waits: &Demand| matches!(waits, Demand::Client { peer: other, .. } if *other == peer);
            let last = self.waiting.iter().rposition(is_its).expect("as many wait as were counted");
            self.waiting.remove(last);
        }
        client.waiting = demand;
        demand > 0
    }

    /// Of what a client was sent it has used so many.
    fn used(&mut self, peer: PeerId, used: u64) {
        let Some(client) = self.clients.get_mut(&peer) else { return };
        let mut more = usize::try_from(used.saturating_sub(client.used)).unwrap_or(usize::MAX);
        while more > 0 {
            let Some(front) = client.sent.front_mut() else { break };
            let count = more.min(front.block.count);
            if !front.given {
                self.lent -= count;
            }
            if count == front.block.count {
                client.sent.pop_front();
            } else {
                front.block.split(count);
            }
            more -= count;
            client.used += count as u64;
        }
    }

    /// Takes back what a client has not used.
    fn take_back(&mut self, peer: PeerId) {
        let Some(client) = self.clients.get_mut(&peer) else { return };
        client.recalled = false;
        client.epoch += 1;
        for Sent { block, given } in std::mem::take(&mut client.sent) {
            if !given {
                self.lent -= block.count;
            }
            self.ready.put_back(block);
        }
    }

    fn lend(&mut self, peer: PeerId, extra: usize) {
        let getting = self.clients.values().filter(|client| client.gets).count().max(1);
        let Some(client) = self.clients.get_mut(&peer) else { return };
        let count = extra.min(self.ready.len().div_ceil(getting));
        if count == 0 || client.recalled {
            return;
        }
        let blocks = self.ready.take(count, LENT_BYTES);
        for block in &blocks {
            self.lent += block.count;
        }
        send(client, LEND, &blocks);
        client.sent.extend(blocks.into_iter().map(|block| Sent { block, given: false }));
        if !self.blocked.is_empty() {
            self.distribute();
        }
    }

    /// Gives those who wait what is there, and lets in what waits for room.
    fn distribute(&mut self) {
        let mut served: Vec<(PeerId, usize, Vec<Block>)> = Vec::new();
        loop {
            while self.blocked.front().is_some() && self.has_room() {
                let Blocked { block, asker, .. } = self.blocked.pop_front().expect("there is one");
                self.unfinished += block.count as u64;
                self.ready.push_block(block);
                asker.answer_bytes(&[ADMITTED]);
            }
            if self.waiting.is_empty() {
                break;
            }
            let Some(block) = self.ready.pop_block() else { break };
            match self.waiting.pop_front().expect("there is one") {
                Demand::Here(sender) => {
                    if sender.send(block.clone().into_element()).is_err() {
                        self.ready.put_back(block);
                    }
                }
                Demand::Client { peer, extra } => match served.iter_mut().find(|(other, ..)| *other == peer) {
                    Some((.., blocks)) => blocks.push(block),
                    None => served.push((peer, extra, vec![block])),
                },
                Demand::Taker { asker, .. } => {
                    let element = block.clone().into_element();
                    self.last_delivery += 1;
                    self.taken.insert(self.last_delivery, (asker.peer, block));
                    asker.answer(&Ok::<_, Closing>((self.last_delivery, serde_bytes::Bytes::new(&element))));
                }
            }
        }
        let mut extras = Vec::with_capacity(served.len());
        for (peer, extra, blocks) in served {
            if let Some(client) = self.clients.get_mut(&peer) {
                client.waiting -= blocks.len();
                send(client, GIVE, &blocks);
                client.sent.extend(blocks.into_iter().map(|block| Sent { block, given: true }));
                extras.push((peer, extra));
            }
        }
        extras.into_iter().for_each(|(peer, extra)| self.lend(peer, extra));
        if !self.waiting.is_empty() && self.ready.is_empty() {
            self.recall();
            self.end_if_over();
        }
    }

    /// Somebody waits in vain: asks for what others have and don't use.
    fn recall(&mut self) {
        if self.lent == 0 {
            return;
        }
        let has_more = |client: &&mut Client| !client.recalled && client.sent.iter().any(|sent| !sent.given);
        for client in self.clients.values_mut().filter(has_more) {
            client.recalled = true;
            let mut parcel = push_head(client.port);
            parcel.push(RECALL);
            push(&client.link, parcel, Bytes::new());
        }
    }

    fn is_over(&self) -> bool {
        self.closing.is_some()
            && self.ready.is_empty()
            && self.blocked.is_empty()
            && self.lent == 0
            && self.taken.is_empty()
    }

    /// Tells those who wait for more than will come.
    fn end_if_over(&mut self) {
        let Some(closing) = self.closing.filter(|_| self.is_over()) else { return };
        for demand in std::mem::take(&mut self.waiting) {
            match demand {
                // Dropping the promise says it.
                Demand::Here(_) => {}
                Demand::Client { peer, .. } => {
                    if let Some(client) = self.clients.get_mut(&peer) {
                        client.waiting = 0;
                        let mut parcel = push_head(client.port);
                        parcel.extend_from_slice(&[ENDED, closing as u8]);
                        push(&client.link, parcel, Bytes::new());
                    }
                }
                Demand::Taker { asker, .. } => {
                    asker.answer(&Err::<(u64, serde_bytes::ByteBuf), _>(closing));
                }
            }
        }
    }

    pub(super) fn close(&mut self, closing: Closing) {
        self.closing.get_or_insert(closing);
        for blocked in std::mem::take(&mut self.blocked) {
            blocked.asker.answer_bytes(&[closing as u8]);
        }
        self.distribute();
        self.end_if_over();
    }

    fn done(&mut self, count: u64) {
        self.unfinished = self.unfinished.saturating_sub(count);
        if self.unfinished == 0 {
            self.joiners.drain(..).for_each(|(_, asker)| asker.answer(&()));
        }
    }

    fn ask(&mut self, ask: Ask, asker: Asker, link: Option<Arc<dyn Link>>) {
        let peer = asker.peer;
        match ask {
            Ask::Attach { port } => {
                let Some(link) = link else { return };
                // The process had one before if that has failed, and so did not settle.
                self.set_demand(peer, 0, 0);
                self.take_back(peer);
                let client = Client {
                    port,
                    link,
                    _attached: asker,
                    sent: VecDeque::new(),
                    used: 0,
                    epoch: 0,
                    recalled: false,
                    gets: false,
                    waiting: 0,
                };
                self.clients.insert(peer, client);
            }
            Ask::Settle { used, demand } => {
                self.used(peer, used);
                self.take_back(peer);
                asker.answer(&());
                self.set_demand(peer, demand, 0);
                self.distribute();
                self.end_if_over();
            }
            Ask::GiveBack(element) => self.give_back(&element),
            Ask::Take { ticket } => {
                self.waiting.push_back(Demand::Taker { ticket, asker });
                self.distribute();
            }
            Ask::Untake { ticket } => self.waiting.retain(|demand| {
                !matches!(demand, Demand::Taker { ticket: other, asker: taker } if *other == ticket && taker.peer == peer)
            }),
            Ask::Acknowledge { delivery } => {
                if self.taken.remove(&delivery).is_some() {
                    self.done(1);
                }
                asker.answer(&());
                self.end_if_over();
            }
            Ask::Return { delivery } => {
                if let Some((_, block)) = self.taken.remove(&delivery) {
                    self.ready.put_back(block);
                    self.distribute();
                }
            }
            Ask::TryGet => {
                let element = self.ready.pop();
                asker.answer(&element.as_ref().map(|element| serde_bytes::Bytes::new(element)));
                self.distribute();
            }
            Ask::TryPut(element) => {
                let room = self.closing.is_none() && self.blocked.is_empty() && self.has_room();
                if room {
                    self.unfinished += 1;
                    self.ready.push_block(Block::of(&element));
                    self.distribute();
                }
                asker.answer(&self.closing.map_or(Ok(room), Err));
            }
            Ask::PutOne { ticket, element } => self.put(Some(ticket), Block::of(&element), asker),
            Ask::Unput { ticket } => {
                let is_it = |blocked: &Blocked| blocked.ticket == Some(ticket) && blocked.asker.peer == peer;
                let place = self.blocked.iter().position(is_it);
                if let Some(place) = place {
                    self.blocked.remove(place);
                }
                asker.answer(&place.is_some());
            }
            Ask::Len => asker.answer(&(self.ready.len() + self.lent)),
            Ask::TaskDone(count) => self.done(count),
            Ask::Join { .. } if self.unfinished == 0 => asker.answer(&()),
            Ask::Join { ticket } => self.joiners.push((ticket, asker)),
            Ask::Unjoin { ticket } => {
                self.joiners.retain(|(other, joiner)| (joiner.peer, *other) != (peer, ticket) as Key);
            }
            Ask::Close => {
                self.close(Closing::Closed);
                asker.answer(&());
            }
            Ask::Claim { role, token } => {
                let claims = self.claims(role);
                *claims.elsewhere.entry(peer).or_default() += 1;
                if !claims.travelling.remove(&token) {
                    claims.early.insert(token);
                }
            }
            Ask::Unclaim { role } => {
                let claims = self.claims(role);
                if let Some(count) = claims.elsewhere.get_mut(&peer) {
                    *count -= 1;
                    if *count == 0 {
                        claims.elsewhere.remove(&peer);
                    }
                }
                self.end_if_unclaimed(role);
            }
            Ask::Travel { role, token } => self.travel(role, token),
        }
    }

    fn claims(&mut self, role: Role) -> &mut Claims {
        match role {
            Role::Writer => &mut self.writers,
            Role::Reader => &mut self.readers,
        }
    }

    /// An end of this process is there, perhaps arrived again.
    pub(super) fn claim_here(&mut self, role: Role, token: Option<u64>) {
        let claims = self.claims(role);
        claims.here += 1;
        if let Some(token) = token
            && !claims.travelling.remove(&token)
        {
            claims.early.insert(token);
        }
    }

    pub(super) fn unclaim_here(&mut self, role: Role) {
        self.claims(role).here -= 1;
        self.end_if_unclaimed(role);
    }

    pub(super) fn travel(&mut self, role: Role, token: u64) {
        let claims = self.claims(role);
        if !claims.early.remove(&token) {
            claims.travelling.insert(token);
        }
    }

    fn end_if_unclaimed(&mut self, role: Role) {
        if !self.claims(role).are_gone() {
            return;
        }
        if role == Role::Reader {
            self.ready.clear();
        }
        self.close(Closing::OtherEnd);
    }

    fn lost(&mut self, peer: PeerId) {
        self.waiting.retain(|demand| match demand {
            Demand::Here(_) => true,
            Demand::Client { peer: other, .. } => *other != peer,
            Demand::Taker { asker, .. } => asker.peer != peer,
        });
        self.blocked.retain(|blocked| blocked.asker.peer != peer);
        self.joiners.retain(|(_, joiner)| joiner.peer != peer);
        if let Some(client) = self.clients.get_mut(&peer) {
            // What it waited for it has most likely used, so nobody is to be given it again.
            client.sent.retain(|sent| !sent.given);
        }
        self.take_back(peer);
        self.clients.remove(&peer);
        for (_, (_, block)) in self.taken.extract_if(|_, (taker, _)| *taker == peer) {
            self.ready.put_back(block);
        }
        for role in [Role::Writer, Role::Reader] {
            if self.claims(role).elsewhere.remove(&peer).is_some() {
                self.end_if_unclaimed(role);
            }
        }
        self.distribute();
        self.end_if_over();
    }
}

/// Hands blocks to a client; long ones as they are.
fn send(client: &Client, how: u8, blocks: &[Block]) {
    const LONG: usize = 16 << 10;
    let head = |count: usize| {
        let mut parcel = push_head(client.port);
        parcel.push(how);
        parcel.extend_from_slice(&client.epoch.to_le_bytes());
        parcel.extend_from_slice(&(count as u32).to_le_bytes());
        parcel
    };
    let mut rest = blocks;
    while let Some(first) = rest.first() {
        if first.bytes.len() >= LONG {
            push(&client.link, head(first.count), first.bytes.clone());
            rest = &rest[1..];
            continue;
        }
        let short = rest.iter().take_while(|block| block.bytes.len() < LONG).count();
        let mut parcel = head(rest[..short].iter().map(|block| block.count).sum());
        rest[..short].iter().for_each(|block| parcel.extend_from_slice(&block.bytes));
        push(&client.link, parcel, Bytes::new());
        rest = &rest[short..];
    }
}

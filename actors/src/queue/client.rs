//! A queue of another process, as this process sees it: elements on their way there, and elements
//! that were lent from there. All handles of a process share it.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use dashmap::{DashMap, Entry};
use fiber_core::at_exit::at_exit;
use fiber_core::transfer::Uncommitted;
use fiber_core::{CloseReason, Error, ProcessId, Result, codec};
use parking_lot::{Mutex, MutexGuard};
use serde_bytes::ByteBuf;
use tokio::sync::oneshot;

use super::blocks::{Blocks, Encoded, HEAD};
use super::wire::{ADMITTED, ASK, Ask, Closing, ENDED, GIVE, LEND, PUT, RECALL, WANT, read_block};
use crate::mesh::{PeerId, Port, PortId, Request};
use crate::objects::{Asked, Handle, PortRef, hold_back, release, set_send_all};
use crate::runtime::Runtime;

/// Frames of elements that are under way at a time. What is put meanwhile gathers in the next.
const FRAMES: usize = 2;
/// Who puts waits while more than this has gathered.
const GATHERED: usize = 256 << 10;
/// The most elements that are borrowed at a time.
const MOST_BORROWED: usize = 1 << 14;
/// What was borrowed should be used up within this time: longer, and others who come later wait too
/// long.
const TURN: Duration = Duration::from_millis(2);

/// This process's side of a queue elsewhere.
pub(super) struct Client {
    queue: Handle,
    own: PortId,
    runtime: &'static Runtime,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// A frame of elements that is being filled; empty if there is none.
    frame: Vec<u8>,
    in_frame: u32,
    under_way: usize,
    /// Who put when too much had gathered.
    crowded: Vec<oneshot::Sender<()>>,
    flushing: Vec<oneshot::Sender<()>>,

    borrowed: Blocks,
    /// How many borrowed elements were used, ever.
    used: u64,
    told_used: u64,
    /// Who waits for an element, in their order.
    waiting: VecDeque<oneshot::Sender<Bytes>>,
    /// How many to borrow.
    extra: usize,
    /// How often this process has settled.
    epoch: u32,
    /// More were asked for, and nothing has come since.
    asked_more: bool,
    /// Since when what came last is being used, and how much that was.
    using: Option<(Instant, usize)>,
    closing: Option<Closing>,
    failed: Option<Error>,
}

static CLIENTS: LazyLock<DashMap<(ProcessId, PortId), Weak<Client>>> = LazyLock::new(|| {
    at_exit(settle);
    set_send_all(send_all);
    DashMap::new()
});

/// What an attempt to get gives.
pub(super) enum Got {
    Element(Bytes),
    Later(oneshot::Receiver<Bytes>),
}

impl Client {
    /// The one of this process.
    pub(super) fn of(queue: &Handle) -> Result<Arc<Client>> {
        let runtime = queue.runtime()?;
        let key = (queue.home(), queue.id);
        let place = loop {
            match CLIENTS.entry(key) {
                Entry::Vacant(place) => break place,
                Entry::Occupied(place) => {
                    if let Some(client) = place.get().upgrade() {
                        return Ok(client);
                    }
                }
            }
            // The last one of this process is being dropped, and what it tells the owner has to be
            // told first.
            thread::yield_now();
        };
        let client = runtime.registry().ports().open(|own| Client {
            queue: queue.clone(),
            own,
            runtime,
            state: Mutex::default(),
        });
        drop(place.insert(Arc::downgrade(&client)));
        let weak = Arc::downgrade(&client);
        client.queue.ask_then(client.asking(&Ask::Attach { port: client.own }), move |answer| {
            if let (Some(client), Err(error)) = (weak.upgrade(), answer) {
                client.fail(error);
            }
        });
        Ok(client)
    }

    fn asking(&self, ask: &Ask) -> Vec<u8> {
        let mut payload = self.queue.payload();
        payload.push(ASK);
        codec::append(&mut payload, ask).expect("requests are made of what serialises");
        payload
    }

    /// Asks the owner, which by then knows all that this process has done before.
    pub(super) fn ask(self: &Arc<Self>, ask: &Ask) -> Asked {
        let mut state = self.state.lock();
        self.catch_up(&mut state);
        self.queue.ask(self.asking(ask))
    }

    pub(super) fn tell(self: &Arc<Self>, ask: &Ask) {
        let mut state = self.state.lock();
        self.catch_up(&mut state);
        self.queue.tell(self.asking(ask));
    }

    /// Runs `settle` when the owner knows that all elements that were got are used.
    pub(super) fn settle_used(self: &Arc<Self>, uncommitted: Uncommitted) {
        let mut state = self.state.lock();
        self.catch_up(&mut state);
        drop(state);
        uncommitted.commit();
    }

    fn catch_up(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        self.send_frame(state);
        if state.told_used != state.used {
            self.want(state, 0);
        }
    }

    fn check(&self, state: &State) -> Result<()> {
        match (&state.failed, state.closing) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(closing)) => Err(self.closed(closing)),
            (None, None) => Ok(()),
        }
    }

    fn closed(&self, closing: Closing) -> Error {
        Error::Closed { what: self.queue.name.to_string(), reason: closing.reason() }
    }

    /// Sends an element on its way. `Some` tells when there is room for more.
    pub(super) fn put(self: &Arc<Self>, element: Encoded) -> Result<Option<oneshot::Receiver<()>>> {
        let mut state = self.state.lock();
        self.check(&state)?;
        if element.is_long() {
            self.send_frame(&mut state);
            let mut frame = element.into_frame();
            let mut head = self.queue.payload();
            head.push(PUT);
            head.extend_from_slice(&1_u32.to_le_bytes());
            frame[..HEAD].copy_from_slice(&head);
            self.send(&mut state, frame);
            return Ok((state.under_way > FRAMES).then(|| state.wait_for_room()));
        }
        if state.in_frame == 0 {
            let mut frame = std::mem::take(&mut state.frame);
            self.queue.begin(&mut frame);
            frame.push(PUT);
            frame.extend_from_slice(&[0; 4]);
            state.frame = frame;
        }
        state.frame.extend_from_slice(element.as_block());
        state.in_frame += 1;
        if state.in_frame == 1 {
            hold_back();
        }
        element.recycle();
        if state.under_way < FRAMES {
            self.send_frame(&mut state);
        }
        if state.frame.len() > GATHERED {
            return Ok(Some(state.wait_for_room()));
        }
        Ok(None)
    }

    fn send_frame(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) {
        if state.in_frame == 0 {
            return;
        }
        let size = state.frame.len();
        let mut frame = std::mem::replace(&mut state.frame, Vec::with_capacity(size.min(GATHERED)));
        let place = PortRef::HEAD + 1;
        frame[place..place + 4].copy_from_slice(&state.in_frame.to_le_bytes());
        state.in_frame = 0;
        release();
        self.send(state, frame);
    }

    fn send(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, frame: Vec<u8>) {
        state.under_way += 1;
        let client = Arc::clone(self);
        self.queue.ask_then(frame, move |answer| client.arrived(answer));
    }

    /// A frame of elements has arrived, or not.
    fn arrived(self: &Arc<Self>, answer: Result<Bytes>) {
        let outcome = match answer {
            Ok(outcome) => outcome.first().copied().unwrap_or(ADMITTED),
            Err(error) => return self.fail(error),
        };
        let mut state = self.state.lock();
        state.under_way -= 1;
        if outcome != ADMITTED {
            state.closing = Some(Closing::from_byte(outcome));
            state.frame.clear();
            if std::mem::take(&mut state.in_frame) > 0 {
                release();
            }
            state.crowded.clear();
        }
        self.send_frame(&mut state);
        if state.under_way <= FRAMES {
            state.crowded.drain(..).for_each(|room| {
                let _ = room.send(());
            });
        }
        if state.under_way == 0 {
            state.flushing.drain(..).for_each(|flushed| {
                let _ = flushed.send(());
            });
        }
    }

    /// Resolves when all that was put has arrived.
    pub(super) fn flush(self: &Arc<Self>) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state.lock();
        self.send_frame(&mut state);
        if state.under_way == 0 {
            return None;
        }
        let (done, flushed) = oneshot::channel();
        state.flushing.push(done);
        Some(flushed)
    }

    /// Why nothing can be put any more.
    pub(super) fn problem(&self) -> Result<()> {
        self.check(&self.state.lock())
    }

    /// Gets an element, or waits for one behind the others of this process.
    pub(super) fn get(&self) -> Result<Got> {
        let mut state = self.state.lock();
        if state.waiting.is_empty()
            && let Some(element) = state.borrowed.pop()
        {
            state.used += 1;
            if !state.asked_more && state.borrowed.len() * 2 < state.extra {
                // More comes while the rest is used.
                state.asked_more = true;
                self.adapt(&mut state);
                let extra = state.extra;
                self.want(&mut state, extra);
            }
            return Ok(Got::Element(element));
        }
        self.check(&state)?;
        let (sender, promise) = oneshot::channel();
        state.waiting.push_back(sender);
        self.adapt(&mut state);
        let extra = state.extra;
        self.want(&mut state, extra);
        Ok(Got::Later(promise))
    }

    /// Borrows more if what was borrowed was soon used up, and less if it was not.
    fn adapt(&self, state: &mut State) {
        let Some((since, count)) = state.using.take() else { return };
        let in_a_turn = count as f64 * TURN.as_secs_f64() / since.elapsed().as_secs_f64().max(1e-9);
        state.extra = (in_a_turn as usize).min(2 * state.extra + 1).min(MOST_BORROWED);
    }

    /// Tells the owner how many are waited for, and how many more may come.
    fn want(&self, state: &mut State, extra: usize) {
        state.told_used = state.used;
        let mut payload = self.queue.payload();
        payload.push(WANT);
        payload.extend_from_slice(&(state.waiting.len() as u32).to_le_bytes());
        payload.extend_from_slice(&(extra as u32).to_le_bytes());
        payload.extend_from_slice(&state.used.to_le_bytes());
        self.queue.tell(payload);
    }

    /// Who waited for this promise does not any more.
    pub(super) fn forget(&self, mut promise: oneshot::Receiver<Bytes>) {
        let mut state = self.state.lock();
        promise.close();
        state.waiting.retain(|waiting| !waiting.is_closed());
        if let Ok(element) = promise.try_recv() {
            // All that came after it goes back first, so that it is before that again.
            self.settle(&mut state);
            self.queue.tell(self.asking(&Ask::GiveBack(ByteBuf::from(element.to_vec()))));
        }
        self.want(&mut state, 0);
    }

    /// Why a promise was broken.
    pub(super) fn broken(&self) -> Error {
        let state = self.state.lock();
        let unknown =
            || Error::Closed { what: self.queue.name.to_string(), reason: CloseReason::NoAnswer };
        self.check(&state).err().unwrap_or_else(unknown)
    }

    /// Gives what is there to those who wait here; if nobody does, all of it goes back.
    fn hand_out(&self, state: &mut State) {
        state.hand_out();
        if !state.borrowed.is_empty() {
            self.settle(state);
        }
    }

    /// Gives back what was not used.
    fn settle(&self, state: &mut State) {
        let ask = state.settle();
        self.queue.tell(self.asking(&ask));
    }

    /// QueueStream have come: such as were waited for, or others.
    fn sent(&self, mut body: Bytes, given: bool) {
        if body.len() < 4 {
            return;
        }
        let epoch = body.get_u32_le();
        let Some(block) = read_block(body) else { return };
        let mut state = self.state.lock();
        if epoch != state.epoch {
            return;
        }
        state.asked_more &= given;
        state.using.get_or_insert((Instant::now(), 0)).1 += block.count;
        state.borrowed.push_block(block);
        if given {
            self.hand_out(&mut state);
        } else {
            state.hand_out();
        }
    }

    fn ended(&self, closing: Closing) {
        let mut state = self.state.lock();
        state.closing = Some(closing);
        state.waiting.clear();
    }

    fn fail(&self, error: Error) {
        let mut state = self.state.lock();
        state.failed.get_or_insert(error);
        state.borrowed.clear();
        state.waiting.clear();
        state.crowded.clear();
        state.flushing.clear();
        state.under_way = 0;
        if std::mem::take(&mut state.in_frame) > 0 {
            release();
        }
        state.frame.clear();
        drop(state);
        self.leave();
    }

    /// Makes room for another one.
    fn leave(&self) {
        let key = (self.queue.home(), self.queue.id);
        CLIENTS.remove_if(&key, |_, client| std::ptr::eq(client.as_ptr(), self));
    }
}

impl State {
    fn wait_for_room(&mut self) -> oneshot::Receiver<()> {
        let (room, made) = oneshot::channel();
        self.crowded.push(room);
        made
    }

    fn hand_out(&mut self) {
        while !self.borrowed.is_empty()
            && let Some(waiting) = self.waiting.pop_front()
        {
            let Some(element) = self.borrowed.pop() else { break };
            match waiting.send(element) {
                Ok(()) => self.used += 1,
                Err(element) => self.borrowed.put_back_first(&element),
            }
        }
    }

    /// What tells the owner that what is not used goes back.
    fn settle(&mut self) -> Ask {
        self.borrowed.clear();
        self.asked_more = false;
        self.epoch += 1;
        self.told_used = self.used;
        Ask::Settle { used: self.used, demand: self.waiting.len() }
    }
}

impl Port for Client {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn receive(&self, request: Request) {
        let mut body = request.body;
        match (!body.is_empty()).then(|| body.get_u8()) {
            Some(GIVE) => self.sent(body, true),
            Some(LEND) => self.sent(body, false),
            Some(RECALL) => self.settle(&mut self.state.lock()),
            Some(ENDED) => {
                self.ended(Closing::from_byte(body.first().copied().unwrap_or_default()))
            }
            _ => tracing::error!("{} said something that is not understood", self.queue.name),
        }
    }

    fn lost(&self, _: PeerId) {}
}

impl Drop for Client {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if state.failed.is_none() {
            // Also if it has nothing to give back: more may be on its way.
            let ask = state.settle();
            self.queue.tell(self.asking(&ask));
        }
        self.runtime.registry().ports().close(self.own);
        self.leave();
    }
}

/// Sends the frames that the clients of this process hold back.
fn send_all() {
    for client in all() {
        client.send_frame(&mut client.state.lock());
    }
}

fn all() -> Vec<Arc<Client>> {
    CLIENTS.iter().filter_map(|client| client.upgrade()).collect()
}

/// Before this process ends: sends what was held back, and tells all owners what was used. Its node
/// sees to it that this arrives.
fn settle(waiting_allowed: bool) {
    if !waiting_allowed {
        return;
    }
    for client in all() {
        let mut state = client.state.lock();
        client.send_frame(&mut state);
        if state.failed.is_none() {
            client.settle(&mut state);
        }
    }
}

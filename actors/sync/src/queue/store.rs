//! A queue in the process that owns it: its elements, and which consumer gets them.
//!
//! Elements go to consumers in the order in which they began to wait. Beyond its demand, a process
//! is sent elements that it *prefetches*, so that it need not ask for each. It reports how many
//! elements it has used. The rest comes back when another consumer finds the queue empty, and when
//! the process dies.
//!
//! No process is sent an element after a later one. A consumer that stops at the later one, as at a
//! sentinel, would leave the element unused, at a time when all other consumers may have stopped
//! too. Therefore a process is sent elements only while its demand exceeds the elements on their
//! way to it, and elements that came back go only to consumers that wait.

mod clients;
mod deliveries;
mod demands;
mod distribution;
mod durable;
mod operations;
mod pipe_ends;
mod unconfirmed;
mod unfinished;

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Buf;
use fiber_backends::print_message;
use fiber_core::stats::{QueueStats, Report};
use fiber_core::value_memory::{self, value_memory};
use fiber_core::{FailureKind, ProcessId};
use fiber_values::codec::{self, EncodedValue};
use fiber_values::spill;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;

use self::clients::Clients;
use self::deliveries::Deliveries;
use self::demands::Demands;
use self::durable::DurableElements;
use self::pipe_ends::PipeEnds;
use self::unfinished::Unfinished;
use super::blocks::{Block, Blocks};
use super::encoded::Encoded;
use super::get::NextElement;
use super::wire::{Closing, OPERATION, PUT, WANT, read_block};
use fiber_runtime::durable::DurableState;
use fiber_runtime::mesh::{PeerId, Port, PortId, Request, Requester};
use fiber_runtime::objects::Ticket;
use fiber_runtime::runtime::Runtime;
use fiber_runtime::sources::Source;

/// The time after which a queue that waits for memory says so, and tries to write to a file again.
const RETRY: Duration = Duration::from_secs(1);

/// The capacity of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capacity {
    Unbounded,
    Elements(usize),
    Bytes(usize),
}

/// A queue of this process.
pub(super) struct Store {
    pub(super) port: PortId,
    /// The name in statistics.
    label: String,
    runtime: &'static Runtime,
    state: Mutex<QueueState>,
}

pub(super) struct QueueState {
    capacity: Capacity,
    ready: Blocks,
    /// Elements that wait for room.
    blocked: VecDeque<BlockedPut>,
    /// Whether a task admits them when there is room in the memory of values.
    memory_awaited: bool,
    demands: Demands,
    clients: Clients,
    deliveries: Deliveries,
    unfinished: Unfinished,
    closing: Option<Closing>,
    pipe_ends: PipeEnds,
    readers: Readers,
    /// Waits for the end of the other end of a stream.
    closed_waker: Option<Waker>,
    durable: Option<DurableElements>,
}

/// The consumers that may take elements at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readers {
    /// Any number of processes.
    Many,
    /// One process: others have to return the elements that they have not used before the next one
    /// gets any. So elements keep their order when a stream is passed on.
    InTurn,
}

/// Elements that wait for room, and the process that put them.
struct BlockedPut {
    /// `None` for elements that were sent through a pipe: their sender does not wait.
    ticket: Option<Ticket>,
    block: Block,
    requester: Requester,
}

impl Store {
    pub(super) fn new(
        runtime: &'static Runtime,
        port: PortId,
        label: String,
        capacity: Capacity,
    ) -> Store {
        let state = QueueState {
            capacity,
            ready: Blocks::default(),
            blocked: VecDeque::new(),
            memory_awaited: false,
            demands: Demands::default(),
            clients: Clients::default(),
            deliveries: Deliveries::default(),
            unfinished: Unfinished::default(),
            closing: None,
            pipe_ends: PipeEnds::default(),
            readers: Readers::Many,
            closed_waker: None,
            durable: None,
        };
        Store { port, label, runtime, state: Mutex::new(state) }
    }

    /// Makes a queue that is empty durable. `elements` are those that its journal has.
    pub(super) fn with_journal(
        self,
        durable: DurableState,
        elements: Vec<(u64, EncodedValue)>,
    ) -> Store {
        let mut state = self.lock();
        state.durable = Some(DurableElements::new(durable, self.runtime, self.port));
        state.restore(elements);
        drop(state);
        self
    }

    /// Lets one process read at a time.
    pub(super) fn read_in_turn(self) -> Store {
        self.lock().readers = Readers::InTurn;
        self
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// Admits elements when there is room in the memory of values, or a file can be written again.
    /// Nothing of this queue announces that: other queues and calls may free memory.
    fn await_memory(&self) {
        let (runtime, port, label) = (self.runtime, self.port, self.label.clone());
        runtime.spawn(move || async move {
            let mut has_said = false;
            loop {
                if timeout(RETRY, value_memory::wait_for_room()).await.is_err() {
                    if !std::mem::replace(&mut has_said, true) {
                        print_message(waiting_text(&label)).await;
                    }
                    spill::try_again();
                }
                let port = runtime.registry().ports().get(port);
                let Some(store) = port.and_then(|port| port.downcast_arc::<Store>()) else {
                    return;
                };
                let mut state = store.lock();
                state.distribute();
                if !state.waits_for_memory() {
                    state.memory_awaited = false;
                    return;
                }
            }
        });
    }
}

fn waiting_text(queue: &str) -> String {
    format!(
        "fiber: the queue `{queue}` waits for memory ({}), and its elements can't be written to {}: free room \
         there, name another folder (`FIBER_SPILL_DIR`), or raise `FIBER_VALUE_MEMORY`\n",
        value_memory(),
        spill::folder().display()
    )
}

impl Source for Store {
    fn report(&self, process: ProcessId, report: &mut Report) {
        let state = self.state.lock();
        let mut stats = QueueStats::new(process, self.port.0, self.label.clone());
        stats.pipe = !state.pipe_ends.is_empty();
        stats.length = state.ready.len() as u64;
        stats.bytes = state.ready.bytes() as u64;
        stats.blocked = state.blocked.iter().map(|put| put.block.len() as u64).sum();
        stats.waiting = state.demands.len() as u64;
        (stats.put, stats.taken) = (state.ready.pushed(), state.ready.taken());
        report.queues.push(stats);
    }
}

impl Port for Store {
    fn receive(&self, request: Request) {
        let Request { mut body, requester, link } = request;
        let mut state = self.state.lock();
        match (!body.is_empty()).then(|| body.bytes.get_u8()) {
            Some(PUT) => match read_block(body) {
                Some(block) => state.put(None, block, requester),
                None => requester.fail(FailureKind::Arguments, &"a block of elements is invalid"),
            },
            Some(WANT) if body.len() >= 16 => {
                let body = &mut body.bytes;
                let (demand, prefetch, used) =
                    (body.get_u32_le(), body.get_u32_le(), body.get_u64_le());
                state.want(requester.peer, demand as usize, prefetch as usize, used);
            }
            Some(OPERATION) => match codec::decode_with(&body, &body.blobs) {
                Ok(operation) => state.apply(operation, requester, link),
                Err(error) => requester.fail(FailureKind::Arguments, &error),
            },
            _ => requester.fail(FailureKind::Arguments, &"a queue has no such request"),
        }
        if state.waits_for_memory() && !std::mem::replace(&mut state.memory_awaited, true) {
            self.await_memory();
        }
    }

    fn lost(&self, peer: PeerId) {
        self.state.lock().peer_lost(peer);
    }
}

/// Operations of the process that owns the queue.
impl QueueState {
    /// Returns why the queue takes no more elements, if it takes none.
    pub(super) fn closing(&self) -> Option<Closing> {
        self.closing
    }

    /// Puts an element in, if there is room. An element of a durable queue has to be recorded
    /// first.
    pub(super) fn put_here(&mut self, element: Encoded) -> Result<(), Encoded> {
        if self.durable.is_some() || !self.blocked.is_empty() || !self.has_room() {
            return Err(element);
        }
        self.unfinished.add(1);
        self.ready.push(element);
        if !self.demands.is_empty() {
            self.distribute();
        }
        Ok(())
    }

    /// Takes elements of at most this many bytes that are ready, but at least one.
    pub(super) fn take_ready(&mut self, bytes: usize) -> Vec<EncodedValue> {
        if self.is_anothers_turn(None) {
            return Vec::new();
        }
        let blocks = self.ready.take(usize::MAX, bytes);
        self.distribute();
        blocks.into_iter().flat_map(Block::into_elements).collect()
    }

    /// Returns how many elements were ever put in.
    pub(super) fn pushed(&self) -> u64 {
        self.ready.pushed()
    }

    /// Waits until the queue takes no more elements.
    pub(super) fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.closing.is_some() {
            return Poll::Ready(());
        }
        self.closed_waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns the next element, or a promise of one.
    ///
    /// # Errors
    /// The reason why no more elements will come.
    pub(super) fn get_here(&mut self) -> Result<NextElement, Closing> {
        // Consumers that wait have been given all elements that were there.
        if !self.is_anothers_turn(None)
            && let Some(element) = self.ready.pop()
        {
            if !self.blocked.is_empty() {
                self.distribute();
            }
            return Ok(NextElement::Now(element));
        }
        if let Some(reason) = self.closing.filter(|_| self.is_over()) {
            return Err(reason);
        }
        let promise = self.demands.wait_here();
        self.distribute();
        Ok(NextElement::Later(promise))
    }

    /// Takes back an element whose consumer has gone.
    pub(super) fn return_element(&mut self, element: EncodedValue) {
        self.ready.put_back_first(element);
        self.distribute();
    }

    /// Removes promises whose consumers have gone.
    pub(super) fn remove_closed_promises(&mut self) {
        self.demands.remove_closed_promises();
    }
}

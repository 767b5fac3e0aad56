//! A durable queue: elements get in, and are gone, when the journal has recorded it.

use std::sync::Arc;

use fiber_core::{Error, Result};
use fiber_values::codec::EncodedValue;

use super::{QueueState, Store};
use crate::queue::blocks::Block;
use crate::queue::wire::{ADMITTED, Closing};
use fiber_runtime::durable::{Change, DurableState};
use fiber_runtime::mesh::{PortId, Requester};
use fiber_runtime::runtime::Runtime;

/// The elements of a queue in its journal. An element's slot is its position in the queue.
pub(super) struct DurableElements {
    state: DurableState,
    slots: Arc<str>,
    runtime: &'static Runtime,
    port: PortId,
    /// The position of the next element.
    next: u64,
    /// How many elements are being recorded.
    recording: usize,
    /// The error of the journal, which ends the queue for this run of the program.
    failed: Option<Error>,
}

/// How a process learns that its elements are in.
#[derive(Clone, Copy)]
pub(super) enum PutAnswer {
    /// As the answer to a PUT.
    Admitted,
    /// As the answer to a `TryPut`.
    Fits,
}

impl DurableElements {
    pub(super) fn new(
        state: DurableState,
        runtime: &'static Runtime,
        port: PortId,
    ) -> DurableElements {
        let slots = state.slots();
        DurableElements { state, slots, runtime, port, next: 0, recording: 0, failed: None }
    }

    /// Returns the number of elements that are being recorded.
    pub(super) fn recording(&self) -> usize {
        self.recording
    }

    /// Returns the error of the journal, if there was one.
    pub(super) fn failed(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    fn record(
        &self,
        changes: Vec<Change>,
        then: impl FnOnce(&mut QueueState, Result<()>) + Send + 'static,
    ) {
        let (runtime, port) = (self.runtime, self.port);
        self.state.record(changes, move |result| {
            // If the queue has ended, so has everything that waits for the answer.
            let port = runtime.registry().ports().get(port);
            if let Some(store) = port.and_then(|port| port.downcast_arc::<Store>()) {
                then(&mut store.lock(), result);
            }
        });
    }
}

impl QueueState {
    /// Adds the elements that earlier runs of the program have put in, and no consumer has
    /// acknowledged.
    pub(super) fn restore(&mut self, elements: Vec<(u64, EncodedValue)>) {
        self.unfinished.add(elements.len());
        for (position, element) in elements {
            self.ready.push_at(position, Block::of(element));
        }
        if let Some(durable) = &mut self.durable {
            durable.next = self.ready.pushed();
        }
    }

    /// Records elements. They are in, and their process gets its answer, when that is done.
    pub(super) fn record_put(&mut self, block: Block, requester: Requester, answer: PutAnswer) {
        let durable = self.durable.as_mut().expect("the caller has checked it");
        let (first, count) = (durable.next, block.count);
        durable.next += count as u64;
        durable.recording += count;
        let put = |(slot, value)| Change::Put { slots: Arc::clone(&durable.slots), slot, value };
        let changes = (first..).zip(block.clone().into_elements()).map(put).collect();
        durable.record(changes, move |state, result| {
            if let Some(durable) = &mut state.durable {
                durable.recording -= count;
            }
            match result {
                Ok(()) => {
                    state.unfinished.add(count);
                    state.ready.push_at(first, block);
                    match answer {
                        PutAnswer::Admitted => requester.answer_bytes(&[ADMITTED]),
                        PutAnswer::Fits => requester.answer(&Ok::<_, Closing>(true)),
                    }
                    state.distribute();
                    state.end_if_over();
                }
                Err(error) => {
                    requester.fail_with(&error);
                    state.fail(error);
                }
            }
        });
    }

    /// Records that an element is done.
    pub(super) fn record_done(&mut self, block: &Block, requester: Requester) {
        let durable = self.durable.as_ref().expect("the caller has checked it");
        let change = Change::Remove { slots: Arc::clone(&durable.slots), slot: block.position() };
        durable.record(vec![change], move |state, result| match result {
            Ok(()) => {
                state.unfinished.done(1);
                requester.answer(&());
            }
            Err(error) => {
                requester.fail_with(&error);
                state.fail(error);
            }
        });
    }

    /// Ends the queue, for this run of the program, with an error of the journal.
    fn fail(&mut self, error: Error) {
        let blocked = std::mem::take(&mut self.blocked).into_iter().map(|put| put.requester);
        let waiting = blocked.chain(self.demands.take_deliveries()).chain(self.unfinished.take());
        waiting.for_each(|requester| requester.fail_with(&error));
        if let Some(durable) = &mut self.durable {
            durable.failed.get_or_insert(error);
        }
    }
}

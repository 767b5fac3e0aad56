//! Elements that the queue's owner sent to this process.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Buf;
use fiber_core::{CloseReason, Error, Result};
use fiber_transport::Received;
use fiber_values::codec::EncodedValue;
use tokio::sync::oneshot;

use super::{Client, ClientState};
use crate::queue::blocks::Blocks;
use crate::queue::get::NextElement;
use crate::queue::wire::{Operation, WANT, read_block};

/// The largest number of elements that are prefetched at a time.
const MAX_PREFETCH: usize = 1 << 14;
/// The time in which this process should use what it prefetches. In a longer time, consumers that
/// come later would wait too long for their share.
const PREFETCH_TIME: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(super) struct Receiving {
    elements: Blocks,
    /// The number of elements that were used, ever.
    used: u64,
    reported_used: u64,
    /// Consumers that wait for an element, in their order.
    waiting: VecDeque<oneshot::Sender<EncodedValue>>,
    /// The number of elements to prefetch.
    prefetch: usize,
    /// The number of times that this process has returned elements.
    epoch: u32,
    /// Whether more elements were requested, and none have come since.
    requested_more: bool,
    /// When the first elements came since the last adaptation, and how many have come.
    in_use: Option<(Instant, usize)>,
}

impl Receiving {
    /// Passes elements to the consumers that wait.
    fn distribute(&mut self) {
        while !self.elements.is_empty()
            && let Some(waiting) = self.waiting.pop_front()
        {
            let Some(element) = self.elements.pop() else { break };
            match waiting.send(element) {
                Ok(()) => self.used += 1,
                Err(element) => self.elements.put_back_first(element),
            }
        }
    }

    /// Adapts the number of elements to prefetch to the speed at which this process uses them.
    fn adapt(&mut self, now: Instant) {
        let Some((since, count)) = self.in_use.take() else { return };
        let seconds = now.saturating_duration_since(since).as_secs_f64().max(1e-9);
        let wanted = count as f64 * PREFETCH_TIME.as_secs_f64() / seconds;
        self.prefetch = (wanted as usize).min(2 * self.prefetch + 1).min(MAX_PREFETCH);
    }

    /// Forgets the elements that are not used. Returns the operation that returns them.
    pub(super) fn return_unused(&mut self) -> Operation {
        self.forget_unused();
        Operation::ReturnUnused { used: self.used, demand: self.waiting.len() }
    }

    fn forget_unused(&mut self) {
        self.elements.clear();
        self.requested_more = false;
        self.epoch += 1;
        self.reported_used = self.used;
    }

    /// Wakes all consumers: no elements will come.
    pub(super) fn break_promises(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn clear(&mut self) {
        self.elements.clear();
        self.break_promises();
    }
}

impl Client {
    /// Gets an element, or waits for one behind the other consumers of this process.
    pub(in crate::queue) fn get(&self) -> Result<NextElement> {
        let mut state = self.state.lock();
        let receiving = &mut state.receiving;
        if receiving.waiting.is_empty()
            && let Some(element) = receiving.elements.pop()
        {
            receiving.used += 1;
            if !receiving.requested_more && receiving.elements.len() * 2 < receiving.prefetch {
                // More elements come while this process uses the rest.
                receiving.requested_more = true;
                receiving.adapt(Instant::now());
                self.want(receiving.prefetch, receiving);
            } else if !element.blobs.is_empty() {
                self.report_used(receiving);
            }
            return Ok(NextElement::Now(element));
        }
        self.check_state(&state)?;
        let receiving = &mut state.receiving;
        let (sender, promise) = oneshot::channel();
        receiving.waiting.push_back(sender);
        receiving.adapt(Instant::now());
        self.want(receiving.prefetch, receiving);
        Ok(NextElement::Later(promise))
    }

    /// Sends the number of consumers that wait, and the number of elements to prefetch beyond that.
    fn want(&self, prefetch: usize, receiving: &mut Receiving) {
        receiving.reported_used = receiving.used;
        let mut payload = self.queue.payload();
        payload.push(WANT);
        payload.extend_from_slice(&(receiving.waiting.len() as u32).to_le_bytes());
        payload.extend_from_slice(&(prefetch as u32).to_le_bytes());
        payload.extend_from_slice(&receiving.used.to_le_bytes());
        self.owner.send(payload);
    }

    /// Sends the number of used elements, if the owner does not know it. The owner keeps elements
    /// until then: after those with blobs, this does not wait until more elements are wanted.
    pub(super) fn report_used(&self, receiving: &mut Receiving) {
        if receiving.reported_used != receiving.used {
            self.want(0, receiving);
        }
    }

    /// Reports that a consumer has taken an element with blobs for which it had waited.
    pub(in crate::queue) fn took_blobs(&self) {
        self.report_used(&mut self.state.lock().receiving);
    }

    /// Withdraws a consumer. Its element, if it got one, goes back.
    pub(in crate::queue) fn withdraw(&self, mut promise: oneshot::Receiver<EncodedValue>) {
        let mut state = self.state.lock();
        promise.close();
        state.receiving.waiting.retain(|waiting| !waiting.is_closed());
        let receiving = &mut state.receiving;
        if let Ok(element) = promise.try_recv() {
            // In one message, so that no other consumer gets the later elements before this one.
            receiving.forget_unused();
            let (used, demand) = (receiving.used, receiving.waiting.len());
            let operation = Operation::ReturnElement { element, used, demand };
            return self.owner.send(self.payload(&operation));
        }
        self.want(0, receiving);
    }

    /// Returns the reason why a promise was broken.
    pub(in crate::queue) fn broken_promise(&self) -> Error {
        let state = self.state.lock();
        self.check_state(&state).err().unwrap_or_else(|| self.closed(CloseReason::NoAnswer))
    }

    /// Returns all elements that this process has not used.
    pub(super) fn return_unused(&self, state: &mut ClientState) {
        let operation = state.receiving.return_unused();
        self.owner.send(self.payload(&operation));
    }

    /// Stores elements that the owner sent: `demanded` ones, or prefetched ones.
    pub(super) fn received(&self, mut body: Received, demanded: bool) {
        if body.len() < 4 {
            return;
        }
        let epoch = body.bytes.get_u32_le();
        let Some(block) = read_block(body) else { return };
        let mut state = self.state.lock();
        let receiving = &mut state.receiving;
        if epoch != receiving.epoch {
            return;
        }
        receiving.requested_more &= demanded;
        receiving.in_use.get_or_insert((Instant::now(), 0)).1 += block.count;
        receiving.elements.push_block(block);
        receiving.distribute();
        if demanded && !receiving.elements.is_empty() {
            // The consumers that demanded these no longer wait.
            self.return_unused(&mut state);
        }
    }
}

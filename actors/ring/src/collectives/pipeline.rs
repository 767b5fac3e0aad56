//! Collectives in which large arrays pass from neighbour to neighbour, chunk by chunk.
//!
//! An all-reduce passes segments around the ring: first a reduce-scatter, then an all-gather, with
//! one segment a rank. Each rank sends and receives twice the array, whatever the size of the ring
//! (P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", Journal of Parallel and Distributed Computing 69, 2009). The wire does not
//! separate the steps: a rank sends a chunk as soon as it is reduced, while the next one arrives.

use super::super::call::CollectiveCall;
use super::super::number::{self, Number, segment};
use super::super::reduction::Reduction;
use super::super::streams::{Header, Interest, RankStreams, SpinWait};
use super::super::wire::StreamError;
use super::OnReceive;

/// A pass of segments around the ring.
pub(super) struct RingPass {
    pub(super) call: CollectiveCall,
    /// The segment that this rank sends first. In each further step it sends the one before.
    pub(super) first_segment: usize,
    pub(super) steps: usize,
    /// In the first so many steps, received elements are reduced with the own ones. In the others
    /// they replace them.
    pub(super) reduce_steps: usize,
    pub(super) reduction: Reduction,
}

impl RankStreams {
    /// Passes an array along a chain of ranks. `from` is `None` at its first rank, `to` at its
    /// last.
    pub(super) fn pass_along<T: Number>(
        &mut self,
        call: CollectiveCall,
        from: Option<usize>,
        to: Option<usize>,
        data: &mut [T],
        on_receive: OnReceive,
    ) -> Result<(), StreamError> {
        let bytes = size_of_val(data) as u64;
        let mut received = if from.is_some() { 0 } else { data.len() };
        let mut sent = if to.is_some() { 0 } else { data.len() };
        let (mut spin, mut accepted) = (SpinWait::default(), false);
        if let Some(to) = to {
            self.outgoing(to)?.begin(Header::Collective { call, bytes });
        }
        loop {
            let mut progress = 0;
            if let Some(from) = from.filter(|_| received < data.len()) {
                accepted = accepted || self.accept_call(from, &call, Some(bytes))?;
                if accepted {
                    progress = self.receive_chunk(from, data, received, on_receive);
                    received += progress;
                }
            }
            if let Some(to) = to {
                let written =
                    self.outgoing(to)?.write(number::bytes(&data[sent..received])) / size_of::<T>();
                sent += written;
                progress += written;
            }
            let flushed = match to {
                Some(to) => sent < data.len() || self.outgoing(to)?.flush(),
                None => true,
            };
            if received == data.len() && sent == data.len() && flushed {
                return Ok(());
            }
            if progress > 0 {
                spin = SpinWait::default();
                continue;
            }
            let from = from.filter(|_| received < data.len());
            let to = to.filter(|_| sent < received || !flushed);
            self.wait(&mut spin, Interest { from, to })?;
        }
    }

    /// Sends segments to the right and receives others from the left. A rank sends in each step
    /// what it received in the step before, so each chunk can leave as soon as it has arrived.
    pub(super) fn pass_around<T: Number>(
        &mut self,
        pass: RingPass,
        data: &mut [T],
    ) -> Result<(), StreamError> {
        let RingPass { call, first_segment, steps, reduce_steps, reduction } = pass;
        let (size, length) = (self.size, data.len());
        let (left, right) = (self.left(), self.right());
        let outgoing =
            |step: usize| segment(length, size, (first_segment + 2 * size - step) % size);
        let incoming = |step: usize| outgoing(step + 1);
        let total = |segments: &dyn Fn(usize) -> std::ops::Range<usize>| -> usize {
            (0..steps).map(|step| segments(step).len()).sum()
        };
        let (to_send, to_receive) = (total(&outgoing), total(&incoming));
        let bytes = |elements: usize| (elements * size_of::<T>()) as u64;
        if steps == 0 {
            return Ok(());
        }
        self.outgoing(right)?.begin(Header::Collective { call, bytes: bytes(to_send) });
        // The step, and the position in its segment.
        let (mut sending, mut sent) = ((0, 0), 0);
        let (mut receiving, mut received) = ((0, 0), 0);
        let (mut spin, mut accepted) = (SpinWait::default(), false);
        loop {
            let mut progress = 0;
            accepted = accepted || self.accept_call(left, &call, Some(bytes(to_receive)))?;
            if accepted && received < to_receive {
                let (step, at) = &mut receiving;
                let own = incoming(*step);
                let on_receive = if *step < reduce_steps {
                    OnReceive::Reduce(reduction)
                } else {
                    OnReceive::Replace
                };
                let count = self.receive_chunk(left, &mut data[own.clone()], *at, on_receive);
                (*at, received, progress) = (*at + count, received + count, count);
                if *at == own.len() {
                    (*step, *at) = (*step + 1, 0);
                    // The end of an empty segment is progress, too.
                    progress += 1;
                }
            }
            while sent < to_send {
                let (step, at) = &mut sending;
                let own = outgoing(*step);
                let ready = match *step {
                    0 => own.len(),
                    step if receiving.0 >= step => own.len(),
                    step if receiving.0 + 1 == step => receiving.1,
                    _ => 0,
                };
                let ready = &data[own.start + *at..own.start + ready];
                let written = self.outgoing(right)?.write(number::bytes(ready)) / size_of::<T>();
                (*at, sent, progress) = (*at + written, sent + written, progress + written);
                if *at < own.len() {
                    break;
                }
                (*step, *at) = (*step + 1, 0);
            }
            let flushed = sent < to_send || self.outgoing(right)?.flush();
            if accepted && received == to_receive && sent == to_send && flushed {
                return Ok(());
            }
            if progress > 0 {
                spin = SpinWait::default();
                continue;
            }
            let blocked = !flushed
                || (sent < to_send
                    && (sending.0 == 0 || receiving >= (sending.0 - 1, sending.1 + 1)));
            let from = (!accepted || received < to_receive).then_some(left);
            self.wait(&mut spin, Interest { from, to: blocked.then_some(right) })?;
        }
    }
}

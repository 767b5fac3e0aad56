//! The collectives: which algorithm each one uses.
//!
//! Arrays larger than [`SMALL`] bytes pass along the ring in chunks ([`pipeline`]), smaller ones
//! take fewer steps, from each rank to all others or along a binomial tree ([`direct`]).
//!
//! The order in which values are reduced depends only on the size of the ring and the length of the
//! array, and all ranks copy the result of one. So results are equal on all ranks, bit for bit, and
//! from run to run.

mod direct;
mod pipeline;

use self::pipeline::RingPass;
use super::call::CollectiveCall;
use super::number::{self, Number};
use super::reduction::{Reduction, combine};
use super::streams::{Header, Interest, RankStreams, SpinWait};
use super::wire::StreamError;

/// Arrays up to this many bytes are small.
const SMALL: usize = 16 << 10;
/// In rings up to this size each rank sends a small array to each other rank.
const ALL_TO_ALL: usize = 8;
/// Bytes that are received before what depends on them is sent. They stay in the processor's cache
/// meanwhile.
const CHUNK: usize = 128 << 10;

/// The use of received elements.
#[derive(Clone, Copy)]
enum OnReceive {
    Replace,
    Reduce(Reduction),
}

impl OnReceive {
    fn apply<T: Number>(self, own: &mut [T], incoming: &[u8]) {
        match self {
            OnReceive::Replace => bytemuck::cast_slice_mut(own).copy_from_slice(incoming),
            OnReceive::Reduce(reduction) => combine(reduction, own, incoming),
        }
    }
}

impl RankStreams {
    pub(super) fn broadcast<T: Number>(
        &mut self,
        call: CollectiveCall,
        root: usize,
        data: &mut [T],
    ) -> Result<(), StreamError> {
        if size_of_val(data) <= SMALL {
            return self.broadcast_tree(call, root, data);
        }
        let distance = self.distance_from(root);
        let from = (distance > 0).then(|| self.left());
        let to = (distance + 1 < self.size).then(|| self.right());
        self.pass_along(call, from, to, data, OnReceive::Replace)
    }

    /// Reduces into the root's data. The data of the other ranks does not change.
    pub(super) fn reduce<T: Number>(
        &mut self,
        call: CollectiveCall,
        root: usize,
        data: &mut [T],
        reduction: Reduction,
    ) -> Result<(), StreamError> {
        if self.size == 1 {
            return Ok(());
        }
        let mut copy = Vec::new();
        let data = if self.rank == root {
            data
        } else {
            copy.extend_from_slice(data);
            &mut copy
        };
        if size_of_val(data) <= SMALL {
            return self.reduce_tree(call, root, data, reduction);
        }
        // The chain begins at the root's right neighbour and ends at the root.
        let distance = self.distance_from(root);
        let from = (distance != 1).then(|| self.left());
        let to = (distance != 0).then(|| self.right());
        self.pass_along(call, from, to, data, OnReceive::Reduce(reduction))
    }

    pub(super) fn all_reduce<T: Number>(
        &mut self,
        call: CollectiveCall,
        data: &mut [T],
        reduction: Reduction,
    ) -> Result<(), StreamError> {
        if self.size == 1 {
            return Ok(());
        }
        if size_of_val(data) > SMALL {
            let others = self.size - 1;
            return self.pass_around(
                RingPass {
                    call,
                    first_segment: self.rank,
                    steps: 2 * others,
                    reduce_steps: others,
                    reduction,
                },
                data,
            );
        }
        if self.size <= ALL_TO_ALL {
            return self.reduce_all_to_all(call, data, reduction);
        }
        self.reduce_tree(call, 0, data, reduction)?;
        self.broadcast_tree(call, 0, data)
    }

    /// Fills `data`, of which each rank has only its own segment. All segments have the same
    /// length.
    pub(super) fn all_gather<T: Number>(
        &mut self,
        call: CollectiveCall,
        data: &mut [T],
    ) -> Result<(), StreamError> {
        let pass = RingPass {
            call,
            first_segment: self.rank,
            steps: self.size - 1,
            reduce_steps: 0,
            reduction: Reduction::Sum,
        };
        self.pass_around(pass, data)
    }

    /// Reduces this rank's own segment of `data`. The other segments are undefined afterwards.
    pub(super) fn reduce_scatter<T: Number>(
        &mut self,
        call: CollectiveCall,
        data: &mut [T],
        reduction: Reduction,
    ) -> Result<(), StreamError> {
        let steps = self.size - 1;
        let first_segment = self.left();
        self.pass_around(
            RingPass { call, first_segment, steps, reduce_steps: steps, reduction },
            data,
        )
    }

    /// Returns how many ranks to the right of the root this one is.
    fn distance_from(&self, root: usize) -> usize {
        (self.rank + self.size - root) % self.size
    }

    fn send_elements<T: Number>(
        &mut self,
        to: usize,
        call: CollectiveCall,
        data: &[T],
    ) -> Result<(), StreamError> {
        let payload = number::bytes(data);
        self.send(to, Header::Collective { call, bytes: payload.len() as u64 }, payload)
    }

    /// Receives a rank's data for a collective call.
    fn receive_elements<T: Number>(
        &mut self,
        from: usize,
        call: CollectiveCall,
        data: &mut [T],
        on_receive: OnReceive,
    ) -> Result<(), StreamError> {
        let mut spin = SpinWait::default();
        while !self.accept_call(from, &call, Some(size_of_val(data) as u64))? {
            self.wait(&mut spin, Interest::bytes_from(from))?;
        }
        self.receive_payload(from, data, on_receive)
    }

    /// Receives an accepted payload.
    fn receive_payload<T: Number>(
        &mut self,
        from: usize,
        data: &mut [T],
        on_receive: OnReceive,
    ) -> Result<(), StreamError> {
        let (mut spin, mut received) = (SpinWait::default(), 0);
        loop {
            let count = self.receive_chunk(from, data, received, on_receive);
            received += count;
            if received == data.len() {
                return Ok(());
            }
            if count > 0 {
                spin = SpinWait::default();
            } else {
                self.wait(&mut spin, Interest::bytes_from(from))?;
            }
        }
    }

    /// Receives the available elements of an accepted payload into `data` from `at` on, at most a
    /// chunk, and returns how many these are.
    fn receive_chunk<T: Number>(
        &mut self,
        from: usize,
        data: &mut [T],
        at: usize,
        on_receive: OnReceive,
    ) -> usize {
        let Some(incoming) = self.incoming(from) else { return 0 };
        let available = incoming.payload();
        let count = (available.len().min(CHUNK) / size_of::<T>()).min(data.len() - at);
        let bytes = count * size_of::<T>();
        on_receive.apply(&mut data[at..at + count], &available[..bytes]);
        // Also for 0 bytes: this ends an empty payload.
        incoming.consume_payload(bytes);
        count
    }
}

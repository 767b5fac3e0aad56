//! Collectives in which ranks send whole arrays directly to each other.

use super::super::call::CollectiveCall;
use super::super::number::{self, Number, segment};
use super::super::reduction::{Reduction, combine};
use super::super::streams::{Header, Interest, RankStreams, SpinWait};
use super::super::wire::StreamError;
use super::OnReceive;

impl RankStreams {
    /// A dissemination barrier (D. Hensgen, R. Finkel and U. Manber, "Two algorithms for barrier
    /// synchronization", International Journal of Parallel Programming 17, 1988): in each round a
    /// rank learns, directly or indirectly, of twice as many others.
    pub(crate) fn barrier(&mut self, call: CollectiveCall) -> Result<(), StreamError> {
        let mut distance = 1;
        while distance < self.size {
            let to = (self.rank + distance) % self.size;
            let from = (self.rank + self.size - distance) % self.size;
            self.send(to, Header::Collective { call, bytes: 0 }, &[])?;
            self.receive_elements::<u8>(from, call, &mut [], OnReceive::Replace)?;
            distance *= 2;
        }
        Ok(())
    }

    /// Returns the data of all ranks at the root, and nothing elsewhere.
    pub(crate) fn gather<T: Number>(
        &mut self,
        call: CollectiveCall,
        root: usize,
        own: &[T],
    ) -> Result<Vec<T>, StreamError> {
        if self.rank != root {
            self.send_elements(root, call, own)?;
            return Ok(Vec::new());
        }
        let mut all = vec![T::zeroed(); own.len() * self.size];
        for rank in 0..self.size {
            let place = rank * own.len()..(rank + 1) * own.len();
            if rank == root {
                all[place].copy_from_slice(own);
            } else {
                self.receive_elements(rank, call, &mut all[place], OnReceive::Replace)?;
            }
        }
        Ok(all)
    }

    /// Returns this rank's segment of the root's data.
    pub(crate) fn scatter<T: Number>(
        &mut self,
        call: CollectiveCall,
        root: usize,
        all: &[T],
    ) -> Result<Vec<T>, StreamError> {
        if self.rank == root {
            for rank in (0..self.size).filter(|rank| *rank != root) {
                self.send_elements(rank, call, &all[segment(all.len(), self.size, rank)])?;
            }
            return Ok(all[segment(all.len(), self.size, root)].to_vec());
        }
        // Only the root knows the length.
        let mut spin = SpinWait::default();
        while !self.accept_call(root, &call, None)? {
            self.wait(&mut spin, Interest::bytes_from(root))?;
        }
        let mut own = vec![T::zeroed(); self.payload_bytes(root) / size_of::<T>()];
        self.receive_payload(root, &mut own, OnReceive::Replace)?;
        Ok(own)
    }

    /// An all-reduce in which each rank sends its data to each other rank. All reduce in the order
    /// of ranks.
    pub(super) fn reduce_all_to_all<T: Number>(
        &mut self,
        call: CollectiveCall,
        data: &mut [T],
        reduction: Reduction,
    ) -> Result<(), StreamError> {
        for distance in 1..self.size {
            self.send_elements((self.rank + distance) % self.size, call, data)?;
        }
        let own = data.to_vec();
        for rank in 0..self.size {
            match (rank == self.rank, rank == 0) {
                (true, true) => {}
                (true, false) => combine(reduction, data, number::bytes(&own)),
                (false, true) => self.receive_elements(rank, call, data, OnReceive::Replace)?,
                (false, false) => {
                    self.receive_elements(rank, call, data, OnReceive::Reduce(reduction))?;
                }
            }
        }
        Ok(())
    }

    /// A broadcast along a binomial tree.
    pub(super) fn broadcast_tree<T: Number>(
        &mut self,
        call: CollectiveCall,
        root: usize,
        data: &mut [T],
    ) -> Result<(), StreamError> {
        let distance = self.distance_from(root);
        let rank_at = |distance: usize| (distance + root) % self.size;
        // The lowest bit of a rank's distance is its distance from its parent in the tree.
        let lowest = if distance == 0 {
            self.size.next_power_of_two()
        } else {
            distance & distance.wrapping_neg()
        };
        let children: Vec<usize> = std::iter::successors(Some(lowest / 2), |bit| Some(bit / 2))
            .take_while(|bit| *bit > 0)
            .filter(|bit| distance + bit < self.size)
            .map(|bit| rank_at(distance + bit))
            .collect();
        if distance > 0 {
            let parent = rank_at(distance - lowest);
            self.receive_elements(parent, call, data, OnReceive::Replace)?;
        }
        children.into_iter().try_for_each(|child| self.send_elements(child, call, data))
    }

    /// A reduction along a binomial tree. The data of all ranks but the root is undefined
    /// afterwards.
    pub(super) fn reduce_tree<T: Number>(
        &mut self,
        call: CollectiveCall,
        root: usize,
        data: &mut [T],
        reduction: Reduction,
    ) -> Result<(), StreamError> {
        let distance = self.distance_from(root);
        let mut bit = 1;
        while bit < self.size {
            if distance & bit != 0 {
                return self.send_elements((distance - bit + root) % self.size, call, data);
            }
            if distance + bit < self.size {
                let child = (distance + bit + root) % self.size;
                self.receive_elements(child, call, data, OnReceive::Reduce(reduction))?;
            }
            bit *= 2;
        }
        Ok(())
    }
}

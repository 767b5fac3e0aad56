//! What all ranks do together.
//!
//! Large arrays go round the ring: a reduce-scatter and an all-gather of one segment a rank, so
//! that each rank sends and receives twice the array, whatever their number (P. Patarasuk and X.
//! Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of
//! Parallel and Distributed Computing 69, 2009). The steps are not told apart on the wire: a piece
//! of a segment goes on as soon as it has been reduced, while the next one arrives.
//!
//! Small arrays take fewer steps: each rank sends its own to all others, or, in a larger ring,
//! along a binomial tree.
//!
//! The order in which values are joined follows from the size of the ring and the length of the
//! array alone, and what one rank has computed the others copy. So results are the same on all
//! ranks, bit for bit, and from run to run.

use super::call::{Call, Header};
use super::element::{self, Number, Reduction, combine, segment};
use super::lines::{Backoff, Lines, Wanted};
use super::wire::Trouble;

/// Arrays up to this many bytes count as small.
const SMALL: usize = 16 << 10;
/// Rings up to this size send small arrays from each rank to each.
const ALL_TO_ALL: usize = 8;
/// Bytes that are taken in before what follows from them is sent: they stay in the processor's
/// cache meanwhile.
const PIECE: usize = 128 << 10;

/// What becomes of what arrives.
#[derive(Clone, Copy)]
enum Join {
    Replace,
    With(Reduction),
}

impl Join {
    fn join<T: Number>(self, own: &mut [T], incoming: &[u8]) {
        match self {
            Join::Replace => bytemuck::cast_slice_mut(own).copy_from_slice(incoming),
            Join::With(how) => combine(how, own, incoming),
        }
    }
}

/// A way round the ring.
struct Circuit {
    call: Call,
    /// The segment that is sent first; each next one is the one before it.
    first: usize,
    steps: usize,
    /// For the steps before this one, what arrives is joined with what is there. From then on it
    /// replaces it.
    joined: usize,
    how: Reduction,
}

impl Lines {
    pub(super) fn barrier(&mut self, call: Call) -> Result<(), Trouble> {
        let mut distance = 1;
        // After each round a rank has heard, directly or not, of twice as many others.
        while distance < self.size {
            self.put((self.rank + distance) % self.size, Header::Call { call, bytes: 0 }, &[])?;
            self.take_part::<u8>(
                (self.rank + self.size - distance) % self.size,
                call,
                &mut [],
                Join::Replace,
            )?;
            distance *= 2;
        }
        Ok(())
    }

    pub(super) fn broadcast<T: Number>(
        &mut self,
        call: Call,
        root: usize,
        data: &mut [T],
    ) -> Result<(), Trouble> {
        if size_of_val(data) <= SMALL {
            return self.broadcast_tree(call, root, data);
        }
        let place = self.place(root);
        let from = (place > 0).then(|| self.left());
        let to = (place + 1 < self.size).then(|| self.right());
        self.relay(call, from, to, data, Join::Replace)
    }

    pub(super) fn reduce<T: Number>(
        &mut self,
        call: Call,
        root: usize,
        data: &mut [T],
        how: Reduction,
    ) -> Result<(), Trouble> {
        if self.size == 1 {
            return Ok(());
        }
        // The data of the others stays as it is.
        let mut copy = Vec::new();
        let data = if self.rank == root {
            data
        } else {
            copy.extend_from_slice(data);
            &mut copy
        };
        if size_of_val(data) <= SMALL {
            return self.reduce_tree(call, root, data, how);
        }
        // The root comes last.
        let place = self.place(root);
        let from = (place != 1).then(|| self.left());
        let to = (place != 0).then(|| self.right());
        self.relay(call, from, to, data, Join::With(how))
    }

    pub(super) fn all_reduce<T: Number>(
        &mut self,
        call: Call,
        data: &mut [T],
        how: Reduction,
    ) -> Result<(), Trouble> {
        if self.size == 1 {
            return Ok(());
        }
        if size_of_val(data) > SMALL {
            let (first, turn) = (self.rank, self.size - 1);
            return self
                .circulate(Circuit { call, first, steps: 2 * turn, joined: turn, how }, data);
        }
        if self.size <= ALL_TO_ALL {
            return self.reduce_all_to_all(call, data, how);
        }
        self.reduce_tree(call, 0, data, how)?;
        self.broadcast_tree(call, 0, data)
    }

    /// Each rank has its own part of `data`, of the same length each, and gets the others'.
    pub(super) fn all_gather<T: Number>(
        &mut self,
        call: Call,
        data: &mut [T],
    ) -> Result<(), Trouble> {
        let (first, steps) = (self.rank, self.size - 1);
        self.circulate(Circuit { call, first, steps, joined: 0, how: Reduction::Sum }, data)
    }

    /// Afterwards each rank has its own segment of what `data` is together. The other segments are
    /// of no use.
    pub(super) fn reduce_scatter<T: Number>(
        &mut self,
        call: Call,
        data: &mut [T],
        how: Reduction,
    ) -> Result<(), Trouble> {
        let (first, steps) = (self.left(), self.size - 1);
        self.circulate(Circuit { call, first, steps, joined: steps, how }, data)
    }

    /// The root gets all parts, which have the same length.
    pub(super) fn gather<T: Number>(
        &mut self,
        call: Call,
        root: usize,
        part: &[T],
    ) -> Result<Vec<T>, Trouble> {
        if self.rank != root {
            let payload = element::bytes(part);
            self.put(root, Header::Call { call, bytes: payload.len() as u64 }, payload)?;
            return Ok(Vec::new());
        }
        let mut all = vec![T::zeroed(); part.len() * self.size];
        for rank in 0..self.size {
            let own = rank * part.len()..(rank + 1) * part.len();
            if rank == root {
                all[own].copy_from_slice(part);
            } else {
                self.take_part(rank, call, &mut all[own], Join::Replace)?;
            }
        }
        Ok(all)
    }

    /// Each rank gets its segment of what the root has.
    pub(super) fn scatter<T: Number>(
        &mut self,
        call: Call,
        root: usize,
        all: &[T],
    ) -> Result<Vec<T>, Trouble> {
        if self.rank == root {
            for rank in (0..self.size).filter(|rank| *rank != root) {
                let payload = element::bytes(&all[segment(all.len(), self.size, rank)]);
                self.put(rank, Header::Call { call, bytes: payload.len() as u64 }, payload)?;
            }
            return Ok(all[segment(all.len(), self.size, root)].to_vec());
        }
        let mut backoff = Backoff::default();
        while !self.is_called(root, &call, None)? {
            self.wait(&mut backoff, Wanted { from: Some(root), to: None })?;
        }
        let mut own = vec![T::zeroed(); self.announced(root) / size_of::<T>()];
        self.take_rest(root, &mut own, Join::Replace)?;
        Ok(own)
    }

    /// How many ranks this one is to the right of the root.
    fn place(&self, root: usize) -> usize {
        (self.rank + self.size - root) % self.size
    }

    fn send_part<T: Number>(&mut self, to: usize, call: Call, data: &[T]) -> Result<(), Trouble> {
        let payload = element::bytes(data);
        self.put(to, Header::Call { call, bytes: payload.len() as u64 }, payload)
    }

    /// Takes what another rank gives to a collective.
    fn take_part<T: Number>(
        &mut self,
        from: usize,
        call: Call,
        data: &mut [T],
        join: Join,
    ) -> Result<(), Trouble> {
        let mut backoff = Backoff::default();
        while !self.is_called(from, &call, Some(size_of_val(data) as u64))? {
            self.wait(&mut backoff, Wanted { from: Some(from), to: None })?;
        }
        self.take_rest(from, data, join)
    }

    /// Takes a payload that has begun.
    fn take_rest<T: Number>(
        &mut self,
        from: usize,
        data: &mut [T],
        join: Join,
    ) -> Result<(), Trouble> {
        let (mut backoff, mut done) = (Backoff::default(), 0);
        loop {
            let moved = self.take_piece(from, data, done, join);
            done += moved;
            if done == data.len() {
                return Ok(());
            }
            if moved > 0 {
                backoff = Backoff::default();
            } else {
                self.wait(&mut backoff, Wanted { from: Some(from), to: None })?;
            }
        }
    }

    /// Joins what has arrived with `data` from `at` on, and says how many elements that were.
    fn take_piece<T: Number>(
        &mut self,
        from: usize,
        data: &mut [T],
        at: usize,
        join: Join,
    ) -> usize {
        let Some(inlet) = self.inlet(from) else { return 0 };
        let there = inlet.payload();
        let count = (there.len().min(PIECE) / size_of::<T>()).min(data.len() - at);
        let bytes = count * size_of::<T>();
        join.join(&mut data[at..at + count], &there[..bytes]);
        // Even if that is nothing: the end of an empty payload is taken notice of.
        inlet.take(bytes);
        count
    }

    /// Each rank sends all that it has to each other one, and joins it in the order of ranks.
    fn reduce_all_to_all<T: Number>(
        &mut self,
        call: Call,
        data: &mut [T],
        how: Reduction,
    ) -> Result<(), Trouble> {
        for distance in 1..self.size {
            self.send_part((self.rank + distance) % self.size, call, data)?;
        }
        let own = data.to_vec();
        for rank in 0..self.size {
            match (rank == self.rank, rank == 0) {
                (true, true) => {}
                (true, false) => combine(how, data, element::bytes(&own)),
                (false, true) => self.take_part(rank, call, data, Join::Replace)?,
                (false, false) => self.take_part(rank, call, data, Join::With(how))?,
            }
        }
        Ok(())
    }

    fn broadcast_tree<T: Number>(
        &mut self,
        call: Call,
        root: usize,
        data: &mut [T],
    ) -> Result<(), Trouble> {
        let place = self.place(root);
        let at = |place: usize| (place + root) % self.size;
        // The lowest bit of a place is what it is away from who sends to it.
        let lowest =
            if place == 0 { self.size.next_power_of_two() } else { place & place.wrapping_neg() };
        let others: Vec<usize> = std::iter::successors(Some(lowest / 2), |bit| Some(bit / 2))
            .take_while(|bit| *bit > 0)
            .filter(|bit| place + bit < self.size)
            .map(|bit| at(place + bit))
            .collect();
        if place > 0 {
            self.take_part(at(place - lowest), call, data, Join::Replace)?;
        }
        others.into_iter().try_for_each(|other| self.send_part(other, call, data))
    }

    fn reduce_tree<T: Number>(
        &mut self,
        call: Call,
        root: usize,
        data: &mut [T],
        how: Reduction,
    ) -> Result<(), Trouble> {
        let place = self.place(root);
        let mut bit = 1;
        while bit < self.size {
            if place & bit != 0 {
                return self.send_part((place - bit + root) % self.size, call, data);
            }
            if place + bit < self.size {
                self.take_part((place + bit + root) % self.size, call, data, Join::With(how))?;
            }
            bit *= 2;
        }
        Ok(())
    }

    /// Passes an array along a chain of ranks, piece by piece.
    fn relay<T: Number>(
        &mut self,
        call: Call,
        from: Option<usize>,
        to: Option<usize>,
        data: &mut [T],
        join: Join,
    ) -> Result<(), Trouble> {
        let bytes = size_of_val(data) as u64;
        let mut taken = if from.is_some() { 0 } else { data.len() };
        let mut sent = if to.is_some() { 0 } else { data.len() };
        let (mut backoff, mut begun) = (Backoff::default(), false);
        if let Some(to) = to {
            self.outlet(to)?.begin(Header::Call { call, bytes });
        }
        loop {
            let mut moved = 0;
            if let Some(from) = from.filter(|_| taken < data.len()) {
                begun = begun || self.is_called(from, &call, Some(bytes))?;
                if begun {
                    moved = self.take_piece(from, data, taken, join);
                    taken += moved;
                }
            }
            if let Some(to) = to {
                let written =
                    self.outlet(to)?.write(element::bytes(&data[sent..taken])) / size_of::<T>();
                sent += written;
                moved += written;
            }
            let flushed = match to {
                Some(to) => sent < data.len() || self.outlet(to)?.flush(),
                None => true,
            };
            if taken == data.len() && sent == data.len() && flushed {
                return Ok(());
            }
            if moved > 0 {
                backoff = Backoff::default();
                continue;
            }
            let from = from.filter(|_| taken < data.len());
            let to = to.filter(|_| sent < taken || !flushed);
            self.wait(&mut backoff, Wanted { from, to })?;
        }
    }

    /// Sends segments to the right while others come from the left. What is sent in one step is
    /// what came in the step before, so a piece can go on as soon as it is there.
    fn circulate<T: Number>(&mut self, circuit: Circuit, data: &mut [T]) -> Result<(), Trouble> {
        let Circuit { call, first, steps, joined, how } = circuit;
        let (size, length) = (self.size, data.len());
        let (left, right) = (self.left(), self.right());
        let outgoing = |step: usize| segment(length, size, (first + 2 * size - step) % size);
        let incoming = |step: usize| outgoing(step + 1);
        let all = |segments: &dyn Fn(usize) -> std::ops::Range<usize>| -> usize {
            (0..steps).map(|step| segments(step).len()).sum()
        };
        let (to_send, to_take) = (all(&outgoing), all(&incoming));
        let bytes = |elements: usize| (elements * size_of::<T>()) as u64;
        if steps == 0 {
            return Ok(());
        }
        self.outlet(right)?.begin(Header::Call { call, bytes: bytes(to_send) });
        // Step and place in its segment, of what goes and of what comes.
        let (mut sending, mut sent) = ((0, 0), 0);
        let (mut taking, mut taken) = ((0, 0), 0);
        let (mut backoff, mut begun) = (Backoff::default(), false);
        loop {
            let mut moved = 0;
            begun = begun || self.is_called(left, &call, Some(bytes(to_take)))?;
            if begun && taken < to_take {
                let (step, at) = &mut taking;
                let own = incoming(*step);
                let join = if *step < joined { Join::With(how) } else { Join::Replace };
                let count = self.take_piece(left, &mut data[own.clone()], *at, join);
                (*at, taken, moved) = (*at + count, taken + count, count);
                if *at == own.len() {
                    (*step, *at) = (*step + 1, 0);
                    // Also if there was nothing in it.
                    moved += 1;
                }
            }
            while sent < to_send {
                let (step, at) = &mut sending;
                let own = outgoing(*step);
                let there = match *step {
                    0 => own.len(),
                    step if taking.0 >= step => own.len(),
                    step if taking.0 + 1 == step => taking.1,
                    _ => 0,
                };
                let ready = &data[own.start + *at..own.start + there];
                let written = self.outlet(right)?.write(element::bytes(ready)) / size_of::<T>();
                (*at, sent, moved) = (*at + written, sent + written, moved + written);
                if *at < own.len() {
                    break;
                }
                (*step, *at) = (*step + 1, 0);
            }
            let flushed = sent < to_send || self.outlet(right)?.flush();
            if begun && taken == to_take && sent == to_send && flushed {
                return Ok(());
            }
            if moved > 0 {
                backoff = Backoff::default();
                continue;
            }
            let blocked = !flushed
                || (sent < to_send && (sending.0 == 0 || taking >= (sending.0 - 1, sending.1 + 1)));
            let from = (!begun || taken < to_take).then_some(left);
            self.wait(&mut backoff, Wanted { from, to: blocked.then_some(right) })?;
        }
    }
}

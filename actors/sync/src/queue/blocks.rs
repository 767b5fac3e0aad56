//! Encoded elements, many to a block, so that each costs little.

use std::collections::VecDeque;

use bytes::Bytes;
use fiber_core::value_memory;
use fiber_transport::Received;
use fiber_values::blob::Blobs;
use fiber_values::codec::EncodedValue;
use fiber_values::spill;

use super::encoded::Encoded;

/// Bytes before each element: its length.
pub(super) const PREFIX: usize = 4;
/// The length up to which blocks are filled, in bytes. Longer blocks are kept as they came.
pub(super) const FULL: usize = 32 << 10;
/// The length from which a block counts towards the memory of values. Elements that are put and
/// taken one by one are not worth it.
const COUNTED: usize = 1 << 10;

/// Consecutive elements, each preceded by its length.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) bytes: Bytes,
    /// The blobs of its only element. Blocks of several elements have none.
    pub(super) blobs: Blobs,
    pub(super) count: usize,
    /// The position of its first element among all that were ever pushed to the same [`Blocks`],
    /// which set it.
    position: u64,
}

impl Block {
    /// Reads a block that another process sent. Returns `None` if the lengths in it are wrong, or
    /// if several elements have blobs.
    pub(super) fn read(block: Received, count: usize) -> Option<Block> {
        let Received { bytes, blobs } = block;
        if count != 1 && !blobs.is_empty() {
            return None;
        }
        let mut rest = &bytes[..];
        for _ in 0..count {
            let length = length(rest)?;
            rest = rest.get(PREFIX + length..)?;
        }
        rest.is_empty().then_some(Block { bytes, blobs, count, position: 0 })
    }

    /// Returns a block of one element, whose bytes begin with its length.
    pub(super) fn single(bytes: Bytes, blobs: Blobs) -> Block {
        Block { bytes, blobs, count: 1, position: 0 }
    }

    /// Returns a block of one element, whose bytes are copied.
    pub(super) fn of(element: EncodedValue) -> Block {
        let EncodedValue { bytes, blobs } = element;
        let mut prefixed = Vec::with_capacity(PREFIX + bytes.len());
        prefixed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        prefixed.extend_from_slice(&bytes);
        Block::single(prefixed.into(), blobs)
    }

    /// Returns the only element.
    pub(super) fn into_element(self) -> EncodedValue {
        EncodedValue { bytes: self.bytes.slice(PREFIX..), blobs: self.blobs }
    }

    /// Returns the elements, without copying them.
    pub(super) fn into_elements(mut self) -> Vec<EncodedValue> {
        let mut elements = Vec::with_capacity(self.count);
        while self.count > 1 {
            elements.push(self.split(1).into_element());
        }
        elements.push(self.into_element());
        elements
    }

    /// Returns the position of the first element, once the block was pushed.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the length in bytes, with the blobs.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.blobs.total_len()
    }

    /// Returns whether the block is not copied together with others: if it has `limit` bytes, or
    /// blobs.
    pub(super) fn stays_alone(&self, limit: usize) -> bool {
        self.bytes.len() >= limit || !self.blobs.is_empty()
    }

    /// Removes the first elements and returns them.
    pub(super) fn split(&mut self, count: usize) -> Block {
        let mut end = 0;
        for _ in 0..count {
            end +=
                PREFIX + length(&self.bytes[end..]).expect("blocks are read before they are used");
        }
        let bytes = self.bytes.split_to(end);
        let first = Block { bytes, blobs: Blobs::default(), count, position: self.position };
        self.count -= count;
        self.position += count as u64;
        first
    }
}

fn length(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk::<PREFIX>().map(|prefix| u32::from_le_bytes(*prefix) as usize)
}

/// A queue of elements. Elements that were taken may be put back to their positions.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Blocks in the order of their positions.
    whole: VecDeque<Block>,
    /// The block that is being filled.
    tail: Vec<u8>,
    in_tail: usize,
    count: usize,
    bytes: usize,
    /// The position of the next element that is pushed.
    next: u64,
    /// The position of the first element that was never taken.
    fresh: u64,
}

impl Blocks {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the number of elements that were ever pushed.
    pub(super) fn pushed(&self) -> u64 {
        self.next
    }

    /// Returns the number of elements that were ever taken. One that was put back counts once.
    pub(super) fn taken(&self) -> u64 {
        self.fresh
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the first element was taken before, and put back.
    pub(super) fn begins_with_returned(&self) -> bool {
        self.whole.front().is_some_and(|front| front.position < self.fresh)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn clear(&mut self) {
        *self = Blocks { next: self.next, fresh: self.next, ..Blocks::default() };
    }

    pub(super) fn push(&mut self, encoded: Encoded) {
        if encoded.is_long() {
            return self.push_block(encoded.into_block());
        }
        self.append(encoded.as_block(), 1);
        encoded.recycle();
    }

    /// Adds a block at the end. A short one is copied: it may be a slice of a large frame, which it
    /// would keep in memory.
    pub(super) fn push_block(&mut self, mut block: Block) {
        if !block.stays_alone(FULL) {
            return self.append(&block.bytes, block.count);
        }
        self.seal();
        self.keep(&mut block.bytes, &mut block.blobs);
        self.count += block.count;
        self.bytes += block.len();
        block.position = self.next;
        self.next += block.count as u64;
        self.whole.push_back(block);
    }

    /// Adds a block at the end whose first element has this position: that of the next element or
    /// a later one.
    pub(super) fn push_at(&mut self, position: u64, block: Block) {
        if position != self.next {
            self.seal();
            self.next = position;
        }
        self.push_block(block);
    }

    /// Puts a block that was taken back to its position.
    pub(super) fn put_back(&mut self, block: Block) {
        self.count += block.count;
        self.bytes += block.len();
        let index = self.whole.partition_point(|other| other.position < block.position);
        self.whole.insert(index, block);
    }

    /// Puts back an element whose position is not known: to before all others.
    pub(super) fn put_back_first(&mut self, element: EncodedValue) {
        let position =
            self.whole.front().map_or(self.fresh, |front| front.position).saturating_sub(1);
        self.put_back(Block { position, ..Block::of(element) });
    }

    fn append(&mut self, bytes: &[u8], count: usize) {
        self.tail.extend_from_slice(bytes);
        self.in_tail += count;
        self.next += count as u64;
        self.count += count;
        self.bytes += bytes.len();
        if self.tail.len() >= FULL {
            self.seal();
        }
    }

    /// Counts a value, or writes it to a file if there is no room in memory. An empty queue takes
    /// one without that: it is on its way through.
    fn keep(&self, bytes: &mut Bytes, blobs: &mut Blobs) {
        if !self.whole.is_empty()
            && value_memory::is_full()
            && spill::is_possible()
            && let Ok(spilled) = spill::spill(bytes, blobs)
        {
            (*bytes, *blobs) = spilled;
        } else {
            *bytes = value_memory::stored(std::mem::take(bytes), blobs.private_len());
        }
    }

    fn seal(&mut self) {
        if self.in_tail > 0 {
            let mut bytes = Bytes::from(std::mem::take(&mut self.tail));
            if bytes.len() >= COUNTED {
                self.keep(&mut bytes, &mut Blobs::default());
            }
            let count = std::mem::take(&mut self.in_tail);
            let position = self.next - count as u64;
            self.whole.push_back(Block { bytes, blobs: Blobs::default(), count, position });
        }
    }

    /// Removes the first element and returns it.
    pub(super) fn pop(&mut self) -> Option<EncodedValue> {
        self.pop_block().map(Block::into_element)
    }

    /// Removes the first element and returns it as a block.
    pub(super) fn pop_block(&mut self) -> Option<Block> {
        if self.whole.is_empty() {
            self.seal();
        }
        let front = self.whole.front_mut()?;
        let block = if front.count == 1 {
            self.whole.pop_front().expect("there is one")
        } else {
            front.split(1)
        };
        self.took(&block);
        Some(block)
    }

    fn took(&mut self, block: &Block) {
        self.count -= block.count;
        self.bytes -= block.len();
        self.fresh = self.fresh.max(block.position + block.count as u64);
    }

    /// Removes the first elements and returns them: at most `count` elements and `bytes` bytes with
    /// their blobs, but at least one block.
    pub(super) fn take(&mut self, count: usize, bytes: usize) -> Vec<Block> {
        let (mut wanted, mut room) = (count, bytes);
        let mut taken: Vec<Block> = Vec::new();
        while wanted > 0 {
            if self.whole.is_empty() {
                self.seal();
            }
            let Some(front) = self.whole.front_mut() else { break };
            if !taken.is_empty() && front.len() > room {
                break;
            }
            let block = if front.count <= wanted {
                self.whole.pop_front().expect("there is one")
            } else {
                front.split(wanted)
            };
            wanted -= block.count;
            room = room.saturating_sub(block.len());
            self.took(&block);
            taken.push(block);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use fiber_values::Array;
    use fiber_values::blob::Blob;

    use super::*;

    fn drain(blocks: &mut Blocks) -> Vec<u32> {
        std::iter::from_fn(|| blocks.pop()).map(|element| element.decode().unwrap()).collect()
    }

    #[test]
    fn elements_keep_their_order_when_they_are_taken_and_put_back() {
        let mut blocks = Blocks::default();
        for n in 0..10_000_u32 {
            blocks.push(Encoded::new(&n, 100).unwrap());
        }
        let mut first = blocks.take(7000, usize::MAX);
        assert_eq!(first.iter().map(|block| block.count).sum::<usize>(), 7000);
        assert_eq!(blocks.len(), 3000);
        for mut block in first.drain(..) {
            let half = block.split(block.count / 2);
            blocks.put_back(block);
            blocks.put_back(half);
        }
        assert!(blocks.begins_with_returned());
        assert_eq!((blocks.pushed(), blocks.taken()), (10_000, 7000));
        let first = blocks.pop().unwrap();
        blocks.put_back_first(first);
        assert_eq!(drain(&mut blocks), Vec::from_iter(0..10_000));
        assert_eq!((blocks.len(), blocks.bytes()), (0, 0));
        blocks.push_block(Block::of(EncodedValue::new(&5_u32).unwrap()));
        assert_eq!(drain(&mut blocks), [5]);
    }

    #[test]
    fn a_block_with_wrong_lengths_is_refused() {
        let read = |bytes| Block::read(Bytes::from_static(bytes).into(), 1);
        assert!(read(&[1, 0, 0, 0, 7]).is_some());
        assert!(read(&[2, 0, 0, 0, 7]).is_none());
        assert!(read(&[1, 0, 0, 0, 7, 9]).is_none());
        assert!(read(&[1, 0, 0]).is_none());
    }

    #[test]
    fn only_a_single_element_may_have_blobs() {
        let blobs = Blobs::from(vec![Blob::private(Bytes::from_static(b"blob"))]);
        let read = |bytes: &'static [u8], count| {
            Block::read(Received { bytes: bytes.into(), blobs: blobs.clone() }, count)
        };
        assert_eq!(read(&[1, 0, 0, 0, 7], 1).unwrap().len(), 9);
        assert!(read(&[1, 0, 0, 0, 7, 0, 0, 0, 0], 2).is_none());
        assert!(read(&[], 0).is_none());
    }

    #[test]
    fn arrays_count_as_long_and_stay_in_their_place() {
        const LEN: usize = 100_000;
        let array = |n: u8| Array::from(vec![n; LEN]);
        let limit = LEN as u64;
        assert!(Encoded::new(&array(0), limit).is_err(), "the encoding is longer than the array");
        let mut blocks = Blocks::default();
        for n in 0..6 {
            let element = if n % 2 == 0 { vec![array(n)] } else { vec![] };
            blocks.push(Encoded::new(&element, 2 * limit).unwrap());
        }
        assert!((3 * LEN..3 * LEN + 200).contains(&blocks.bytes()));
        let taken = blocks.take(6, 2 * LEN);
        assert_eq!(taken.len(), 2, "the second array would exceed the limit");
        assert!((2 * LEN..2 * LEN + 200).contains(&blocks.bytes()));
        taken.into_iter().for_each(|block| blocks.put_back(block));
        let first = blocks.pop().unwrap();
        blocks.put_back_first(first);
        for n in 0..6 {
            let element: Vec<Array<u8>> = blocks.pop().unwrap().decode().unwrap();
            assert!(element.iter().all(|array| **array == [n; LEN]));
            assert_eq!(element.len(), usize::from(n % 2 == 0));
        }
        assert_eq!((blocks.len(), blocks.bytes()), (0, 0));
    }
}

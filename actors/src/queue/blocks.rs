//! Encoded elements, many to a block, so that each costs little.

use std::cell::Cell;
use std::collections::VecDeque;

use bytes::Bytes;
use fiber_core::{Result, codec};
use serde::Serialize;

use crate::objects::PortRef;

/// Bytes before each element: its length.
const PREFIX: usize = 4;
/// Blocks are filled up to this length; longer ones are taken as they are.
const FULL: usize = 32 << 10;
/// Room before an encoded element for the head of a frame.
pub(super) const HEAD: usize = PortRef::HEAD + 5;

/// QueueStream that follow each other, each preceded by its length.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) bytes: Bytes,
    pub(super) count: usize,
    /// The place of its first element among all that were ever pushed to the same [`Blocks`], which
    /// give it.
    place: u64,
}

impl Block {
    /// A block that another node sent. `None` if it is none.
    pub(super) fn read(bytes: Bytes, count: usize) -> Option<Block> {
        let mut rest = &bytes[..];
        for _ in 0..count {
            let length = length(rest)?;
            rest = rest.get(PREFIX + length..)?;
        }
        rest.is_empty().then_some(Block { bytes, count, place: 0 })
    }

    /// A block of one element.
    pub(super) fn of(element: &[u8]) -> Block {
        let mut bytes = Vec::with_capacity(PREFIX + element.len());
        bytes.extend_from_slice(&(element.len() as u32).to_le_bytes());
        bytes.extend_from_slice(element);
        Block { bytes: bytes.into(), count: 1, place: 0 }
    }

    /// The only element.
    pub(super) fn into_element(self) -> Bytes {
        self.bytes.slice(PREFIX..)
    }

    /// Takes the first elements out.
    pub(super) fn split(&mut self, count: usize) -> Block {
        let mut end = 0;
        for _ in 0..count {
            end +=
                PREFIX + length(&self.bytes[end..]).expect("blocks are read before they are used");
        }
        let first = Block { bytes: self.bytes.split_to(end), count, place: self.place };
        self.count -= count;
        self.place += count as u64;
        first
    }
}

fn length(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk::<PREFIX>().map(|prefix| u32::from_le_bytes(*prefix) as usize)
}

/// An element as it is to be sent or stored: room for a head, its length, and its bytes.
pub(super) struct Encoded(Vec<u8>);

impl Encoded {
    pub(super) fn new<T: Serialize + ?Sized>(value: &T, limit: u64) -> Result<Encoded> {
        let mut buffer = SCRATCH.take();
        buffer.clear();
        buffer.resize(HEAD + PREFIX, 0);
        codec::append(&mut buffer, value)?;
        let length = buffer.len() - HEAD - PREFIX;
        codec::check_size(length, limit, || {
            format!("an element of type `{}`", std::any::type_name::<T>())
        })?;
        let length = u32::try_from(length).expect("`max_message` is at most 2 GiB");
        buffer[HEAD..HEAD + PREFIX].copy_from_slice(&length.to_le_bytes());
        Ok(Encoded(buffer))
    }

    /// Whether it is worth a frame of its own.
    pub(super) fn is_long(&self) -> bool {
        self.0.len() >= FULL
    }

    /// The element as a block, which is copied.
    pub(super) fn as_block(&self) -> &[u8] {
        &self.0[HEAD..]
    }

    /// The element alone.
    pub(super) fn element(&self) -> &[u8] {
        &self.0[HEAD + PREFIX..]
    }

    /// The element after room for the head of a frame.
    pub(super) fn into_frame(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn into_block(self) -> Block {
        Block { bytes: Bytes::from(self.0).slice(HEAD..), count: 1, place: 0 }
    }

    /// Gives the memory back to the next.
    pub(super) fn recycle(self) {
        SCRATCH.set(self.0);
    }
}

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A queue of elements. What has left may come back, to its place.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// In the order of their places.
    whole: VecDeque<Block>,
    /// What is being filled.
    tail: Vec<u8>,
    in_tail: usize,
    count: usize,
    bytes: usize,
    /// The place of the next that is pushed.
    next: u64,
    /// The place of the first that has never left.
    fresh: u64,
}

impl Blocks {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the first element has left before, and came back.
    pub(super) fn begins_with_returned(&self) -> bool {
        self.whole.front().is_some_and(|front| front.place < self.fresh)
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

    /// A short block is copied: its memory may be shared with much that is not needed any more.
    pub(super) fn push_block(&mut self, mut block: Block) {
        if block.bytes.len() < FULL {
            return self.append(&block.bytes, block.count);
        }
        self.seal();
        self.count += block.count;
        self.bytes += block.bytes.len();
        block.place = self.next;
        self.next += block.count as u64;
        self.whole.push_back(block);
    }

    /// Takes back what has left, to before all that was pushed after it.
    pub(super) fn put_back(&mut self, block: Block) {
        self.count += block.count;
        self.bytes += block.bytes.len();
        let index = self.whole.partition_point(|other| other.place < block.place);
        self.whole.insert(index, block);
    }

    /// Takes an element back whose place is not known any more: to before all others.
    pub(super) fn put_back_first(&mut self, element: &[u8]) {
        let place = self.whole.front().map_or(self.fresh, |front| front.place).saturating_sub(1);
        self.put_back(Block { place, ..Block::of(element) });
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

    fn seal(&mut self) {
        if self.in_tail > 0 {
            let bytes = Bytes::from(std::mem::take(&mut self.tail));
            let count = std::mem::take(&mut self.in_tail);
            self.whole.push_back(Block { bytes, count, place: self.next - count as u64 });
        }
    }

    /// The first element.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        self.pop_block().map(Block::into_element)
    }

    /// The first element, as a block.
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
        self.bytes -= block.bytes.len();
        self.fresh = self.fresh.max(block.place + block.count as u64);
    }

    /// The first elements: at most so many, and no more than so many bytes, but at least one.
    pub(super) fn take(&mut self, count: usize, bytes: usize) -> Vec<Block> {
        let (mut wanted, mut room) = (count, bytes);
        let mut taken: Vec<Block> = Vec::new();
        while wanted > 0 {
            if self.whole.is_empty() {
                self.seal();
            }
            let Some(front) = self.whole.front_mut() else { break };
            if !taken.is_empty() && front.bytes.len() > room {
                break;
            }
            let block = if front.count <= wanted {
                self.whole.pop_front().expect("there is one")
            } else {
                front.split(wanted)
            };
            wanted -= block.count;
            room = room.saturating_sub(block.bytes.len());
            self.took(&block);
            taken.push(block);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(blocks: &mut Blocks) -> Vec<u32> {
        std::iter::from_fn(|| blocks.pop())
            .map(|element| codec::decode(&element).unwrap())
            .collect()
    }

    #[test]
    fn elements_come_out_in_order_whatever_way_they_went_in_and_out() {
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
        let first = blocks.pop().unwrap();
        blocks.put_back_first(&first);
        assert_eq!(drain(&mut blocks), Vec::from_iter(0..10_000));
        assert_eq!((blocks.len(), blocks.bytes()), (0, 0));
        blocks.push_block(Block::of(&codec::encode(&5_u32).unwrap()));
        assert_eq!(drain(&mut blocks), [5]);
    }

    #[test]
    fn what_is_no_block_is_not_taken_for_one() {
        assert!(Block::read(Bytes::from_static(&[1, 0, 0, 0, 7]), 1).is_some());
        assert!(Block::read(Bytes::from_static(&[2, 0, 0, 0, 7]), 1).is_none());
        assert!(Block::read(Bytes::from_static(&[1, 0, 0, 0, 7, 9]), 1).is_none());
        assert!(Block::read(Bytes::from_static(&[1, 0, 0]), 1).is_none());
    }
}

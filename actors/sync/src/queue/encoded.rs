//! One encoded element.

use std::cell::Cell;

use bytes::{Buf, Bytes};
use fiber_core::Result;
use fiber_values::blob::Blobs;
use fiber_values::codec::{self, EncodedValue};
use serde::Serialize;

use super::blocks::{Block, FULL, PREFIX};
use fiber_runtime::objects::PortRef;

/// Room before an encoded element for the head of a frame: the port, PUT and a count.
pub(super) const HEAD: usize = PortRef::HEAD + 5;

/// Room in an item of a stream for its number.
const NUMBER: usize = size_of::<u64>();

/// Splits an item of a stream from its number. Returns `None` if it has none.
pub(crate) fn split_number(mut item: EncodedValue) -> Option<(u64, EncodedValue)> {
    let number = u64::from_le_bytes(*item.bytes.first_chunk::<NUMBER>()?);
    item.bytes.advance(NUMBER);
    Some((number, item))
}

/// An element ready to be sent or stored.
pub(super) struct Encoded {
    /// Room for a head, the length of the element's bytes, and the bytes.
    buffer: Vec<u8>,
    blobs: Blobs,
}

impl Encoded {
    /// Encodes a value.
    ///
    /// # Errors
    /// `Error::Encode`, or `Error::TooLarge` if it has more than `limit` bytes, with its blobs.
    pub(super) fn new<T: Serialize + ?Sized>(value: &T, limit: u64) -> Result<Encoded> {
        Encoded::behind(0, value, limit)
    }

    /// Encodes an item of a stream, with room for its [number](Encoded::set_number).
    ///
    /// # Errors
    /// As [`new`](Encoded::new).
    pub(super) fn item<T: Serialize + ?Sized>(value: &T, limit: u64) -> Result<Encoded> {
        Encoded::behind(NUMBER, value, limit)
    }

    /// Encodes a value behind `room` bytes of the element.
    fn behind<T: Serialize + ?Sized>(room: usize, value: &T, limit: u64) -> Result<Encoded> {
        // A thread that ends may have lost it.
        let mut buffer = SCRATCH.try_with(Cell::take).unwrap_or_default();
        buffer.clear();
        buffer.resize(HEAD + PREFIX + room, 0);
        let blobs = codec::append_apart(&mut buffer, value)?;
        let length = buffer.len() - HEAD - PREFIX;
        codec::check_size(length + blobs.total_len(), limit, || {
            format!("an element of type `{}`", std::any::type_name::<T>())
        })?;
        let length = u32::try_from(length).expect("`max_message` is at most 2 GiB");
        buffer[HEAD..HEAD + PREFIX].copy_from_slice(&length.to_le_bytes());
        Ok(Encoded { buffer, blobs })
    }

    /// Writes the number of an item of a stream in front of it.
    pub(super) fn set_number(&mut self, number: u64) {
        self.buffer[HEAD + PREFIX..][..NUMBER].copy_from_slice(&number.to_le_bytes());
    }

    /// Returns whether the element gets a frame of its own: if it is long, or has blobs.
    pub(super) fn is_long(&self) -> bool {
        self.buffer.len() >= FULL || !self.blobs.is_empty()
    }

    /// Returns the element with its length, for the caller to copy.
    pub(super) fn as_block(&self) -> &[u8] {
        &self.buffer[HEAD..]
    }

    pub(super) fn into_element(self) -> EncodedValue {
        self.into_block().into_element()
    }

    /// Returns the element behind room for the head of a frame, and its blobs.
    pub(super) fn into_frame(self) -> (Vec<u8>, Blobs) {
        (self.buffer, self.blobs)
    }

    pub(super) fn into_block(self) -> Block {
        Block::single(Bytes::from(self.buffer).slice(HEAD..), self.blobs)
    }

    /// Keeps the memory for the next element that this thread encodes.
    pub(super) fn recycle(self) {
        let _ = SCRATCH.try_with(|scratch| scratch.set(self.buffer));
    }
}

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

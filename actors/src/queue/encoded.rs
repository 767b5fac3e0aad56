//! One encoded element.

use std::cell::Cell;

use bytes::Bytes;
use fiber_core::{Result, codec};
use serde::Serialize;

use super::blocks::{Block, FULL, PREFIX};
use crate::objects::PortRef;

/// Room before an encoded element for the head of a frame: the port, PUT and a count.
pub(super) const HEAD: usize = PortRef::HEAD + 5;

/// An element ready to be sent or stored: room for a head, its length, and its bytes.
pub(super) struct Encoded(Vec<u8>);

impl Encoded {
    /// Encodes a value.
    ///
    /// # Errors
    /// `Error::Encode`, or `Error::TooLarge` if it has more than `limit` bytes.
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

    /// Returns whether the element is long enough for a frame of its own.
    pub(super) fn is_long(&self) -> bool {
        self.0.len() >= FULL
    }

    /// Returns the element with its length, for the caller to copy.
    pub(super) fn as_block(&self) -> &[u8] {
        &self.0[HEAD..]
    }

    /// Returns the bytes of the element.
    pub(super) fn element(&self) -> &[u8] {
        &self.0[HEAD + PREFIX..]
    }

    /// Returns the element behind room for the head of a frame.
    pub(super) fn into_frame(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn into_block(self) -> Block {
        Block::single(Bytes::from(self.0).slice(HEAD..))
    }

    /// Keeps the memory for the next element that this thread encodes.
    pub(super) fn recycle(self) {
        SCRATCH.set(self.0);
    }
}

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

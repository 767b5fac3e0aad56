//! Framing: each message is preceded by its length as a little-endian `u32`. Many messages may
//! share one write.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use crate::Message;

/// The length of the header before each message, in bytes.
pub const HEADER_LEN: usize = 4;

/// Bodies up to this length are copied next to their neighbours, to make few large writes of many
/// small messages. A longer body is sent from its own buffer.
const COPIED_BODY: usize = 16 << 10;

/// The send buffer: encodes messages and collects them until the next write.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Finished chunks.
    chunks: VecDeque<Bytes>,
    /// The chunk that grows.
    tail: BytesMut,
}

impl Encoder {
    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        let length = u32::try_from(message.len())
            .expect("messages are limited to 2 GiB before they are sent");
        let copied = if message.body.len() <= COPIED_BODY { message.body.len() } else { 0 };
        self.tail.reserve(HEADER_LEN + message.head.len() + copied);
        self.tail.extend_from_slice(&length.to_le_bytes());
        self.tail.extend_from_slice(&message.head);
        if copied == message.body.len() {
            self.tail.extend_from_slice(&message.body);
        } else {
            self.chunks.push_back(self.tail.split().freeze());
            self.chunks.push_back(message.body);
        }
    }

    /// Takes out all bytes, in chunks that are to be sent in order.
    pub fn take(&mut self) -> VecDeque<Bytes> {
        if !self.tail.is_empty() {
            self.chunks.push_back(self.tail.split().freeze());
        }
        std::mem::take(&mut self.chunks)
    }

    /// Returns whether nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.tail.is_empty() && self.chunks.is_empty()
    }
}

/// The receive buffer: splits the received bytes into messages.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    limit: usize,
}

/// The error of a message whose announced length is above the limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer announced a message of {length} bytes, more than the limit of {limit}")]
pub struct FrameError {
    length: usize,
    limit: usize,
}

impl Decoder {
    /// Makes a decoder that rejects messages of more than `limit` bytes.
    pub fn new(limit: usize) -> Decoder {
        Decoder { buffer: BytesMut::new(), limit }
    }

    /// Sets the limit of a message's length in bytes.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the buffer to which received bytes are appended. It has room for at least `room`
    /// bytes, and for the rest of a message that has arrived in part.
    pub fn buffer(&mut self, room: usize) -> &mut BytesMut {
        let missing = match self.announced() {
            Some(length) if length <= self.limit => {
                (HEADER_LEN + length).saturating_sub(self.buffer.len())
            }
            _ => 0,
        };
        self.buffer.reserve(room.max(missing));
        &mut self.buffer
    }

    /// Returns the next complete message; `None` when more bytes have to arrive first. The message
    /// shares the memory of the buffer.
    ///
    /// # Errors
    /// [`FrameError`], when the announced length is above the limit.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = self.announced() else { return Ok(None) };
        if length > self.limit {
            return Err(FrameError { length, limit: self.limit });
        }
        if self.buffer.len() < HEADER_LEN + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER_LEN);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Returns the next complete message of the bytes that were appended before, followed by
    /// `chunk`; `None` when `chunk` is used up. A message that lies completely in `chunk` is not
    /// copied. Of another one, the bytes in `chunk` are copied to the buffer.
    ///
    /// # Errors
    /// As [`Decoder::next_message`].
    pub fn next_message_in(&mut self, chunk: &mut Bytes) -> Result<Option<Bytes>, FrameError> {
        if self.buffer.is_empty() {
            match announced(chunk) {
                Some(length) if length > self.limit => {
                    return Err(FrameError { length, limit: self.limit });
                }
                Some(length) if length <= chunk.len() - HEADER_LEN => {
                    chunk.advance(HEADER_LEN);
                    return Ok(Some(chunk.split_to(length)));
                }
                _ => {}
            }
        }
        loop {
            let message = self.next_message()?;
            if message.is_some() || chunk.is_empty() {
                return Ok(message);
            }
            let wanted = HEADER_LEN + self.announced().unwrap_or(0) - self.buffer.len();
            let piece = chunk.split_to(wanted.min(chunk.len()));
            self.buffer(piece.len()).extend_from_slice(&piece);
        }
    }

    /// Returns whether a message has arrived in part.
    pub fn is_in_message(&self) -> bool {
        !self.buffer.is_empty()
    }

    fn announced(&self) -> Option<usize> {
        announced(&self.buffer)
    }
}

/// Returns the length in the header at the start of `bytes`.
fn announced(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<HEADER_LEN>()?;
    Some(u32::from_le_bytes(*header) as usize)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn message(head: usize, body: usize) -> Message {
        Message { head: vec![1; head], body: vec![2; body].into() }
    }

    fn encode(messages: &[Message]) -> Vec<u8> {
        let mut encoder = Encoder::default();
        messages.iter().cloned().for_each(|message| encoder.push(message));
        encoder.take().iter().flatten().copied().collect()
    }

    proptest! {
        #[test]
        fn decoding_returns_the_encoded_messages(
            sizes in vec((0usize..40, prop_oneof![0usize..40, 16_000usize..20_000]), 0..12),
            pieces in vec(1usize..9000, 1..40),
        ) {
            let messages: Vec<_> = sizes.iter().map(|&(head, body)| message(head, body)).collect();
            let bytes = encode(&messages);
            let mut decoder = Decoder::new(1 << 20);
            let mut decoded = Vec::new();
            let mut rest = &bytes[..];
            for piece in pieces.iter().cycle() {
                let (now, later) = rest.split_at(rest.len().min(*piece));
                decoder.buffer(1).extend_from_slice(now);
                while let Some(message) = decoder.next_message().unwrap() {
                    decoded.push(message);
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            let whole = messages.iter().map(|m| [&m.head[..], &m.body[..]].concat());
            let whole: Vec<_> = whole.collect();
            prop_assert_eq!(decoded, &whole[..]);
            prop_assert!(!decoder.is_in_message());

            let (mut decoder, mut decoded) = (Decoder::new(1 << 20), Vec::new());
            let mut rest = Bytes::from(bytes);
            for piece in pieces.iter().cycle() {
                let mut chunk = rest.split_to(rest.len().min(*piece));
                while let Some(message) = decoder.next_message_in(&mut chunk).unwrap() {
                    decoded.push(message);
                }
                prop_assert!(chunk.is_empty());
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(decoded, whole);
            prop_assert!(!decoder.is_in_message());
        }

        #[test]
        fn any_bytes_decode_to_messages_or_an_error_within_the_limit(
            bytes in vec(any::<u8>(), 0..4096),
            limit in 0usize..5000,
        ) {
            let mut decoder = Decoder::new(limit);
            decoder.buffer(bytes.len()).extend_from_slice(&bytes);
            let mut total = 0;
            while let Ok(Some(message)) = decoder.next_message() {
                prop_assert!(message.len() <= limit);
                total += HEADER_LEN + message.len();
            }
            prop_assert!(total <= bytes.len());
            let bound = bytes.len().max(64) * 2 + limit + HEADER_LEN;
            prop_assert!(decoder.buffer(1).capacity() <= bound);
        }
    }

    #[test]
    fn a_message_over_the_limit_is_rejected_before_memory_is_allocated() {
        let mut decoder = Decoder::new(100);
        decoder.buffer(8).extend_from_slice(&u32::MAX.to_le_bytes());
        assert!(decoder.next_message().is_err());
        assert!(decoder.buffer(8).capacity() < 1000);
    }
}

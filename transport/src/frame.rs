//! Messages as bytes: each is preceded by its length, as a little-endian `u32`; many travel
//! together.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use crate::Message;

/// Bytes before each message.
pub const HEADER_LEN: usize = 4;

/// Bodies up to this length are copied together with what is sent around them; a longer one is sent
/// from where it is.
const COPIED_BODY: usize = 16 << 10;

/// Messages that wait to be sent, encoded.
#[derive(Debug, Default)]
pub struct Encoder {
    whole: VecDeque<Bytes>,
    tail: BytesMut,
}

impl Encoder {
    /// Adds a message behind the others.
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
            self.whole.push_back(self.tail.split().freeze());
            self.whole.push_back(message.body);
        }
    }

    /// All that waits, in pieces that are to be sent one after the other.
    pub fn take(&mut self) -> VecDeque<Bytes> {
        if !self.tail.is_empty() {
            self.whole.push_back(self.tail.split().freeze());
        }
        std::mem::take(&mut self.whole)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.tail.is_empty() && self.whole.is_empty()
    }
}

/// Takes messages out of the bytes that arrive, whatever pieces they arrive in.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    limit: usize,
}

/// What arrived can't be a message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer announced a message of {length} bytes, more than the {limit} that are allowed")]
pub struct FrameError {
    length: usize,
    limit: usize,
}

impl Decoder {
    /// A decoder that refuses messages of more than `limit` bytes.
    pub fn new(limit: usize) -> Decoder {
        Decoder { buffer: BytesMut::new(), limit }
    }

    /// Sets the longest message that is accepted from now on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Where what arrives next is to be appended. There is room for at least `room` bytes, and for
    /// the rest of the message that has begun to arrive.
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

    /// The next whole message; `None` when more bytes have to arrive first. It shares the memory of
    /// the buffer.
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

    /// The next whole message of what was appended before, followed by `chunk`; `None` when `chunk`
    /// is used up. A message that lies in `chunk` as a whole is not copied; of one that does not,
    /// `chunk` gives what it has.
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

    /// Whether a message has begun to arrive and is not whole.
    pub fn is_in_message(&self) -> bool {
        !self.buffer.is_empty()
    }

    fn announced(&self) -> Option<usize> {
        announced(&self.buffer)
    }
}

/// The length in the header that `bytes` begin with.
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
        let mut gather = Encoder::default();
        messages.iter().cloned().for_each(|message| gather.push(message));
        gather.take().iter().flatten().copied().collect()
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(
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
            let whole: Vec<_> = messages.iter().map(|m| [&m.head[..], &m.body[..]].concat()).collect();
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
        fn any_bytes_decode_to_messages_or_an_error_within_the_limit(bytes in vec(any::<u8>(), 0..4096), limit in 0usize..5000) {
            let mut decoder = Decoder::new(limit);
            decoder.buffer(bytes.len()).extend_from_slice(&bytes);
            let mut total = 0;
            while let Ok(Some(message)) = decoder.next_message() {
                prop_assert!(message.len() <= limit);
                total += HEADER_LEN + message.len();
            }
            prop_assert!(total <= bytes.len());
            prop_assert!(decoder.buffer(1).capacity() <= bytes.len().max(64) * 2 + limit + HEADER_LEN);
        }
    }

    #[test]
    fn a_message_over_the_limit_is_refused_before_memory_is_taken() {
        let mut decoder = Decoder::new(100);
        decoder.buffer(8).extend_from_slice(&u32::MAX.to_le_bytes());
        assert!(decoder.next_message().is_err());
        assert!(decoder.buffer(8).capacity() < 1000);
    }
}

//! Framing: each message is preceded by its length as a little-endian `u32`. Many messages may
//! share one write.
//!
//! A length of [`EXTENDED`] announces a frame about blobs, with its length as a `u64` after it: see
//! [blob_frame](crate::blob_frame).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use fiber_values::blob::Mapping;
use fiber_values::kept_memory::use_huge_pages;

use crate::Message;
use crate::blob_frame::{self, SharedPlace};

/// The length of the header before each message, in bytes.
pub const HEADER_LEN: usize = 4;
/// The length of the header before a frame about blobs, in bytes.
pub(crate) const EXTENDED_HEADER_LEN: usize = 12;
/// Stands in place of the length in the header of a frame about blobs.
const EXTENDED: u32 = u32::MAX;

/// Bodies up to this length are copied next to their neighbours, to make few large writes of many
/// small messages. A longer body is sent from its own buffer.
const COPIED_BODY: usize = 16 << 10;

/// Fewer bytes may keep more than twice as many from being freed, as messages share the memory into
/// which they were received.
pub(crate) const SHORT: usize = 32 << 10;

/// Bytes to send, with a file that goes with the first of them over a Unix socket.
#[derive(Debug)]
pub struct Chunk {
    /// The bytes.
    pub bytes: Bytes,
    pub(crate) file: Option<Arc<Mapping>>,
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Chunk {
        Chunk { bytes, file: None }
    }
}

/// The send buffer: encodes messages and collects them until the next write.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Finished chunks.
    chunks: VecDeque<Chunk>,
    /// The chunk that grows.
    tail: BytesMut,
}

impl Encoder {
    /// Appends a message, with the bytes of its blobs.
    pub fn push(&mut self, message: Message) {
        if !message.blobs.is_empty() {
            let places = message.blobs.iter().map(|_| None).collect();
            return self.push_with_blobs(message, places);
        }
        let length = u32::try_from(message.len())
            .expect("messages are limited to 2 GiB before they are sent");
        let copied = if message.body.len() <= COPIED_BODY { message.body.len() } else { 0 };
        self.tail.reserve(HEADER_LEN + message.head.len() + copied);
        self.tail.extend_from_slice(&length.to_le_bytes());
        self.tail.extend_from_slice(&message.head);
        if copied == message.body.len() {
            self.tail.extend_from_slice(&message.body);
        } else {
            self.append(message.body);
        }
    }

    /// Appends a message with blobs: where a blob has a place, this instead of its bytes.
    pub(crate) fn push_with_blobs(&mut self, message: Message, places: Vec<Option<SharedPlace>>) {
        let table = blob_frame::table(&message.blobs, &places);
        let is_inline = |place: &Option<SharedPlace>| place.is_none();
        let blobs = message.blobs.iter().zip(&places);
        let mut len = table.len();
        let mut inline = Vec::new();
        for (blob, _) in blobs.filter(|(_, place)| is_inline(place)) {
            let padding = blob_frame::padding(len);
            len += padding + blob.len();
            inline.push((padding, blob));
        }
        self.push_header(len + message.head.len() + message.body.len());
        self.tail.extend_from_slice(&table);
        for (padding, blob) in inline {
            self.tail.extend_from_slice(&[0; blob_frame::ALIGNMENT][..padding]);
            self.append(blob.to_bytes());
        }
        self.tail.extend_from_slice(&message.head);
        self.append(message.body);
    }

    /// Appends a frame about blobs.
    pub(crate) fn push_extended(&mut self, head: &[u8], body: Bytes) {
        self.push_header(head.len() + body.len());
        self.tail.extend_from_slice(head);
        self.append(body);
    }

    /// Appends the frame that introduces a mapping, with its file.
    pub(crate) fn push_mapping(&mut self, mapping: &Arc<Mapping>) {
        self.end_chunk();
        self.push_extended(&blob_frame::mapping(mapping.id(), mapping.is_own()), Bytes::new());
        let bytes = self.tail.split().freeze();
        self.chunks.push_back(Chunk { bytes, file: Some(Arc::clone(mapping)) });
    }

    fn push_header(&mut self, length: usize) {
        self.tail.extend_from_slice(&EXTENDED.to_le_bytes());
        self.tail.extend_from_slice(&(length as u64).to_le_bytes());
    }

    fn append(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_BODY {
            self.tail.extend_from_slice(&bytes);
        } else {
            self.end_chunk();
            self.chunks.push_back(bytes.into());
        }
    }

    fn end_chunk(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(self.tail.split().freeze().into());
        }
    }

    /// Takes out all bytes, in chunks that are to be sent in order.
    pub fn take(&mut self) -> VecDeque<Chunk> {
        self.end_chunk();
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
#[derive(Debug, PartialEq, Eq)]
pub struct FrameError {
    length: usize,
    limit: usize,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FrameError { length, limit } = self;
        write!(f, "the peer announced a message of {length} bytes, more than the limit of {limit}")
    }
}

impl std::error::Error for FrameError {}

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
        let missing = match Header::read(&self.buffer) {
            Some(header) if header.length <= self.limit => {
                header.end().saturating_sub(self.buffer.len())
            }
            _ => 0,
        };
        let room = room.max(missing);
        if self.buffer.capacity() - self.buffer.len() < room {
            self.buffer.reserve(room);
            use_huge_pages(self.buffer.spare_capacity_mut());
        }
        &mut self.buffer
    }

    /// Takes the bytes in the buffer if they are few, in memory of their own: a message among them
    /// that waits for long would keep all of the buffer. They are a chunk for
    /// [`next_frame_in`](Decoder::next_frame_in).
    pub fn take_short(&mut self) -> Bytes {
        if self.buffer.len() > SHORT {
            return Bytes::new();
        }
        let short = Bytes::copy_from_slice(&self.buffer);
        self.buffer.clear();
        short
    }

    /// Returns the next complete frame; `None` when more bytes have to arrive first. The frame
    /// shares the memory of the buffer.
    ///
    /// # Errors
    /// [`FrameError`], when the announced length is above the limit.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(header) = Header::read(&self.buffer) else { return Ok(None) };
        self.check(&header)?;
        if self.buffer.len() < header.end() {
            return Ok(None);
        }
        self.buffer.advance(header.len);
        let bytes = self.buffer.split_to(header.length).freeze();
        Ok(Some(header.frame(bytes)))
    }

    /// Returns the next complete frame of the bytes that were appended before, followed by `chunk`;
    /// `None` when `chunk` is used up. A frame that lies completely in `chunk` is not copied. Of
    /// another one, the bytes in `chunk` are copied to the buffer.
    ///
    /// # Errors
    /// As [`Decoder::next_frame`].
    pub fn next_frame_in(&mut self, chunk: &mut Bytes) -> Result<Option<Frame>, FrameError> {
        if self.buffer.is_empty()
            && let Some(header) = Header::read(chunk)
        {
            self.check(&header)?;
            if header.end() <= chunk.len() {
                chunk.advance(header.len);
                let bytes = chunk.split_to(header.length);
                return Ok(Some(header.frame(bytes)));
            }
        }
        loop {
            let frame = self.next_frame()?;
            if frame.is_some() || chunk.is_empty() {
                return Ok(frame);
            }
            let known = Header::read(&self.buffer);
            let end = known.map_or_else(|| Header::least_len(&self.buffer), |header| header.end());
            let piece = chunk.split_to((end - self.buffer.len()).min(chunk.len()));
            self.buffer(piece.len()).extend_from_slice(&piece);
        }
    }

    /// Returns whether a message has arrived in part.
    pub fn is_in_message(&self) -> bool {
        !self.buffer.is_empty()
    }

    fn check(&self, header: &Header) -> Result<(), FrameError> {
        let (length, limit) = (header.length, self.limit);
        if length > limit { Err(FrameError { length, limit }) } else { Ok(()) }
    }
}

/// The content of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message without blobs.
    Message(Bytes),
    /// A frame about blobs.
    Extended(Bytes),
}

struct Header {
    /// Its own length in bytes.
    len: usize,
    /// The length of the frame after it.
    length: usize,
}

impl Header {
    /// Reads the header at the start of `bytes`, if it is complete.
    fn read(bytes: &[u8]) -> Option<Header> {
        let (length, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let length = u32::from_le_bytes(*length);
        if length != EXTENDED {
            return Some(Header { len: HEADER_LEN, length: length as usize });
        }
        let length = u64::from_le_bytes(*rest.first_chunk()?);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Some(Header { len: EXTENDED_HEADER_LEN, length })
    }

    /// Returns the least length of a header that is incomplete so far.
    fn least_len(bytes: &[u8]) -> usize {
        if bytes.len() < HEADER_LEN { HEADER_LEN } else { EXTENDED_HEADER_LEN }
    }

    /// Returns the offset after the frame.
    fn end(&self) -> usize {
        self.len.saturating_add(self.length)
    }

    fn frame(&self, bytes: Bytes) -> Frame {
        if self.len == HEADER_LEN { Frame::Message(bytes) } else { Frame::Extended(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn message(head: usize, body: usize) -> Message {
        Message { head: vec![1; head], body: vec![2; body].into(), ..Message::default() }
    }

    fn encode(messages: &[Message]) -> Vec<u8> {
        let mut encoder = Encoder::default();
        messages.iter().cloned().for_each(|message| encoder.push(message));
        encoder.take().iter().flat_map(|chunk| chunk.bytes.iter().copied()).collect()
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
                while let Some(message) = decoder.next_frame().unwrap() {
                    decoded.push(message);
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            let whole: Vec<_> = messages
                .iter()
                .map(|m| Frame::Message([&m.head[..], &m.body[..]].concat().into()))
                .collect();
            prop_assert_eq!(decoded, &whole[..]);
            prop_assert!(!decoder.is_in_message());

            let (mut decoder, mut decoded) = (Decoder::new(1 << 20), Vec::new());
            let mut rest = Bytes::from(bytes);
            for piece in pieces.iter().cycle() {
                let mut chunk = rest.split_to(rest.len().min(*piece));
                while let Some(message) = decoder.next_frame_in(&mut chunk).unwrap() {
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
            while let Ok(Some(message)) = decoder.next_frame() {
                let (Frame::Message(message) | Frame::Extended(message)) = message;
                prop_assert!(message.len() <= limit);
                total += HEADER_LEN + message.len();
            }
            prop_assert!(total <= bytes.len());
            let bound = bytes.len().max(64) * 2 + limit + HEADER_LEN;
            prop_assert!(decoder.buffer(1).capacity() <= bound);
        }
    }

    #[test]
    fn a_message_keeps_no_more_than_the_short_read_that_brought_it() {
        let mut decoder = Decoder::new(1 << 20);
        let block = decoder.buffer(2 * SHORT).as_ptr();
        let mut kept = Vec::new();
        for _ in 0..3 {
            decoder.buffer(2 * SHORT).extend_from_slice(&encode(&[message(3, 7), message(3, 8)]));
            let mut short = decoder.take_short();
            while let Some(frame) = decoder.next_frame_in(&mut short).unwrap() {
                kept.push(frame);
            }
            assert_eq!(decoder.buffer(2 * SHORT).as_ptr(), block, "nothing keeps it");
        }
        assert_eq!(kept.len(), 6);
        decoder.buffer(2 * SHORT).extend_from_slice(&[0; SHORT + 1]);
        assert!(decoder.take_short().is_empty() && decoder.is_in_message());
    }

    #[test]
    fn a_message_over_the_limit_is_rejected_before_memory_is_allocated() {
        let extended = [&EXTENDED.to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat();
        for header in [&(EXTENDED - 1).to_le_bytes()[..], &extended] {
            let mut decoder = Decoder::new(100);
            decoder.buffer(16).extend_from_slice(header);
            assert!(decoder.next_frame().is_err());
            assert!(decoder.buffer(16).capacity() < 1000);
        }
    }
}

//! Any bytes, in any pieces, decode to messages within the limit or to an error. Both ways to give
//! bytes to the decoder have the same result.

#![no_main]

use std::collections::VecDeque;

use bytes::Bytes;
use fiber_transport::{Decoder, Frame, FrameError, HEADER_LEN};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 12;

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (bytes, pieces) = input;
    let bytes = Bytes::from(bytes);
    let appended = decode(&bytes, &pieces, |decoder, piece| {
        decoder.buffer(piece.len()).extend_from_slice(&piece.split_off(0));
        decoder.next_frame()
    });
    let in_chunks = decode(&bytes, &pieces, Decoder::next_frame_in);
    assert_eq!(appended, in_chunks);
});

/// Returns all messages, and the error after them.
fn decode(
    bytes: &Bytes,
    pieces: &[u8],
    next: fn(&mut Decoder, &mut Bytes) -> Result<Option<Frame>, FrameError>,
) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = Decoder::new(LIMIT);
    let mut pieces: VecDeque<u8> = pieces.iter().copied().collect();
    let (mut rest, mut messages) = (bytes.clone(), Vec::new());
    while !rest.is_empty() {
        let length = pieces.pop_front().map_or(4096, |piece| usize::from(piece) + 1);
        let mut piece = rest.split_to(rest.len().min(length));
        loop {
            match next(&mut decoder, &mut piece) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
        assert!(piece.is_empty());
    }
    let len = |frame: &Frame| match frame {
        Frame::Message(bytes) | Frame::Extended(bytes) => bytes.len(),
    };
    assert!(messages.iter().all(|message| len(message) <= LIMIT));
    let decoded: usize = messages.iter().map(|message| HEADER_LEN + len(message)).sum();
    assert!(decoded <= bytes.len());
    (messages, None)
}

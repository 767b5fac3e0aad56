//! Any bytes, in any pieces, decode to messages within the limit or to an error. Both ways to give
//! bytes to the decoder have the same result.

#![no_main]

use std::collections::VecDeque;

use bytes::Bytes;
use fiber_transport::{Decoder, FrameError, HEADER_LEN};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 12;

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (bytes, pieces) = input;
    let bytes = Bytes::from(bytes);
    let appended = decode(&bytes, &pieces, |decoder, piece| {
        decoder.buffer(piece.len()).extend_from_slice(&piece.split_off(0));
        decoder.next_message()
    });
    let in_chunks = decode(&bytes, &pieces, Decoder::next_message_in);
    assert_eq!(appended, in_chunks);
});

/// Returns all messages, and the error after them.
fn decode(
    bytes: &Bytes,
    pieces: &[u8],
    next: fn(&mut Decoder, &mut Bytes) -> Result<Option<Bytes>, FrameError>,
) -> (Vec<Bytes>, Option<FrameError>) {
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
    assert!(messages.iter().all(|message| message.len() <= LIMIT));
    let decoded: usize = messages.iter().map(|message| HEADER_LEN + message.len()).sum();
    assert!(decoded <= bytes.len());
    (messages, None)
}

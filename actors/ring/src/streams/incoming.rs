//! The stream from one rank to this one.

use std::collections::VecDeque;

use fiber_transport::shared_memory::{Armed, Reader};

use super::super::call::CollectiveCall;
use super::header::{HEADER, Header, Tag, padding};
use super::link::LinkReader;

/// The transport that a stream is read from.
#[derive(Debug)]
pub(crate) enum StreamReader {
    Shared { reader: Reader, closed: bool },
    Link(LinkReader),
}

/// The stream of messages from one other rank.
#[derive(Debug)]
pub(crate) struct IncomingStream {
    pub(super) reader: StreamReader,
    pub(super) state: ReadState,
    /// Values that the rank's function has not received yet.
    values: VecDeque<(Tag, Vec<u8>)>,
}

/// The part of the stream that the reader reads.
#[derive(Debug)]
pub(super) enum ReadState {
    Header {
        bytes: [u8; HEADER],
        have: usize,
    },
    Value {
        tag: Tag,
        value: Vec<u8>,
        bytes: u64,
    },
    /// The other rank makes a collective call that this rank has not accepted yet.
    Collective {
        call: CollectiveCall,
        bytes: u64,
    },
    /// The payload of a collective call.
    Payload {
        remaining: u64,
        padding: usize,
    },
    Padding {
        remaining: usize,
    },
    /// The other rank's function has returned.
    Ended,
}

impl StreamReader {
    pub(crate) fn shared(reader: Reader) -> StreamReader {
        StreamReader::Shared { reader, closed: false }
    }

    fn peek(&mut self) -> &[u8] {
        match self {
            StreamReader::Shared { reader, .. } => reader.peek(),
            StreamReader::Link(reader) => {
                reader.refill();
                reader.peek()
            }
        }
    }

    fn consume(&mut self, length: usize) {
        match self {
            StreamReader::Shared { reader, .. } => reader.consume(length),
            StreamReader::Link(reader) => reader.consume(length),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        match self {
            StreamReader::Shared { closed, .. } => *closed,
            StreamReader::Link(reader) => reader.is_closed(),
        }
    }

    /// Arms the wake-up for new bytes. Returns `false` if there are bytes to read already.
    pub(super) fn arm(&self) -> bool {
        match self {
            StreamReader::Shared { reader, .. } => reader.arm() == Armed::Asleep,
            StreamReader::Link(reader) => !reader.is_ready(),
        }
    }
}

impl IncomingStream {
    pub(super) fn new(reader: StreamReader) -> IncomingStream {
        IncomingStream {
            reader,
            state: ReadState::Header { bytes: [0; HEADER], have: 0 },
            values: VecDeque::new(),
        }
    }

    /// Reads headers, values and padding, up to the next payload of a collective call. Returns
    /// whether it has read anything.
    pub(super) fn advance(&mut self) -> bool {
        let mut progressed = false;
        loop {
            match &mut self.state {
                ReadState::Collective { .. } | ReadState::Ended => return progressed,
                ReadState::Payload { remaining: 0, padding } => {
                    self.state = ReadState::Padding { remaining: *padding }
                }
                ReadState::Payload { .. } => return progressed,
                ReadState::Padding { remaining: 0 } => {
                    self.state = ReadState::Header { bytes: [0; HEADER], have: 0 }
                }
                ReadState::Value { tag, value, bytes } if value.len() as u64 == *bytes => {
                    self.values.push_back((*tag, std::mem::take(value)));
                    self.state = ReadState::Padding { remaining: padding(*bytes) };
                }
                ReadState::Header { bytes, have: HEADER } => {
                    self.state = match Header::decode(bytes) {
                        Some(Header::Value { tag, bytes }) => {
                            ReadState::Value { tag, value: Vec::new(), bytes }
                        }
                        Some(Header::Collective { call, bytes }) => {
                            ReadState::Collective { call, bytes }
                        }
                        Some(Header::End) => ReadState::Ended,
                        None => unreachable!("ranks send valid headers"),
                    }
                }
                state => {
                    let available = self.reader.peek();
                    let read = match state {
                        ReadState::Header { bytes, have } => {
                            let read = available.len().min(HEADER - *have);
                            bytes[*have..*have + read].copy_from_slice(&available[..read]);
                            *have += read;
                            read
                        }
                        ReadState::Value { value, bytes, .. } => {
                            let missing = *bytes - value.len() as u64;
                            let read =
                                available.len().min(usize::try_from(missing).unwrap_or(usize::MAX));
                            value.extend_from_slice(&available[..read]);
                            read
                        }
                        ReadState::Padding { remaining } => {
                            let read = available.len().min(*remaining);
                            *remaining -= read;
                            read
                        }
                        ReadState::Collective { .. }
                        | ReadState::Payload { .. }
                        | ReadState::Ended => unreachable!("the arms above handle these states"),
                    };
                    if read == 0 {
                        return progressed;
                    }
                    self.reader.consume(read);
                    progressed = true;
                }
            }
        }
    }

    /// Returns the bytes of the accepted collective payload that are available in one slice.
    pub(crate) fn payload(&mut self) -> &[u8] {
        let ReadState::Payload { remaining, .. } = self.state else { return &[] };
        let available = self.reader.peek();
        &available[..available.len().min(usize::try_from(remaining).unwrap_or(usize::MAX))]
    }

    /// Consumes this many bytes of the payload. A call with 0 ends an empty payload.
    pub(crate) fn consume_payload(&mut self, length: usize) {
        if let ReadState::Payload { remaining, .. } = &mut self.state {
            *remaining -= length as u64;
            self.reader.consume(length);
            if *remaining == 0 {
                self.advance();
            }
        }
    }

    /// Returns how many bytes of an accepted payload have not been consumed.
    pub(super) fn payload_bytes(&self) -> u64 {
        match self.state {
            ReadState::Payload { remaining, .. } => remaining,
            _ => 0,
        }
    }

    /// Returns whether [`advance`](IncomingStream::advance) can read more when more arrives.
    pub(super) fn can_advance(&self) -> bool {
        !matches!(
            self.state,
            ReadState::Collective { .. } | ReadState::Payload { .. } | ReadState::Ended
        ) && !self.reader.is_closed()
    }

    /// Removes the first value with this tag.
    pub(super) fn pop_value(&mut self, tag: Tag) -> Option<Vec<u8>> {
        let at = self.values.iter().position(|(other, _)| *other == tag)?;
        self.values.remove(at).map(|(_, value)| value)
    }
}

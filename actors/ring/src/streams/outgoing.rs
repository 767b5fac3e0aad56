//! The stream from this rank to another one.

use fiber_transport::shared_memory::{Armed, Writer};

use super::header::{Header, padding};
use super::link::LinkWriter;

/// Payloads up to this many bytes are written together with their header.
const SMALL: usize = 16 << 10;

/// The transport that a stream is written to.
#[derive(Debug)]
pub(super) enum StreamWriter {
    Shared { writer: Writer, closed: bool },
    Link(LinkWriter),
}

/// The stream of messages to one other rank.
#[derive(Debug)]
pub(crate) struct OutgoingStream {
    pub(super) writer: StreamWriter,
    /// The header, or the padding behind a payload, until it is written.
    framing: Vec<u8>,
    /// How many bytes of `framing` have been written.
    framing_written: usize,
    /// Bytes of the payload that have not been passed to [`write`](OutgoingStream::write).
    remaining: u64,
    padding: usize,
}

impl StreamWriter {
    fn write(&mut self, bytes: &[u8]) -> usize {
        match self {
            StreamWriter::Shared { writer, .. } => writer.write(bytes),
            StreamWriter::Link(writer) => writer.write(bytes),
        }
    }
}

impl OutgoingStream {
    pub(super) fn new(writer: StreamWriter) -> OutgoingStream {
        OutgoingStream { writer, framing: Vec::new(), framing_written: 0, remaining: 0, padding: 0 }
    }

    /// Begins a payload with its header. The one before has to be complete.
    pub(crate) fn begin(&mut self, header: Header) {
        debug_assert!(self.is_idle(), "the payload before is complete");
        self.framing.extend_from_slice(&header.encode());
        self.remaining = header.payload_bytes();
        self.padding = padding(self.remaining);
        if self.remaining == 0 {
            self.flush();
        }
    }

    /// Writes as much of the payload as there is room for, and returns how many bytes that are.
    pub(crate) fn write(&mut self, payload: &[u8]) -> usize {
        if payload.len() as u64 == self.remaining
            && payload.len() <= SMALL
            && !self.framing.is_empty()
            && self.framing_written == 0
        {
            self.framing.extend_from_slice(payload);
            self.pad();
            return payload.len();
        }
        if !self.flush() || payload.is_empty() {
            return 0;
        }
        let written = self.writer.write(payload);
        self.remaining -= written as u64;
        if written > 0 && self.remaining == 0 {
            self.pad();
        }
        written
    }

    fn pad(&mut self) {
        self.remaining = 0;
        self.framing.resize(self.framing.len() + self.padding, 0);
        self.flush();
    }

    /// Writes header and padding. Returns whether nothing of them is left.
    pub(crate) fn flush(&mut self) -> bool {
        while self.framing_written < self.framing.len() {
            let written = self.writer.write(&self.framing[self.framing_written..]);
            if written == 0 {
                return false;
            }
            self.framing_written += written;
        }
        self.framing.clear();
        self.framing_written = 0;
        true
    }

    /// Returns whether no payload is in the middle of being sent.
    pub(super) fn is_idle(&self) -> bool {
        self.framing.is_empty() && self.remaining == 0
    }

    pub(super) fn is_closed(&self) -> bool {
        match &self.writer {
            StreamWriter::Shared { closed, .. } => *closed,
            StreamWriter::Link(writer) => writer.is_closed(),
        }
    }

    /// Arms the wake-up for new room. Returns `false` if there is room already.
    pub(super) fn arm(&self) -> bool {
        match &self.writer {
            StreamWriter::Shared { writer, .. } => writer.arm() == Armed::Asleep,
            StreamWriter::Link(writer) => writer.room() < 8,
        }
    }
}

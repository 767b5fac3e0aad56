//! One stream from another rank, or to one.

use std::collections::VecDeque;

use fiber_transport::shared::{Armed, Reader, Writer};

use super::call::{Call, HEADER, Header, Tag, padding};
use super::linked::{LinkReader, LinkWriter};

/// Payloads up to this many bytes leave together with their header.
const SMALL: usize = 16 << 10;

/// Where bytes come from.
#[derive(Debug)]
pub(super) enum Source {
    Shared(Reader, /* whether it is closed */ bool),
    Link(LinkReader),
}

/// Where bytes go.
#[derive(Debug)]
pub(super) enum Sink {
    Shared(Writer, /* whether it is closed */ bool),
    Link(LinkWriter),
}

/// What comes from one rank.
#[derive(Debug)]
pub(super) struct Inlet {
    pub(super) source: Source,
    pub(super) state: State,
    pub(super) messages: VecDeque<(Tag, Vec<u8>)>,
}

/// What an inlet is in the middle of.
#[derive(Debug)]
pub(super) enum State {
    Header {
        bytes: [u8; HEADER],
        have: usize,
    },
    Message {
        tag: Tag,
        value: Vec<u8>,
        bytes: u64,
    },
    /// A part in a collective has come, and nobody has asked for it yet.
    Call {
        call: Call,
        bytes: u64,
    },
    /// Its payload is being taken.
    Payload {
        left: u64,
        padding: usize,
    },
    Padding {
        left: usize,
    },
    /// The rank's function has ended.
    Bye,
}

/// What goes to one rank.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) sink: Sink,
    /// What goes before the payload, or fills it up, and has not gone yet.
    pub(super) front: Vec<u8>,
    pub(super) gone: usize,
    /// Bytes of the payload that have not been given.
    pub(super) left: u64,
    pub(super) padding: usize,
}

impl Source {
    pub(super) fn peek(&mut self) -> &[u8] {
        match self {
            Source::Shared(reader, _) => reader.peek(),
            Source::Link(reader) => {
                reader.refill();
                reader.peek()
            }
        }
    }

    pub(super) fn consume(&mut self, length: usize) {
        match self {
            Source::Shared(reader, _) => reader.consume(length),
            Source::Link(reader) => reader.consume(length),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        match self {
            Source::Shared(_, closed) => *closed,
            Source::Link(reader) => reader.is_closed(),
        }
    }

    /// Whether there is nothing to read, and this side will be woken when there is.
    pub(super) fn sleeps(&self) -> bool {
        match self {
            Source::Shared(reader, _) => reader.arm() == Armed::Asleep,
            Source::Link(reader) => !reader.is_ready(),
        }
    }
}

impl Inlet {
    pub(super) fn new(source: Source) -> Inlet {
        Inlet {
            source,
            state: State::Header { bytes: [0; HEADER], have: 0 },
            messages: VecDeque::new(),
        }
    }

    /// Takes in what needs nobody to ask for it. Whether there was something.
    pub(super) fn advance(&mut self) -> bool {
        let mut moved = false;
        loop {
            match &mut self.state {
                State::Call { .. } | State::Bye => return moved,
                State::Payload { left: 0, padding } => {
                    self.state = State::Padding { left: *padding }
                }
                State::Payload { .. } => return moved,
                State::Padding { left: 0 } => {
                    self.state = State::Header { bytes: [0; HEADER], have: 0 }
                }
                State::Message { tag, value, bytes } if value.len() as u64 == *bytes => {
                    self.messages.push_back((*tag, std::mem::take(value)));
                    self.state = State::Padding { left: padding(*bytes) };
                }
                State::Header { bytes, have: HEADER } => {
                    self.state = match Header::decode(bytes) {
                        Some(Header::Message { tag, bytes }) => {
                            State::Message { tag, value: Vec::new(), bytes }
                        }
                        Some(Header::Call { call, bytes }) => State::Call { call, bytes },
                        Some(Header::Bye) => State::Bye,
                        None => unreachable!("ranks send headers where headers have to be"),
                    }
                }
                state => {
                    let there = self.source.peek();
                    let taken = match state {
                        State::Header { bytes, have } => {
                            let taken = there.len().min(HEADER - *have);
                            bytes[*have..*have + taken].copy_from_slice(&there[..taken]);
                            *have += taken;
                            taken
                        }
                        State::Message { value, bytes, .. } => {
                            let missing = *bytes - value.len() as u64;
                            let taken =
                                there.len().min(usize::try_from(missing).unwrap_or(usize::MAX));
                            value.extend_from_slice(&there[..taken]);
                            taken
                        }
                        State::Padding { left } => {
                            let taken = there.len().min(*left);
                            *left -= taken;
                            taken
                        }
                        State::Call { .. } | State::Payload { .. } | State::Bye => {
                            unreachable!("these were dealt with above")
                        }
                    };
                    if taken == 0 {
                        return moved;
                    }
                    self.source.consume(taken);
                    moved = true;
                }
            }
        }
    }

    /// The payload that has come, as far as it lies in one piece; nothing if it has not begun.
    pub(super) fn payload(&mut self) -> &[u8] {
        let State::Payload { left, .. } = self.state else { return &[] };
        let there = self.source.peek();
        &there[..there.len().min(usize::try_from(left).unwrap_or(usize::MAX))]
    }

    /// Takes so much of the payload.
    pub(super) fn take(&mut self, length: usize) {
        if let State::Payload { left, .. } = &mut self.state {
            *left -= length as u64;
            self.source.consume(length);
            if *left == 0 {
                self.advance();
            }
        }
    }

    /// Whether more comes without anybody asking for it.
    pub(super) fn is_free(&self) -> bool {
        !matches!(self.state, State::Call { .. } | State::Payload { .. } | State::Bye)
            && !self.source.is_closed()
    }

    pub(super) fn message(&mut self, tag: Tag) -> Option<Vec<u8>> {
        let at = self.messages.iter().position(|(other, _)| *other == tag)?;
        self.messages.remove(at).map(|(_, value)| value)
    }
}

impl Outlet {
    pub(super) fn new(sink: Sink) -> Outlet {
        Outlet { sink, front: Vec::new(), gone: 0, left: 0, padding: 0 }
    }

    /// Begins what comes next. What came before has to be done.
    pub(super) fn begin(&mut self, header: Header) {
        debug_assert!(self.front.is_empty() && self.left == 0, "one thing is sent after the other");
        self.front.extend_from_slice(&header.encode());
        self.left = header.bytes();
        self.padding = padding(self.left);
        if self.left == 0 {
            self.flush();
        }
    }

    /// Sends as much of the payload as there is room for, and says how much.
    pub(super) fn write(&mut self, payload: &[u8]) -> usize {
        if payload.len() as u64 == self.left
            && payload.len() <= SMALL
            && !self.front.is_empty()
            && self.gone == 0
        {
            self.front.extend_from_slice(payload);
            self.fill_up();
            return payload.len();
        }
        if !self.flush() || payload.is_empty() {
            return 0;
        }
        let written = match &mut self.sink {
            Sink::Shared(writer, _) => writer.write(payload),
            Sink::Link(writer) => writer.write(payload),
        };
        self.left -= written as u64;
        if written > 0 && self.left == 0 {
            self.fill_up();
        }
        written
    }

    pub(super) fn fill_up(&mut self) {
        self.left = 0;
        self.front.resize(self.front.len() + self.padding, 0);
        self.flush();
    }

    /// Whether all that was given has gone.
    pub(super) fn flush(&mut self) -> bool {
        while self.gone < self.front.len() {
            let rest = &self.front[self.gone..];
            let written = match &mut self.sink {
                Sink::Shared(writer, _) => writer.write(rest),
                Sink::Link(writer) => writer.write(rest),
            };
            if written == 0 {
                return false;
            }
            self.gone += written;
        }
        self.front.clear();
        self.gone = 0;
        true
    }

    pub(super) fn is_closed(&self) -> bool {
        match &self.sink {
            Sink::Shared(_, closed) => *closed,
            Sink::Link(writer) => writer.is_closed(),
        }
    }

    pub(super) fn sleeps(&self) -> bool {
        match &self.sink {
            Sink::Shared(writer, _) => writer.arm() == Armed::Asleep,
            Sink::Link(writer) => writer.room() < 8,
        }
    }
}

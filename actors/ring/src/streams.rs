//! The streams between this rank and the others, as the function's thread uses them.
//!
//! Each direction between two ranks is one stream, which the sender opens when it first sends. A
//! rank that waits, to send or to receive, meanwhile receives values from all others, so that ranks
//! which all send first do not block each other.

mod header;
mod incoming;
mod link;
mod outgoing;
mod wait;
mod wakeup;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use fiber_core::{RankActivity, shortage};
use fiber_transport::shared_memory::open_stream;
use parking_lot::Mutex;

use self::header::padding;
pub(super) use self::header::{Header, Tag};
use self::incoming::ReadState;
pub(super) use self::incoming::{IncomingStream, StreamReader};
pub(super) use self::link::LinkReader;
use self::link::LinkWriter;
pub(super) use self::outgoing::OutgoingStream;
use self::outgoing::StreamWriter;
use self::wait::Polling;
pub(super) use self::wait::{Interest, SpinWait};
pub(super) use self::wakeup::Wakeup;
use super::call::CollectiveCall;
use super::confirmed::ConfirmedCheckpoints;
use super::wire::{RankAddress, StreamError};
use fiber_runtime::runtime::Runtime;

/// The capacity of a stream through shared memory, in bytes.
const CAPACITY: usize = 1 << 20;

/// The state of a rank that the function's thread shares with the process's other threads.
#[derive(Debug)]
pub(super) struct RankShared {
    pub(super) wakeup: Arc<Wakeup>,
    /// Streams that other ranks have opened, until the function's thread accepts them.
    pub(super) opened: Mutex<Vec<(usize, StreamReader)>>,
    pub(super) activity: Mutex<RankActivity>,
    /// Only a durable ring confirms checkpoints.
    pub(super) confirmed: ConfirmedCheckpoints,
}

/// All streams of this rank.
#[derive(Debug)]
pub(super) struct RankStreams {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) timeout: Duration,
    runtime: &'static Runtime,
    addresses: Vec<RankAddress>,
    shared: Arc<RankShared>,
    incoming: Vec<Option<IncomingStream>>,
    outgoing: Vec<Option<OutgoingStream>>,
    /// Values that this rank has sent to itself.
    loopback: VecDeque<(Tag, Vec<u8>)>,
    polling: Polling,
}

/// Returns whether this process may make no shared memory, for example in a sandbox, or within a
/// limit of file sizes.
fn is_denied(error: &io::Error) -> bool {
    use ErrorKind::{FileTooLarge, PermissionDenied, Unsupported};
    matches!(error.kind(), PermissionDenied | Unsupported | FileTooLarge)
}

impl RankStreams {
    pub(super) fn new(
        runtime: &'static Runtime,
        rank: usize,
        addresses: Vec<RankAddress>,
        shared: Arc<RankShared>,
        timeout: Duration,
    ) -> RankStreams {
        let size = addresses.len();
        RankStreams {
            rank,
            size,
            timeout,
            runtime,
            addresses,
            shared,
            incoming: (0..size).map(|_| None).collect(),
            outgoing: (0..size).map(|_| None).collect(),
            loopback: VecDeque::new(),
            polling: Polling::new(size),
        }
    }

    pub(super) fn addresses(&self) -> &[RankAddress] {
        &self.addresses
    }

    pub(super) fn right(&self) -> usize {
        (self.rank + 1) % self.size
    }

    pub(super) fn left(&self) -> usize {
        (self.rank + self.size - 1) % self.size
    }

    /// Records what this rank is doing, for the coordinator's errors.
    pub(super) fn set_activity(&self, activity: RankActivity) {
        *self.shared.activity.lock() = activity;
    }

    /// Returns the stream to a rank, and opens it on first use.
    pub(super) fn outgoing(&mut self, to: usize) -> Result<&mut OutgoingStream, StreamError> {
        if self.outgoing[to].is_none() {
            let address = &self.addresses[to];
            let shared = match (address.near_streams(), &*self.shared.wakeup) {
                (Some(socket), Wakeup::File(_)) => {
                    let greeting = (self.rank as u64).to_le_bytes();
                    let opened = open_stream(socket, self.runtime.key(), &greeting, CAPACITY);
                    Some(opened.map(|writer| StreamWriter::Shared { writer, closed: false }))
                }
                _ => None,
            };
            let writer = match shared {
                Some(Err(error)) if !is_denied(&error) => Err(shortage::explain(&error)),
                Some(Ok(writer)) => Ok(writer),
                Some(Err(_)) | None => {
                    let wakeup = Arc::clone(&self.shared.wakeup);
                    LinkWriter::open(self.runtime, self.rank, address, wakeup)
                        .map(StreamWriter::Link)
                }
            };
            let writer =
                writer.map_err(|problem| StreamError::Disconnected { other: to, problem })?;
            self.outgoing[to] = Some(OutgoingStream::new(writer));
        }
        Ok(self.outgoing[to].as_mut().expect("the stream has just been opened"))
    }

    /// Returns the stream from a rank, or `None` if that rank has not sent anything yet.
    pub(super) fn incoming(&mut self, from: usize) -> Option<&mut IncomingStream> {
        if self.incoming[from].is_none() {
            self.accept_streams();
        }
        let incoming = self.incoming[from].as_mut()?;
        incoming.advance();
        Some(incoming)
    }

    fn accept_streams(&mut self) {
        for (rank, reader) in self.shared.opened.lock().drain(..) {
            if let Some(incoming) = self.incoming.get_mut(rank) {
                *incoming = Some(IncomingStream::new(reader));
            }
        }
    }

    /// Accepts a rank's data for a collective call. Returns whether its payload can be read, which
    /// is `false` as long as the rank has not made the call.
    ///
    /// # Errors
    /// The rank makes another call, sends another number of bytes, or its function has returned.
    pub(super) fn accept_call(
        &mut self,
        from: usize,
        call: &CollectiveCall,
        bytes: Option<u64>,
    ) -> Result<bool, StreamError> {
        let Some(incoming) = self.incoming(from) else { return Ok(false) };
        match &incoming.state {
            ReadState::Collective { call: theirs, bytes: announced } => {
                if theirs != call || bytes.is_some_and(|bytes| bytes != *announced) {
                    return Err(StreamError::Mismatch {
                        other: from,
                        own: call.describe(),
                        theirs: theirs.describe(),
                    });
                }
                incoming.state =
                    ReadState::Payload { remaining: *announced, padding: padding(*announced) };
                Ok(true)
            }
            ReadState::Payload { .. } => Ok(true),
            ReadState::Ended => {
                Err(StreamError::FunctionReturned { other: from, own: call.describe() })
            }
            _ => Ok(false),
        }
    }

    /// Returns how many bytes of an [accepted](RankStreams::accept_call) payload are to come.
    pub(super) fn payload_bytes(&self, from: usize) -> usize {
        let bytes = self.incoming[from].as_ref().map_or(0, IncomingStream::payload_bytes);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Sends a value. Returns when all of it is in the stream.
    pub(super) fn send_value(
        &mut self,
        to: usize,
        tag: Tag,
        value: &[u8],
    ) -> Result<(), StreamError> {
        if to == self.rank {
            self.loopback.push_back((tag, value.to_vec()));
            return Ok(());
        }
        self.send(to, Header::Value { tag, bytes: value.len() as u64 }, value)
    }

    /// Sends a header with its payload. Returns when all of it is in the stream.
    pub(super) fn send(
        &mut self,
        to: usize,
        header: Header,
        payload: &[u8],
    ) -> Result<(), StreamError> {
        self.outgoing(to)?.begin(header);
        let (mut sent, mut spin) = (0, SpinWait::default());
        loop {
            let outgoing = self.outgoing(to)?;
            let written = if sent < payload.len() { outgoing.write(&payload[sent..]) } else { 0 };
            sent += written;
            if sent == payload.len() && outgoing.flush() {
                return Ok(());
            }
            if written > 0 {
                spin = SpinWait::default();
            } else {
                self.wait(&mut spin, Interest::room_to(to))?;
            }
        }
    }

    /// Receives the next value with this tag from a rank.
    pub(super) fn receive_value(&mut self, from: usize, tag: Tag) -> Result<Vec<u8>, StreamError> {
        let own = || "recv".to_string();
        let mut spin = SpinWait::default();
        loop {
            let mut interest = Interest::default();
            if from == self.rank {
                if let Some(at) = self.loopback.iter().position(|(other, _)| *other == tag) {
                    return Ok(self.loopback.remove(at).expect("the position is in range").1);
                }
            } else {
                interest = Interest::bytes_from(from);
                if let Some(incoming) = self.incoming(from) {
                    if let Some(value) = incoming.pop_value(tag) {
                        return Ok(value);
                    }
                    match &incoming.state {
                        ReadState::Collective { call, .. } => {
                            let (own, theirs) = (own(), call.describe());
                            return Err(StreamError::Mismatch { other: from, own, theirs });
                        }
                        ReadState::Ended => {
                            return Err(StreamError::FunctionReturned { other: from, own: own() });
                        }
                        _ => {}
                    }
                }
            }
            self.wait(&mut spin, interest)?;
        }
    }

    /// Announces to the other ranks that this rank's function has returned.
    pub(super) fn close(&mut self) {
        for outgoing in self.outgoing.iter_mut().flatten() {
            // A stream that stopped within a payload has no place for a header. The coordinator
            // then learns of the failure in another way.
            if outgoing.is_idle() {
                outgoing.begin(Header::End);
            }
        }
    }
}

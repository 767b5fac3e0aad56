//! The streams between this rank and others, as the function's thread uses them.
//!
//! What goes from one rank to another takes one stream, opened by the sender when it first sends.
//! Whoever waits, to send or to receive, meanwhile takes in values that others send, so that ranks
//! which all send first don't block each other.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiber_core::SessionKey;
use fiber_transport::shared::open_stream;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::call::{Call, Header, Tag, padding};
use super::line::{Inlet, Outlet, Sink, Source, State};
use super::linked::{Bell, LinkWriter};
use super::wire::{Doing, Member, Trouble};
use crate::runtime::Runtime;

/// Bytes of the circle of a stream through shared memory.
const CIRCLE: usize = 1 << 20;

/// What this process's node and its other threads share with the thread of the function.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) bell: Arc<Bell>,
    /// Streams that other ranks have opened.
    pub(super) arrivals: Mutex<Vec<(usize, Source)>>,
    pub(super) doing: Mutex<Doing>,
}

/// All streams of this rank.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) rank: usize,
    pub(super) size: usize,
    runtime: &'static Runtime,
    members: Vec<Member>,
    here: Arc<Here>,
    inlets: Vec<Option<Inlet>>,
    outlets: Vec<Option<Outlet>>,
    own: VecDeque<(Tag, Vec<u8>)>,
    pub(super) timeout: Duration,
    cores: Cores,
    /// How often is looked again before the thread sleeps.
    looks: u32,
}

/// Whether each rank may have a processor core to itself.
#[derive(Clone, Copy, Debug)]
enum Cores {
    Enough,
    /// Who waits lets others go on.
    Shared,
}

/// How long somebody has waited.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    looked: u32,
    since: Option<Instant>,
}

/// What somebody waits for: that one rank sends, that another one receives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    pub(super) from: Option<usize>,
    pub(super) to: Option<usize>,
}

impl Lines {
    pub(super) fn new(
        runtime: &'static Runtime,
        rank: usize,
        members: Vec<Member>,
        here: Arc<Here>,
        timeout: Duration,
    ) -> Lines {
        let size = members.len();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Lines {
            rank,
            size,
            runtime,
            members,
            here,
            inlets: (0..size).map(|_| None).collect(),
            outlets: (0..size).map(|_| None).collect(),
            own: VecDeque::new(),
            timeout,
            cores: if size <= cores { Cores::Enough } else { Cores::Shared },
            looks: if size <= cores { 2000 } else { 50 },
        }
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(super) fn right(&self) -> usize {
        (self.rank + 1) % self.size
    }

    pub(super) fn left(&self) -> usize {
        (self.rank + self.size - 1) % self.size
    }

    /// Says what this rank is doing, in case that somebody has to be told.
    pub(super) fn does(&self, doing: Doing) {
        *self.here.doing.lock() = doing;
    }

    /// The stream to a rank, opened if there is none.
    pub(super) fn outlet(&mut self, to: usize) -> Result<&mut Outlet, Trouble> {
        if self.outlets[to].is_none() {
            let member = &self.members[to];
            let greeting = (self.rank as u64).to_le_bytes();
            let key: &SessionKey = self.runtime.key();
            let sink = match &member.streams {
                Some(address) => open_stream(address, key, &greeting, CIRCLE)
                    .map(|writer| Sink::Shared(writer, false))
                    .map_err(|error| error.to_string()),
                None => {
                    LinkWriter::open(self.runtime, self.rank, member, Arc::clone(&self.here.bell))
                        .map(Sink::Link)
                }
            };
            let sink = sink.map_err(|problem| Trouble::Lost { other: to, problem })?;
            self.outlets[to] = Some(Outlet::new(sink));
        }
        Ok(self.outlets[to].as_mut().expect("it has just been opened"))
    }

    /// What comes from a rank, if it has sent anything yet.
    pub(super) fn inlet(&mut self, from: usize) -> Option<&mut Inlet> {
        if self.inlets[from].is_none() {
            self.welcome();
        }
        let inlet = self.inlets[from].as_mut()?;
        inlet.advance();
        Some(inlet)
    }

    fn welcome(&mut self) {
        for (rank, source) in self.here.arrivals.lock().drain(..) {
            if let Some(inlet) = self.inlets.get_mut(rank) {
                *inlet = Some(Inlet::new(source));
            }
        }
    }

    /// The part of a rank in a collective: `true` when its payload can be taken, `false` when it
    /// has not come.
    pub(super) fn is_called(
        &mut self,
        from: usize,
        call: &Call,
        bytes: Option<u64>,
    ) -> Result<bool, Trouble> {
        let Some(inlet) = self.inlet(from) else { return Ok(false) };
        match &inlet.state {
            State::Call { call: theirs, bytes: announced } => {
                if theirs != call || bytes.is_some_and(|bytes| bytes != *announced) {
                    return Err(Trouble::Mismatch {
                        other: from,
                        mine: call.describe(),
                        theirs: theirs.describe(),
                    });
                }
                inlet.state = State::Payload { left: *announced, padding: padding(*announced) };
                Ok(true)
            }
            State::Payload { .. } => Ok(true),
            State::Bye => Err(Trouble::Finished { other: from, mine: call.describe() }),
            _ => Ok(false),
        }
    }

    /// Bytes that a rank's part still has; only after [`is_called`](Lines::is_called).
    pub(super) fn announced(&mut self, from: usize) -> usize {
        match self.inlets[from].as_ref().map(|inlet| &inlet.state) {
            Some(State::Payload { left, .. }) => usize::try_from(*left).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    /// Sends a value, and returns when it is on its way.
    pub(super) fn send(&mut self, to: usize, tag: Tag, value: &[u8]) -> Result<(), Trouble> {
        if to == self.rank {
            self.own.push_back((tag, value.to_vec()));
            return Ok(());
        }
        self.put(to, Header::Message { tag, bytes: value.len() as u64 }, value)
    }

    /// Sends a header with its payload.
    pub(super) fn put(&mut self, to: usize, header: Header, payload: &[u8]) -> Result<(), Trouble> {
        self.outlet(to)?.begin(header);
        let (mut sent, mut backoff) = (0, Backoff::default());
        loop {
            let outlet = self.outlet(to)?;
            let written = if sent < payload.len() { outlet.write(&payload[sent..]) } else { 0 };
            sent += written;
            if sent == payload.len() && outlet.flush() {
                return Ok(());
            }
            if written > 0 {
                backoff = Backoff::default();
            } else {
                self.wait(&mut backoff, Wanted { to: Some(to), from: None })?;
            }
        }
    }

    /// The next value with this tag from a rank.
    pub(super) fn receive(&mut self, from: usize, tag: Tag) -> Result<Vec<u8>, Trouble> {
        let mut backoff = Backoff::default();
        loop {
            if from == self.rank {
                if let Some(at) = self.own.iter().position(|(other, _)| *other == tag) {
                    return Ok(self.own.remove(at).expect("it is there").1);
                }
            } else if let Some(inlet) = self.inlet(from) {
                if let Some(value) = inlet.message(tag) {
                    return Ok(value);
                }
                match &inlet.state {
                    State::Call { call, .. } => {
                        let (mine, theirs) = ("recv".to_string(), call.describe());
                        return Err(Trouble::Mismatch { other: from, mine, theirs });
                    }
                    State::Bye => {
                        return Err(Trouble::Finished { other: from, mine: "recv".into() });
                    }
                    _ => {}
                }
            }
            let wanted = if from == self.rank {
                Wanted::default()
            } else {
                Wanted { from: Some(from), to: None }
            };
            self.wait(&mut backoff, wanted)?;
        }
    }

    /// Tells the others that this rank's function has ended.
    pub(super) fn close(&mut self) {
        for outlet in self.outlets.iter_mut().flatten() {
            // In the midst of something else nothing can be said; then the owner is told what
            // happened.
            if outlet.left == 0 && outlet.front.is_empty() {
                outlet.begin(Header::Bye);
            }
        }
    }

    /// Waits until what is wanted may be possible, and meanwhile takes in values. To be called
    /// again and again, with the same backoff as long as nothing moves.
    pub(super) fn wait(&mut self, backoff: &mut Backoff, wanted: Wanted) -> Result<(), Trouble> {
        backoff.looked += 1;
        if backoff.looked < self.looks {
            match self.cores {
                Cores::Enough => std::hint::spin_loop(),
                Cores::Shared => std::thread::yield_now(),
            }
            return Ok(());
        }
        self.welcome();
        let mut moved = false;
        for inlet in self.inlets.iter_mut().flatten() {
            moved |= inlet.advance();
        }
        if moved {
            return Ok(());
        }
        let now = Instant::now();
        let waited = now.duration_since(*backoff.since.get_or_insert(now));
        let Some(left) = self.timeout.checked_sub(waited) else {
            return Err(Trouble::Late { seconds: self.timeout.as_secs_f64() });
        };
        let lost = |other, problem: &str| Trouble::Lost { other, problem: problem.into() };
        if let Some(from) = wanted.from
            && let Some(inlet) = &self.inlets[from]
            && inlet.source.is_closed()
            // What it sent before counts.
            && inlet.source.sleeps()
        {
            return Err(lost(from, "its stream to this rank ended"));
        }
        if let Some(to) = wanted.to
            && self.outlets[to].as_ref().is_some_and(Outlet::is_closed)
        {
            return Err(lost(to, "the stream to it ended"));
        }
        let inlets = self.inlets.iter().enumerate();
        let inlets: Vec<usize> = inlets
            .filter(|(rank, inlet)| {
                inlet.as_ref().is_some_and(|inlet| inlet.is_free() || wanted.from == Some(*rank))
            })
            .map(|(rank, _)| rank)
            .collect();
        let asleep = inlets
            .iter()
            .all(|rank| self.inlets[*rank].as_ref().is_some_and(|inlet| inlet.source.sleeps()))
            && wanted.to.is_none_or(|to| self.outlets[to].as_ref().is_some_and(Outlet::sleeps));
        if asleep {
            self.sleep(&inlets, wanted.to, left);
        }
        Ok(())
    }

    /// Sleeps until one of these streams has something, or the bell rings.
    fn sleep(&mut self, inlets: &[usize], outlet: Option<usize>, limit: Duration) {
        let mut files = vec![PollFd::new(self.here.bell.file(), PollFlags::IN)];
        for rank in inlets {
            if let Some(Inlet { source: Source::Shared(reader, _), .. }) = &self.inlets[*rank] {
                files.push(PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN));
            }
        }
        if let Some(Outlet { sink: Sink::Shared(writer, _), .. }) =
            outlet.and_then(|to| self.outlets[to].as_ref())
        {
            files.push(PollFd::from_borrowed_fd(writer.as_fd(), PollFlags::IN));
        }
        let limit =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        // If it is interrupted, whoever waits looks again and comes back.
        let _ = poll(&mut files, Some(&limit));
        let rung: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
        drop(files);
        let mut rung = rung.into_iter();
        if rung.next() == Some(true) {
            self.here.bell.heard();
        }
        for rank in inlets {
            if let Some(Inlet { source: Source::Shared(reader, closed), .. }) =
                &mut self.inlets[*rank]
                && rung.next() == Some(true)
                && reader.woken().is_err()
            {
                *closed = true;
            }
        }
        if let Some(Outlet { sink: Sink::Shared(writer, closed), .. }) =
            outlet.and_then(|to| self.outlets[to].as_mut())
            && rung.next() == Some(true)
            && writer.woken().is_err()
        {
            *closed = true;
        }
    }
}

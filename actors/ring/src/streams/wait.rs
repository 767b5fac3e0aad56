//! Waiting for other ranks: first by polling, then asleep.
//!
//! Polling for a while before the thread sleeps avoids most wake-ups.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::incoming::{IncomingStream, StreamReader};
use super::outgoing::{OutgoingStream, StreamWriter};
use super::{RankStreams, StreamError, Wakeup};

/// How a waiting rank polls before its thread sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) enum Polling {
    /// Spins: each rank may have a processor core to itself.
    Spin,
    /// Yields to the others: ranks share cores.
    Yield,
}

impl Polling {
    pub(super) fn new(ranks: usize) -> Polling {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if ranks <= cores { Polling::Spin } else { Polling::Yield }
    }

    /// How often it polls before the thread sleeps.
    fn rounds(self) -> u32 {
        match self {
            Polling::Spin => 2000,
            Polling::Yield => 50,
        }
    }
}

/// How long an operation has waited without progress.
#[derive(Debug, Default)]
pub(crate) struct SpinWait {
    rounds: u32,
    since: Option<Instant>,
}

/// The events that an operation waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Interest {
    /// Bytes from this rank.
    pub(crate) from: Option<usize>,
    /// Room in the stream to this rank.
    pub(crate) to: Option<usize>,
}

impl Interest {
    pub(crate) fn bytes_from(rank: usize) -> Interest {
        Interest { from: Some(rank), to: None }
    }

    pub(crate) fn room_to(rank: usize) -> Interest {
        Interest { from: None, to: Some(rank) }
    }
}

impl RankStreams {
    /// Waits until there may be progress, and meanwhile receives values from all ranks.
    ///
    /// An operation calls it in a loop, with one `spin` as long as nothing progresses.
    pub(crate) fn wait(
        &mut self,
        spin: &mut SpinWait,
        interest: Interest,
    ) -> Result<(), StreamError> {
        spin.rounds += 1;
        if spin.rounds < self.polling.rounds() {
            match self.polling {
                Polling::Spin => std::hint::spin_loop(),
                Polling::Yield => std::thread::yield_now(),
            }
            return Ok(());
        }
        self.accept_streams();
        let mut progressed = false;
        for incoming in self.incoming.iter_mut().flatten() {
            progressed |= incoming.advance();
        }
        if progressed {
            return Ok(());
        }
        let now = Instant::now();
        let waited = now.duration_since(*spin.since.get_or_insert(now));
        let remaining = self.timeout.saturating_sub(waited);
        if remaining.is_zero() {
            return Err(StreamError::TimedOut(self.timeout));
        }
        self.check_open(interest)?;
        let readable: Vec<usize> = self
            .incoming
            .iter()
            .enumerate()
            .filter(|(rank, incoming)| {
                let wanted = interest.from == Some(*rank);
                incoming.as_ref().is_some_and(|incoming| incoming.can_advance() || wanted)
            })
            .map(|(rank, _)| rank)
            .collect();
        // All have to be armed before the thread sleeps.
        let armed = readable
            .iter()
            .all(|rank| self.incoming[*rank].as_ref().is_some_and(|stream| stream.reader.arm()))
            && interest
                .to
                .is_none_or(|to| self.outgoing[to].as_ref().is_some_and(OutgoingStream::arm));
        if armed {
            self.sleep(&readable, interest.to, remaining);
        }
        Ok(())
    }

    fn check_open(&self, interest: Interest) -> Result<(), StreamError> {
        let closed =
            |other, problem: &str| StreamError::Disconnected { other, problem: problem.into() };
        if let Some(from) = interest.from
            && let Some(incoming) = &self.incoming[from]
            && incoming.reader.is_closed()
            // Bytes that arrived before the end still count.
            && incoming.reader.arm()
        {
            return Err(closed(from, "the stream from it closed"));
        }
        if let Some(to) = interest.to
            && self.outgoing[to].as_ref().is_some_and(OutgoingStream::is_closed)
        {
            return Err(closed(to, "the stream to it closed"));
        }
        Ok(())
    }

    /// Sleeps until one of these streams has bytes or room, or another thread notifies this one.
    fn sleep(&mut self, readable: &[usize], writable: Option<usize>, limit: Duration) {
        let shared = Arc::clone(&self.shared);
        let file = match &*shared.wakeup {
            Wakeup::Flag(is_set, changed) => return Wakeup::wait(is_set, changed, limit),
            Wakeup::File(file) => file,
        };
        let mut files = vec![PollFd::new(file, PollFlags::IN)];
        for rank in readable {
            if let Some(IncomingStream { reader: StreamReader::Shared { reader, .. }, .. }) =
                &self.incoming[*rank]
            {
                files.push(PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN));
            }
        }
        if let Some(OutgoingStream { writer: StreamWriter::Shared { writer, .. }, .. }) =
            writable.and_then(|to| self.outgoing[to].as_ref())
        {
            files.push(PollFd::from_borrowed_fd(writer.as_fd(), PollFlags::IN));
        }
        // A time beyond the clock of the system is none.
        let limit = Timespec::try_from(limit).ok();
        // After an interruption by a signal the caller polls again.
        let _ = poll(&mut files, limit.as_ref());
        let ready: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
        drop(files);
        let mut ready = ready.into_iter();
        if ready.next() == Some(true) {
            Wakeup::clear(file);
        }
        for rank in readable {
            if let Some(IncomingStream { reader: StreamReader::Shared { reader, closed }, .. }) =
                &mut self.incoming[*rank]
                && ready.next() == Some(true)
                && reader.woken().is_err()
            {
                *closed = true;
            }
        }
        if let Some(OutgoingStream { writer: StreamWriter::Shared { writer, closed }, .. }) =
            writable.and_then(|to| self.outgoing[to].as_mut())
            && ready.next() == Some(true)
            && writer.woken().is_err()
        {
            *closed = true;
        }
    }
}

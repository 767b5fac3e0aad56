//! The output of a worker's command.
//!
//! Two pipes serve all commands of a worker, one after the other, and the worker keeps both of
//! their ends: making new ones for each command would cost as much as a tenth of a short one. The
//! end of a command's output is therefore the end of its processes.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// The size of one read, which is that of a pipe.
const READ: usize = 64 << 10;

pub(super) struct Output {
    stdout: Stream,
    stderr: Stream,
    /// Whether what comes is thrown away.
    is_discarded: bool,
}

struct Stream {
    reader: PipeReader,
    writer: PipeWriter,
    bytes: Vec<u8>,
}

impl Output {
    pub(super) fn new() -> io::Result<Output> {
        Ok(Output { stdout: Stream::new()?, stderr: Stream::new()?, is_discarded: false })
    }

    /// Returns standard output and standard error for a child.
    pub(super) fn for_child(&self) -> io::Result<(Stdio, Stdio)> {
        Ok((self.stdout.writer.try_clone()?.into(), self.stderr.writer.try_clone()?.into()))
    }

    /// Reads what comes until `process` ends (`true`) or `limit` is over, or returns after some of
    /// it.
    pub(super) fn read_until_end_of(
        &mut self,
        process: &OwnedFd,
        limit: Option<Duration>,
    ) -> io::Result<bool> {
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let mut sources = [
            PollFd::new(process, PollFlags::IN),
            PollFd::new(&self.stdout.reader, PollFlags::IN),
            PollFd::new(&self.stderr.reader, PollFlags::IN),
        ];
        match poll(&mut sources, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [has_ended, stdout, stderr] = sources.map(|source| !source.revents().is_empty());
        if stdout {
            self.stdout.read(self.is_discarded)?;
        }
        if stderr {
            self.stderr.read(self.is_discarded)?;
        }
        Ok(has_ended)
    }

    /// Reads what is in the pipes.
    pub(super) fn read_available(&mut self) -> io::Result<()> {
        while self.stdout.read(self.is_discarded)? {}
        while self.stderr.read(self.is_discarded)? {}
        Ok(())
    }

    pub(super) fn len(&self) -> u64 {
        (self.stdout.bytes.len() + self.stderr.bytes.len()) as u64
    }

    /// Throws away what comes from now on.
    pub(super) fn discard_from_now(&mut self) {
        self.is_discarded = true;
    }

    /// Shortens what was read to `limit` bytes.
    pub(super) fn truncate(&mut self, limit: u64) {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.stdout.bytes.truncate(limit);
        self.stderr.bytes.truncate(limit - self.stdout.bytes.len());
    }

    /// Takes what was read.
    pub(super) fn take(&mut self) -> (Vec<u8>, Vec<u8>) {
        self.is_discarded = false;
        (std::mem::take(&mut self.stdout.bytes), std::mem::take(&mut self.stderr.bytes))
    }
}

impl Stream {
    fn new() -> io::Result<Stream> {
        let (reader, writer) = io::pipe()?;
        fcntl_setfl(&reader, fcntl_getfl(&reader)? | OFlags::NONBLOCK)?;
        Ok(Stream { reader, writer, bytes: Vec::new() })
    }

    /// Reads once, if there is something to read. Returns whether there was.
    fn read(&mut self, is_discarded: bool) -> io::Result<bool> {
        let before = self.bytes.len();
        let read = (&self.reader).take(READ as u64).read_to_end(&mut self.bytes);
        let count = self.bytes.len() - before;
        if is_discarded {
            self.bytes.truncate(before);
        }
        match read {
            Ok(_) => Ok(count > 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(count > 0),
            Err(error) => Err(error),
        }
    }
}

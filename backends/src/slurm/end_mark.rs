//! The mark at the end of a step's output.
//!
//! Slurm closes the streams of a step when its process has ended, also if `srun` has not received
//! all of the output, and it passes on an unfinished line only at the end of its stream. So a
//! process ends each stream with a line, and waits at its exit for the answer of [`MarkedOutput`],
//! which removes the line: one byte on standard input.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fiber_core::at_exit::at_exit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{fcntl_dupfd_cloexec, retry_on_intr, write};
use rustix::stdio::{stderr, stdin, stdout};

use crate::output::LineForwarder;

/// The variable that asks a process for the mark.
pub(super) const VARIABLE: &str = "OUTPUT_GOES_TO_FIBER";
/// The mark, after the end of the last line.
const MARK: &[u8] = b"\n\x1eend of output\n";
/// Time limit for all answers.
const LIMIT: Duration = Duration::from_secs(5);

/// The standard input that this process was started with: what starts its work replaces it.
static ANSWERS: OnceLock<File> = OnceLock::new();

/// Marks the end of this process's output at its exit, if it is the process of a step.
pub(crate) fn mark_at_exit() {
    // Removed, as the variable is not meant for the processes that this one starts.
    let asked = fiber_core::secrets::take_variables(VARIABLE, VARIABLE);
    if asked.is_none_or(|[value, _]| value.is_none()) {
        return;
    }
    let Ok(answers) = fcntl_dupfd_cloexec(stdin(), 3) else { return };
    if ANSWERS.set(answers.into()).is_ok() {
        at_exit(|_| {
            if let Some(answers) = ANSWERS.get() {
                mark(&[stdout(), stderr()], answers, LIMIT);
            }
        });
    }
}

/// Ends those of the streams that are pipes with a mark, and waits for the answers.
fn mark(streams: &[BorrowedFd<'_>], mut answers: &File, limit: Duration) {
    let deadline = Instant::now() + limit;
    for stream in streams {
        let is_pipe =
            fstat(stream).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        let is_marked = is_pipe
            && comes(stream.as_fd(), PollFlags::OUT, deadline)
            && retry_on_intr(|| write(stream, MARK)).is_ok();
        if is_marked && comes(answers.as_fd(), PollFlags::IN, deadline) {
            // Without an answer, the reader is gone.
            let _ = answers.read(&mut [0]);
        }
    }
}

/// Waits until a stream can be used.
fn comes(stream: BorrowedFd<'_>, event: PollFlags, deadline: Instant) -> bool {
    let mut polled = [PollFd::new(&stream, event)];
    let left = deadline.saturating_duration_since(Instant::now());
    let ready = retry_on_intr(|| poll(&mut polled, Timespec::try_from(left).ok().as_ref()));
    ready.is_ok_and(|count| count > 0)
}

/// One stream of a step, whose mark it removes.
#[derive(Debug)]
pub(super) struct MarkedOutput {
    forwarder: LineForwarder,
    /// Not forwarded yet: the begin of a mark, perhaps.
    held: Vec<u8>,
    is_at_line_start: bool,
}

impl MarkedOutput {
    pub(super) fn new(forwarder: LineForwarder) -> MarkedOutput {
        MarkedOutput { forwarder, held: Vec::new(), is_at_line_start: true }
    }

    /// Forwards output. Returns whether it has a mark.
    pub(super) async fn push(&mut self, bytes: &[u8]) -> bool {
        let mut is_marked = false;
        self.held.extend_from_slice(bytes);
        let line = &MARK[1..];
        while let Some(at) = self.held.windows(line.len()).position(|part| part == line) {
            let rest = self.held.split_off(at + line.len());
            self.held.truncate(at);
            if self.ends_with_blank_line() {
                self.held.pop();
            }
            self.forward(self.held.len()).await;
            self.held = rest;
            is_marked = true;
        }
        self.forward(self.held.len() - self.begun_mark()).await;
        is_marked
    }

    pub(super) async fn finish(mut self) {
        self.forward(self.held.len()).await;
        self.forwarder.finish().await;
    }

    async fn forward(&mut self, length: usize) {
        if length > 0 {
            self.is_at_line_start = self.held[length - 1] == b'\n';
            self.forwarder.push(&self.held[..length]).await;
            self.held.drain(..length);
        }
    }

    /// Returns how many of the last bytes may be the begin of a mark.
    fn begun_mark(&self) -> usize {
        let possible = (1..MARK.len()).rev().flat_map(|length| [&MARK[..length], &MARK[1..length]]);
        let begun = possible.filter(|begin| !begin.is_empty()).find(|begin| {
            self.held.strip_suffix(*begin).is_some_and(|before| self.ends_a_line(before))
        });
        begun.map_or(0, <[u8]>::len)
    }

    fn ends_with_blank_line(&self) -> bool {
        self.held.strip_suffix(b"\n").is_some_and(|before| self.ends_a_line(before))
    }

    /// Returns whether the next byte after these is the first one of a line.
    fn ends_a_line(&self, held: &[u8]) -> bool {
        held.last().map_or(self.is_at_line_start, |last| *last == b'\n')
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::thread::spawn;

    use super::*;
    use crate::output::{OutputTarget, Tail};

    /// Forwards these parts. Returns what arrives in the log.
    async fn forwarded(parts: &[&[u8]]) -> String {
        let mut log = tempfile::tempfile().expect("there is a file");
        let target = OutputTarget::File(log.try_clone().expect("it is open").into());
        let mut output = MarkedOutput::new(LineForwarder::new(target, Tail::default()));
        for part in parts {
            output.push(part).await;
        }
        output.finish().await;
        let mut text = String::new();
        std::io::Seek::rewind(&mut log).expect("it is a file");
        log.read_to_string(&mut text).expect("it is text");
        text
    }

    #[tokio::test]
    async fn the_output_is_what_was_printed_however_it_is_cut() {
        let cases = [
            ("a\nb\n\n\x1eend of output\n", "a\nb\n"),
            ("a\n\n\n\x1eend of output\n", "a\n\n"),
            ("\n\x1eend of output\n", ""),
            ("a\n\x1eend of output\nlate\n", "a\nlate\n"),
            ("a\n\n\x1eend of it\n", "a\n\n\x1eend of it\n"),
            ("a\n\n", "a\n\n"),
        ];
        for (printed, expected) in cases {
            for cut in 0..printed.len() {
                let (begin, rest) = printed.as_bytes().split_at(cut);
                assert_eq!(forwarded(&[begin, rest]).await, expected, "{printed:?} cut at {cut}");
            }
            let bytes: Vec<_> = printed.as_bytes().chunks(1).collect();
            assert_eq!(forwarded(&bytes).await, expected, "{printed:?} byte by byte");
        }
    }

    #[test]
    fn a_process_ends_after_its_output_has_arrived() {
        let (mut output, mut writer) = std::io::pipe().expect("there are descriptors");
        let (answers, mut answer) = std::io::pipe().expect("there are descriptors");
        writer.write_all(b"no end").expect("the pipe has room");
        let reading = spawn(move || {
            let mut all = [0; b"no end".len() + MARK.len()];
            output.read_exact(&mut all).expect("the writer is open");
            answer.write_all(b"\n").expect("the writer waits for it");
            (all, output, answer)
        });
        mark(&[writer.as_fd()], &File::from(OwnedFd::from(answers)), Duration::MAX / 4);
        let (all, ..) = reading.join().expect("the reader ends");
        assert!(all.starts_with(b"no end\n") && all.ends_with(MARK));
    }

    #[test]
    fn a_process_ends_without_a_reader() {
        let (output, writer) = std::io::pipe().expect("there are descriptors");
        let (answers, answer) = std::io::pipe().expect("there are descriptors");
        drop((output, answer));
        mark(&[writer.as_fd()], &File::from(OwnedFd::from(answers)), Duration::MAX / 4);
    }
}

//! Output of child processes: forwarded line by line, with the last lines kept for error messages.

mod capture;
mod log;
mod merge;
mod printer;

use std::collections::VecDeque;
#[cfg(feature = "remote")]
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use fiber_core::OutputMode;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::capture::Capture;
pub use self::capture::{ChildOutput, capture_in_tests};
pub(crate) use self::log::Log;
pub(crate) use self::printer::OutputStream;
use self::printer::{PendingWrite, is_backlogged};
pub use self::printer::{flush, flush_within, print_message, set_print_wrapper, warn};
#[cfg(feature = "remote")]
use crate::{BackendError, JobSpec};

/// The limits of the tail of a process's output, in lines and bytes.
const TAIL_LINES: usize = 20;
const TAIL_BYTES: usize = 4 << 10;
/// The size of a read, in bytes. A longer line is forwarded in parts.
const BUFFER: usize = 64 << 10;
/// The last lines of a process's output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    pub(crate) fn add(&self, bytes: &[u8]) {
        let mut lines = self.0.lock();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let end = line.len().min(TAIL_BYTES / 4);
            lines.push_back(String::from_utf8_lossy(&line[..end]).trim_end().to_string());
            while lines.len() > TAIL_LINES
                || lines.iter().map(String::len).sum::<usize>() > TAIL_BYTES
            {
                lines.pop_front();
            }
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }
}

/// The destination of output lines, besides the tail.
#[derive(Clone, Debug)]
pub(crate) enum OutputTarget {
    Discard,
    Inherit {
        stream: OutputStream,
        label: Label,
        capture: Option<Capture>,
    },
    #[cfg(feature = "remote")]
    File(Arc<std::fs::File>),
}

/// What is before each line.
#[derive(Clone, Debug)]
pub(crate) enum Label {
    None,
    /// The process's name.
    Name(Arc<str>),
    /// The same, or the number of processes that have printed the line.
    Merged(Arc<str>),
}

impl OutputTarget {
    /// Returns the target for a stream of the process called `name`, which has no log file.
    pub(crate) fn new(output: &ChildOutput, stream: OutputStream, name: &str) -> OutputTarget {
        let label = match output.mode {
            OutputMode::Inherit => Label::None,
            OutputMode::Prefix => Label::Name(name.into()),
            OutputMode::Merge => Label::Merged(name.into()),
            _ => return OutputTarget::Discard,
        };
        OutputTarget::Inherit { stream, label, capture: output.capture.clone() }
    }

    /// Returns the targets of a job's standard output and standard error. Opens its log file if it
    /// has [`OutputMode::File`].
    #[cfg(feature = "remote")]
    pub(crate) fn both(spec: &JobSpec) -> Result<[OutputTarget; 2], BackendError> {
        let file = Log::of(spec)?.map(|log| Arc::new(log.file));
        Ok([OutputStream::Stdout, OutputStream::Stderr].map(|stream| match &file {
            Some(file) => OutputTarget::File(Arc::clone(file)),
            None => OutputTarget::new(&spec.output, stream, &spec.name),
        }))
    }
}

/// Forwards one stream of a process by lines.
#[derive(Debug)]
pub(crate) struct LineForwarder {
    pending: Vec<u8>,
    target: OutputTarget,
    tail: Tail,
}

impl LineForwarder {
    pub(crate) fn new(target: OutputTarget, tail: Tail) -> LineForwarder {
        // No buffer yet: most children print nothing.
        LineForwarder { pending: Vec::new(), target, tail }
    }

    /// Forwards all complete lines.
    async fn forward_complete_lines(&mut self) {
        let ends_line = |byte: &u8| *byte == b'\n' || *byte == b'\r';
        let whole = match self.pending.iter().rposition(ends_line) {
            Some(end) => end + 1,
            None if self.pending.len() >= BUFFER => self.pending.len(),
            None => 0,
        };
        if whole > 0 {
            let mut rest = Vec::with_capacity(BUFFER);
            rest.extend_from_slice(&self.pending[whole..]);
            self.pending.truncate(whole);
            let lines = std::mem::replace(&mut self.pending, rest);
            self.tail.add(&lines);
            self.target.write(lines).await;
        }
    }

    #[cfg(feature = "remote")]
    pub(crate) async fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        self.forward_complete_lines().await;
    }

    /// Ends the stream. Forwards the last line also if it has no line end.
    pub(crate) async fn finish(self) {
        if !self.pending.is_empty() {
            self.tail.add(&self.pending);
            self.target.write(self.pending).await;
        }
    }
}

/// Forwards `pipe` to its end. Backpressure: what this process can't write yet stays in the pipe,
/// so a child that prints without end can't fill this process's memory.
pub(crate) async fn forward_lines(
    mut pipe: impl AsyncRead + Unpin,
    target: OutputTarget,
    tail: Tail,
) {
    let mut forwarder = LineForwarder::new(target, tail);
    while pipe.read_buf(&mut forwarder.pending).await.unwrap_or(0) > 0 {
        forwarder.forward_complete_lines().await;
    }
    forwarder.finish().await;
}

impl OutputTarget {
    async fn write(&self, lines: Vec<u8>) {
        match self {
            OutputTarget::Discard => {}
            OutputTarget::Inherit { stream, label, capture } => {
                let bytes = match label {
                    Label::None => lines,
                    Label::Merged(name) if capture.is_none() => {
                        return merge::print(*stream, name, &lines).await;
                    }
                    // Each test has its own lines, which do not wait for those of others.
                    Label::Name(name) | Label::Merged(name) => prefixed(name, &lines),
                };
                match capture {
                    Some(capture) => capture.print(*stream, bytes).await,
                    None => printer::print(*stream, bytes).await,
                }
            }
            #[cfg(feature = "remote")]
            OutputTarget::File(file) => {
                if let Err(error) = (&mut &**file).write_all(&lines) {
                    tracing::error!(
                        "output of a child process is lost: its log can't be written: {error}"
                    );
                }
            }
        }
    }
}

fn prefixed(prefix: &str, lines: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(lines.len() + 64);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        bytes.extend_from_slice(b"[");
        bytes.extend_from_slice(prefix.as_bytes());
        bytes.extend_from_slice(b"] ");
        bytes.extend_from_slice(line);
    }
    if !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    bytes
}

/// Waits until `forwarding` has forwarded all output, but not longer than `limit`. After that, it
/// continues in the background while the printer is busy, because a slow reader may be the reason,
/// and is aborted otherwise.
pub(crate) async fn drain(mut forwarding: JoinHandle<()>, limit: Duration) {
    if timeout(limit, &mut forwarding).await.is_ok() {
        return;
    }
    let rest = PendingWrite::new();
    fiber_core::spawn_local(async move {
        while is_backlogged() && timeout(limit, &mut forwarding).await.is_err() {}
        forwarding.abort();
        drop(rest);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_bounded() {
        let tail = Tail::default();
        for line in 0..100_000 {
            tail.add(format!("line {line}\n").as_bytes());
        }
        tail.add(&[b'x'; 1 << 20]);
        let lines = tail.lines();
        assert!(
            lines.len() <= TAIL_LINES && lines.iter().map(String::len).sum::<usize>() <= TAIL_BYTES
        );
        assert!(lines[0].starts_with("line 99"));
    }

    #[test]
    fn each_line_gets_its_prefix() {
        assert_eq!(prefixed("worker-1", b"a\nb"), b"[worker-1] a\n[worker-1] b\n");
    }
}

//! Output of child processes: forwarded line by line, with the last lines kept for error messages.

mod log;

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fiber_core::{OutputMode, shortage};
use parking_lot::{Condvar, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) use self::log::Log;

/// The limits of the tail of a process's output, in lines and bytes.
const TAIL_LINES: usize = 20;
const TAIL_BYTES: usize = 4 << 10;
/// The size of a read, in bytes. A longer line is forwarded in parts.
const BUFFER: usize = 64 << 10;
/// The number of writes that may wait for the printer thread.
const WAITING: usize = 16;

/// A standard stream of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

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
        prefix: Option<Arc<str>>,
    },
    #[cfg(feature = "docker")]
    File(Arc<std::fs::File>),
}

impl OutputTarget {
    /// Returns the target for a stream of the process called `name`. Backends open the files of
    /// [`OutputMode::File`] themselves.
    pub(crate) fn new(mode: OutputMode, stream: OutputStream, name: &str) -> OutputTarget {
        match mode {
            OutputMode::Inherit => OutputTarget::Inherit { stream, prefix: None },
            OutputMode::Prefix => OutputTarget::Inherit { stream, prefix: Some(name.into()) },
            _ => OutputTarget::Discard,
        }
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

    #[cfg(feature = "docker")]
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
            OutputTarget::Inherit { stream, prefix } => {
                let bytes = match prefix {
                    Some(prefix) => prefixed(prefix, &lines),
                    None => lines,
                };
                let print = WriteRequest { stream: *stream, bytes, _pending: PendingWrite::new() };
                match printer() {
                    // The printer thread runs until the process exits.
                    Ok(printer) => drop(printer.send(print).await),
                    Err(error) => tracing::error!(
                        "output of a child process is lost: {}",
                        shortage::explain(&error)
                    ),
                }
            }
            #[cfg(feature = "docker")]
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

struct WriteRequest {
    stream: OutputStream,
    bytes: Vec<u8>,
    _pending: PendingWrite,
}

/// Counts what children printed and this process has not.
struct PendingWrite;

static UNWRITTEN: Mutex<usize> = Mutex::new(0);
static WRITTEN: Condvar = Condvar::new();

impl PendingWrite {
    fn new() -> PendingWrite {
        *UNWRITTEN.lock() += 1;
        PendingWrite
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        *UNWRITTEN.lock() -= 1;
        WRITTEN.notify_all();
    }
}

/// Whether the printer has the stream to itself, so that it waits for nobody but its reader.
static WRITING: AtomicBool = AtomicBool::new(false);

/// A thread of its own writes to this process's output, which may be slow or stand still. It is
/// started when something is first to be written, and again at the next time if the system has no
/// room for it.
fn printer() -> io::Result<&'static mpsc::Sender<WriteRequest>> {
    static PRINTER: OnceLock<mpsc::Sender<WriteRequest>> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(printer) = PRINTER.get() {
        return Ok(printer);
    }
    let _one_at_a_time = STARTING.lock();
    if let Some(printer) = PRINTER.get() {
        return Ok(printer);
    }
    let (sender, mut receiver) = mpsc::channel::<WriteRequest>(WAITING);
    let run = move || {
        while let Some(print) = receiver.blocking_recv() {
            print.stream.write(&print.bytes);
        }
    };
    std::thread::Builder::new().name("fiber-output".into()).spawn(run)?;
    Ok(PRINTER.get_or_init(|| sender))
}

/// Runs the writes to a terminal, in place of the printer.
static PRINT_WRAPPER: OnceLock<fn(&mut dyn FnMut())> = OnceLock::new();

/// Has `around` run what writes the output of children to a terminal, once each time: so it can
/// clear the screen before and draw on it again afterwards. The first one stays.
pub fn set_print_wrapper(around: fn(&mut dyn FnMut())) {
    let _ = PRINT_WRAPPER.set(around);
}

impl OutputStream {
    fn write(self, bytes: &[u8]) {
        match (self, PRINT_WRAPPER.get()) {
            (OutputStream::Stdout, Some(around)) if io::stdout().is_terminal() => {
                let mut stream = io::stdout().lock();
                around(&mut || write(&mut stream, bytes));
            }
            // Its lock may be held by a thread that waits for the screen.
            (OutputStream::Stderr, Some(around)) if io::stderr().is_terminal() => {
                around(&mut || write(Unlocked, bytes))
            }
            (OutputStream::Stdout, _) => write(io::stdout().lock(), bytes),
            (OutputStream::Stderr, _) => write(io::stderr().lock(), bytes),
        }
    }
}

/// Standard error without its lock.
struct Unlocked;

impl Write for Unlocked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::write(rustix::stdio::stderr(), bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether the printer has something to write.
fn is_backlogged() -> bool {
    WRITING.load(Ordering::Relaxed) || printer().is_ok_and(|printer| printer.capacity() < WAITING)
}

fn write(mut stream: impl Write, bytes: &[u8]) {
    WRITING.store(true, Ordering::Relaxed);
    let written = stream.write_all(bytes).and_then(|()| stream.flush());
    drop(stream);
    WRITING.store(false, Ordering::Relaxed);
    match written {
        // Whoever read this process's output may have gone; that is no reason to stop the work.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            tracing::error!(
                "output of a child process is lost: this process's output can't be written: {error}"
            );
        }
        _ => {}
    }
}

/// Waits until `forwarding` has forwarded all output, but not longer than `limit`. After that, it
/// continues in the background while the printer is busy with slow readers, and is aborted once it
/// has no such excuse.
pub(crate) async fn drain(mut forwarding: JoinHandle<()>, limit: Duration) {
    if timeout(limit, &mut forwarding).await.is_ok() {
        return;
    }
    let rest = PendingWrite::new();
    tokio::task::spawn_local(async move {
        while is_backlogged() && timeout(limit, &mut forwarding).await.is_err() {}
        forwarding.abort();
        drop(rest);
    });
}

/// Waits until all output of children is written, as long as its reader takes, like a process's own
/// output. Gives up when another thread holds the stream for longer than `limit`.
pub fn flush(limit: Duration) {
    let mut unwritten = UNWRITTEN.lock();
    while *unwritten > 0 {
        if WRITTEN.wait_for(&mut unwritten, limit).timed_out() && !WRITING.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Waits until all output of children is written, but not longer than `limit`.
pub fn flush_within(limit: Duration) {
    WRITTEN.wait_while_for(&mut UNWRITTEN.lock(), |unwritten| *unwritten > 0, limit);
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

//! The printer: the thread that writes the output of child processes to this process's own streams.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use fiber_core::{Patient, shortage, start_thread};
use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc;

use super::merge;

/// The number of writes that may wait for the printer thread.
const WAITING: usize = 16;

/// A standard stream of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

struct WriteRequest {
    stream: OutputStream,
    bytes: Vec<u8>,
    _pending: PendingWrite,
}

/// Queues lines for a standard stream of this process. Waits while the queue is full.
pub(super) async fn print(stream: OutputStream, bytes: Vec<u8>) {
    let request = WriteRequest { stream, bytes, _pending: PendingWrite::new() };
    match printer() {
        // The printer thread runs until the process exits.
        Ok(printer) => drop(printer.send(request).await),
        Err(error) => {
            tracing::error!("output of a child process is lost: {}", shortage::explain(&error))
        }
    }
}

/// Queues lines for a standard stream of this process, if the queue has room. Returns whether it
/// has.
pub(super) fn try_print(stream: OutputStream, lines: impl FnOnce() -> Vec<u8>) -> bool {
    let Ok(printer) = printer() else { return false };
    let Ok(room) = printer.try_reserve() else { return false };
    room.send(WriteRequest { stream, bytes: lines(), _pending: PendingWrite::new() });
    true
}

/// Queues a message of fiber for standard error, where it clears a progress bar.
pub async fn print_message(line: String) {
    // The thread that writes would belong to the world that was the first to print.
    if fiber_core::is_simulated() {
        return;
    }
    print(OutputStream::Stderr, line.into_bytes()).await;
}

/// Warns a person: in the log, and on standard error if the program shows no log.
pub fn warn(problem: &str) {
    tracing::warn!("{problem}");
    if !tracing::dispatcher::has_been_set() {
        fiber_core::spawn_local(print_message(format!("fiber: warning: {problem}\n")));
    }
}

/// Output of a child that this process has not written yet. [`flush`] waits for it.
#[derive(Debug)]
pub(super) struct PendingWrite;

/// The number of [`PendingWrite`]s.
static UNWRITTEN: Mutex<usize> = Mutex::new(0);
static WRITTEN: Condvar = Condvar::new();

impl PendingWrite {
    pub(super) fn new() -> PendingWrite {
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

/// Whether the printer holds the lock of a stream, so that only the stream's reader delays it.
static WRITING: AtomicBool = AtomicBool::new(false);

/// Returns the queue of the printer, the thread that writes to this process's output: its reader
/// may be slow or stopped. Starts the thread on first use, and tries again on the next use if the
/// system can't start it.
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
        while let Some(request) = receiver.blocking_recv() {
            request.stream.write(&request.bytes);
        }
    };
    start_thread("fiber-output", run)?;
    Ok(PRINTER.get_or_init(|| sender))
}

/// Runs all writes to a terminal.
static PRINT_WRAPPER: OnceLock<fn(&mut dyn FnMut())> = OnceLock::new();

/// Sets a function that runs all writes of children's output to a terminal, by calling its argument
/// once: it can clear a progress bar before the write and draw it again afterwards. Only the first
/// call of this has an effect.
pub fn set_print_wrapper(wrapper: fn(&mut dyn FnMut())) {
    let _ = PRINT_WRAPPER.set(wrapper);
}

impl OutputStream {
    fn write(self, bytes: &[u8]) {
        match (self, PRINT_WRAPPER.get()) {
            (OutputStream::Stdout, Some(wrapper)) if io::stdout().is_terminal() => {
                let mut stream = Patient(io::stdout().lock());
                wrapper(&mut || write(&mut stream, bytes));
            }
            // Without the lock: a thread that waits for the terminal may hold it.
            (OutputStream::Stderr, Some(wrapper)) if io::stderr().is_terminal() => {
                wrapper(&mut || write(Patient(Unlocked), bytes))
            }
            (OutputStream::Stdout, _) => write(Patient(io::stdout().lock()), bytes),
            (OutputStream::Stderr, _) => write(Patient(io::stderr().lock()), bytes),
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

impl AsFd for Unlocked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        rustix::stdio::stderr()
    }
}

/// Returns whether the printer has something to write.
pub(super) fn is_backlogged() -> bool {
    WRITING.load(Ordering::Relaxed) || printer().is_ok_and(|printer| printer.capacity() < WAITING)
}

fn write(mut stream: impl Write, bytes: &[u8]) {
    WRITING.store(true, Ordering::Relaxed);
    let written = stream.write_all(bytes).and_then(|()| stream.flush());
    drop(stream);
    WRITING.store(false, Ordering::Relaxed);
    match written {
        // Losing the reader of this process's output does not stop the work.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => say_lost(&error),
        _ => {}
    }
}

/// Says that output is lost: in the log, and once on standard error if the program shows no log.
fn say_lost(error: &io::Error) {
    static SAID: Once = Once::new();
    let problem = format!(
        "output of a child process is lost: this process's output can't be written: {error}"
    );
    tracing::error!("{problem}");
    if !tracing::dispatcher::has_been_set() {
        // It may be standard error that can't be written.
        SAID.call_once(|| drop(writeln!(Patient(io::stderr()), "fiber: error: {problem}")));
    }
}

/// Waits until all output of children is written, as long as its reader takes, like a process's own
/// output. Gives up when another thread holds the stream for longer than `limit`.
pub fn flush(limit: Duration) {
    merge::release();
    let mut unwritten = UNWRITTEN.lock();
    while *unwritten > 0 {
        if WRITTEN.wait_for(&mut unwritten, limit).timed_out() && !WRITING.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Waits until all output of children is written, but not longer than `limit`.
pub fn flush_within(limit: Duration) {
    merge::release();
    WRITTEN.wait_while_for(&mut UNWRITTEN.lock(), |unwritten| *unwritten > 0, limit);
}

//! Output of children in tests: it belongs to the test that asked for the child.
//!
//! The test harness of Rust captures what the macros `print!` and `eprint!` write on a test's
//! thread, and on each thread that this one starts. A thread that is started where a child is asked
//! for therefore writes the child's output to the right test.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use fiber_core::{OutputMode, shortage, start_thread};
use tokio::sync::oneshot;

use super::printer::{OutputStream, PendingWrite};

/// The destination of a child's output.
#[derive(Clone, Debug)]
pub struct ChildOutput {
    /// Whether its lines are forwarded, with a prefix, merged, kept in a file or dropped.
    pub mode: OutputMode,
    /// The test for which the process forwards them.
    pub(super) capture: Option<Capture>,
}

impl ChildOutput {
    /// Returns the output of a child that the current thread asks for.
    pub fn new(mode: OutputMode) -> ChildOutput {
        let forwards = matches!(mode, OutputMode::Inherit | OutputMode::Prefix | OutputMode::Merge);
        let captures = forwards && IN_TESTS.load(Ordering::Relaxed);
        ChildOutput { mode, capture: captures.then(Capture::start).flatten() }
    }

    /// Returns the same destination for lines of another mode.
    #[must_use]
    pub fn with_mode(self, mode: OutputMode) -> ChildOutput {
        ChildOutput { mode, ..self }
    }
}

impl From<OutputMode> for ChildOutput {
    fn from(mode: OutputMode) -> ChildOutput {
        ChildOutput { mode, capture: None }
    }
}

/// The test harness of a process captures for all its tests.
static IN_TESTS: AtomicBool = AtomicBool::new(false);

/// Forwards the output of children to the tests that ask for them, from now on.
pub fn capture_in_tests() {
    IN_TESTS.store(true, Ordering::Relaxed);
}

/// A thread that writes to the output of the test in which it was started. It ends when its last
/// handle is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Capture(mpsc::Sender<Lines>);

struct Lines {
    stream: OutputStream,
    bytes: Vec<u8>,
    /// Dropped when they are written.
    written: (oneshot::Sender<()>, PendingWrite),
}

impl Capture {
    fn start() -> Option<Capture> {
        let (sender, receiver) = mpsc::channel::<Lines>();
        let write = move || {
            for Lines { stream, bytes, written } in receiver {
                let lines = String::from_utf8_lossy(&bytes);
                match stream {
                    OutputStream::Stdout => print!("{lines}"),
                    OutputStream::Stderr => eprint!("{lines}"),
                }
                drop(written);
            }
        };
        let thread = start_thread("fiber-output", write);
        let explain = |error: &io::Error| {
            tracing::warn!("a test does not capture its output: {}", shortage::explain(error));
        };
        thread.inspect_err(explain).ok().map(|_| Capture(sender))
    }

    /// Returns when the lines are written, so that the test has them before the child's end.
    pub(super) async fn print(&self, stream: OutputStream, bytes: Vec<u8>) {
        let (written, is_written) = oneshot::channel();
        // The thread ends only after its last sender.
        let _ = self.0.send(Lines { stream, bytes, written: (written, PendingWrite::new()) });
        let _ = is_written.await;
    }
}

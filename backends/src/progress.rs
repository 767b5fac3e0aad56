//! What takes a while, told to whoever wants to show it.

use std::fmt::Debug;
use std::io::Write;
use std::time::Instant;

/// Is told of what takes a while.
pub trait Progress: Debug + Send + Sync {
    /// Something begins, in words: `making the image …`. It is under way until the step is dropped.
    fn begin(&self, what: &str) -> Box<dyn Step>;
}

/// Something that is under way. Dropped before it is [done](Step::done), it has failed.
pub trait Step: Send {
    /// How far it has come, in words.
    fn detail(&mut self, detail: &str) {
        let _ = detail;
    }

    /// It has come to its end.
    fn done(self: Box<Self>);
}

/// A line on standard error for each step: what a program shows of its own images.
#[derive(Debug)]
pub(crate) struct StderrProgress;

impl Progress for StderrProgress {
    fn begin(&self, what: &str) -> Box<dyn Step> {
        let _ = write!(std::io::stderr().lock(), "fiber: {what} … ");
        Box::new(StderrStep { begun: Instant::now(), done: false })
    }
}

struct StderrStep {
    begun: Instant,
    done: bool,
}

impl Step for StderrStep {
    fn done(mut self: Box<Self>) {
        self.done = true;
    }
}

impl Drop for StderrStep {
    fn drop(&mut self) {
        let mut out = std::io::stderr().lock();
        let _ = match self.done {
            true => writeln!(out, "done in {:.1} s", self.begun.elapsed().as_secs_f64()),
            false => writeln!(out, "failed"),
        };
    }
}

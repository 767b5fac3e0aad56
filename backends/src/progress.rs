//! Progress of steps that take a while.

use std::fmt::Debug;
use std::io::Write;
use std::time::Instant;

/// Shows steps that take a while.
pub trait Progress: Debug + Send + Sync {
    /// Begins a step. `what` describes it: `building the image …`. The step is in progress until
    /// the returned value is dropped.
    fn begin(&self, what: &str) -> Box<dyn Step>;
}

/// A step in progress. Dropping it before [`done`](Step::done) means failure.
pub trait Step: Send {
    /// Shows how far it is.
    fn detail(&mut self, detail: &str) {
        let _ = detail;
    }

    /// Ends it with success.
    fn done(self: Box<Self>);
}

/// Shows each step as a line on standard error. The backends use this inside programs.
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

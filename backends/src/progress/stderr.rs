//! Progress inside programs: lines on standard error.

use std::io::Write;
use std::time::Instant;

use super::{Progress, Step};

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

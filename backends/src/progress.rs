//! Progress of steps that take a while.

#[cfg(feature = "docker")]
mod stderr;

use std::fmt::Debug;

#[cfg(feature = "docker")]
pub(crate) use self::stderr::StderrProgress;

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

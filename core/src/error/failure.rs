//! Failures of tasks and handlers, as workers report them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::excerpt;
use crate::panics::Panic;

/// The failure of a task or a message handler itself, as the worker reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The message.
    pub message: String,
    backtrace: Option<Backtrace>,
}

/// A backtrace, which `{:#?}` prints line by line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Backtrace(String);

impl fmt::Debug for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Failure {
    /// Makes a failure without a backtrace. Of a message of more than 64 KiB, the middle is left
    /// out.
    ///
    /// # Examples
    /// ```
    /// # use fiber_core as fiber;
    /// use fiber::{Failure, FailureKind};
    ///
    /// let failure = Failure::new(FailureKind::Returned, "the file is empty");
    /// assert_eq!(failure.to_string(), "failed: the file is empty");
    /// ```
    pub fn new(kind: FailureKind, message: impl fmt::Display) -> Failure {
        Failure { kind, message: excerpt(message.to_string()), backtrace: None }
    }

    /// Makes the failure of a panic whose backtrace goes another way.
    #[doc(hidden)]
    pub fn without_backtrace(panic: &Panic) -> Failure {
        let message = panic.message.clone();
        Failure { kind: FailureKind::Panicked, message, backtrace: None }
    }

    /// Returns the backtrace of a task's panic, if `RUST_BACKTRACE` is set in the process that
    /// panicked. [`Error::backtrace`](crate::Error::backtrace) has an example.
    pub fn backtrace(&self) -> Option<&str> {
        self.backtrace.as_ref().map(|backtrace| backtrace.0.as_str())
    }
}

/// With the backtrace, whose text takes its time: see [`Panic::backtrace`].
impl From<Panic> for Failure {
    fn from(panic: Panic) -> Failure {
        let backtrace = panic.backtrace().map(Backtrace);
        Failure { backtrace, ..Failure::without_backtrace(&panic) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.kind {
            FailureKind::Returned => "failed",
            FailureKind::Panicked => "panicked",
            FailureKind::Arguments => "could not read its arguments",
            FailureKind::Result => "could not return its result",
            FailureKind::Unknown => "could not be run",
        };
        write!(f, "{verb}: {}", self.message)
    }
}

impl std::error::Error for Failure {}

/// The kinds of [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureKind {
    /// The function returned an `Err`.
    Returned,
    /// The function panicked.
    Panicked,
    /// The arguments could not be deserialized.
    Arguments,
    /// The result could not be serialized, or was too large.
    Result,
    /// The worker does not have the function.
    Unknown,
}

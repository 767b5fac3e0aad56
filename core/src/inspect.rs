//! The inspector's protocol, between a session's head and the command `fiber`.
//!
//! The head listens at an abstract Unix socket whose name is [`PREFIX`] and the session's number in
//! hexadecimal. It answers only processes of its own user. A connection carries any number of
//! requests: each is one line of JSON, and so is each answer.

use serde::{Deserialize, Serialize};

use crate::id::ProcessId;

/// The beginning of the names of all inspectors' sockets.
pub const PREFIX: &str = "fiber-inspect-";

/// A request to a session's head. A program of another version may not know all of them: it answers
/// [`Answer::Error`] then.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Requests the [`SessionStats`](crate::stats::SessionStats).
    Stats,
    /// Requests the stacks of a process's threads, as text.
    Stack {
        /// The process.
        process: ProcessId,
    },
    /// Requests a profile of a process: where its threads spend their time.
    Profile {
        /// The process.
        process: ProcessId,
        /// For how long to take samples.
        seconds: f64,
        /// The number of samples in a second.
        hertz: u32,
        /// Whether to sample threads that wait, too.
        idle: bool,
    },
    /// Requests what the pools' workers ran lately. It is recorded from the first request on, until
    /// none has come for a minute.
    Timeline {
        /// Only what ended after this time, in seconds since 1970.
        since: f64,
    },
}

/// The answer to a [`Request`]: its result, or a message for the user.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<T> {
    /// The result.
    Ok(T),
    /// Why there is none.
    Error(String),
}

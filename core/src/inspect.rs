//! The inspector's protocol, between a session's head and the command `fiber`.
//!
//! The head listens at a Unix socket ([`listen`]), which only its own user and root reach. A
//! connection carries any number of requests: each is one line of JSON, and so is each answer.
//!
//! Only processes of the same mount namespace reach the socket. In a container or pod, the command
//! runs the head's own program with [`BRIDGE`] as its only argument. `fiber::init()` then
//! connects standard input and output with the socket, after a line that begins with
//! [`GREETING`].

mod entities;
mod sockets;

use serde::{Deserialize, Serialize};

pub use self::entities::{EntityKey, EntityKeys, EntityRecord, RecordedReminder, RecordedValue};
pub use self::sockets::{listen, sockets};
use crate::id::ProcessId;

/// The only argument of a program that is to connect its standard input and output with the
/// inspector of a head in the same container or pod.
pub const BRIDGE: &str = "--fiber-inspect";

/// The beginning of the bridge's first line. [`READY`] follows if it is connected, and else the
/// problem.
pub const GREETING: &str = "fiber-inspect: ";

/// The rest of the bridge's first line if it is connected.
pub const READY: &str = "ready";

/// The longest time for which a head takes samples, in seconds.
pub const LONGEST_PROFILE: f64 = 600.0;

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
        /// Whether to show idle threads of fiber and async runtimes, and all frames.
        #[serde(default)]
        all: bool,
    },
    /// Requests the [`ProfileText`] of a process: where its threads spend their time.
    Profile {
        /// The process.
        process: ProcessId,
        /// For how long to take samples: up to [`LONGEST_PROFILE`].
        seconds: f64,
        /// The number of samples in a second.
        hertz: u32,
        /// Whether to sample threads that wait, too.
        idle: bool,
        /// Whether to show fiber's own threads.
        #[serde(default)]
        all: bool,
    },
    /// Ends a process below the head. The answer comes when it has ended.
    Kill {
        /// The process.
        process: ProcessId,
        /// How long it may take to end by itself, in seconds, before it is killed.
        grace: f64,
    },
    /// Requests what the pools' workers ran lately. It is recorded from the first request on, until
    /// none has come for a minute.
    Timeline {
        /// Only what ended after this time, in seconds since 1970.
        since: f64,
    },
    /// Requests the [`EntityKeys`] of entities.
    EntityKeys {
        /// The process that owns them.
        process: ProcessId,
        /// Their name.
        name: String,
        /// Only keys that begin with this.
        prefix: String,
        /// At most so many keys.
        limit: u64,
    },
    /// Requests the [`EntityRecord`] of a key.
    Entity {
        /// The process that owns the entities.
        process: ProcessId,
        /// Their name.
        name: String,
        /// The key.
        key: String,
    },
}

/// A profile as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileText {
    /// A line for each stack, with the number of its samples.
    pub folded: String,
    /// The stacks are of threads that waited: the process hardly ran.
    pub waits: bool,
    /// How long the program's threads ran, as a share of the time. More than 1 for several threads.
    pub share: f64,
    /// The share of fiber's own threads.
    pub fiber_share: f64,
    /// Why functions have no names.
    pub problem: Option<String>,
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

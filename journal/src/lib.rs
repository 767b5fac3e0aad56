//! Journals: what a program has done, on disk, so that it goes on from there when it is started
//! again.
//!
//! A [`Journal`] says where and how to record; a [`Store`] is an open journal. It holds the
//! outcomes of tasks, which are looked up by their [`TaskKey`], and slots, whose last value counts.
//! Records are written in groups: one `fsync` makes many of them durable, and only then are they
//! delivered. docs/durable.md describes the promises and the format.

mod key;
mod options;
mod store;

pub use self::key::TaskKey;
pub use self::options::Journal;
pub use self::store::{CallId, CallLabel, Entry, Outcome, OutcomeKind, Recorder, Store};

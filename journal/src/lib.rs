//! Journals: what a program has done, on disk, so that it goes on from there when it is started
//! again.
//!
//! A [`Journal`] says where and how to record; a [`Store`] is an open journal, and
//! [`Journals`] are those that a session has open. It holds the
//! outcomes of tasks, which are looked up by their [`TaskKey`], and slots, whose last value counts.
//! Records are written in groups: one `fdatasync` makes many of them durable, and only then are
//! they delivered. docs/durable.md describes the promises, `format` the bytes.

mod blocks;
mod call;
mod committer;
mod disk;
mod folder;
mod format;
mod index;
mod key;
mod lock;
mod names;
mod opening;
mod options;
mod outcome;
mod problem;
mod prune;
mod reader;
mod record;
mod recorder;
mod registry;
mod scan;
mod segment;
mod sidecar;
mod slots;
mod store;
mod sync_schedule;
#[cfg(test)]
mod tests;
mod writer;

pub use self::call::{CallId, CallKeys, CallLabel, digest};
pub use self::key::TaskKey;
pub use self::lock::Holder;
pub use self::names::{CallForm, CallFunction, Claim};
pub use self::options::Journal;
pub use self::outcome::{Outcome, OutcomeKind};
pub use self::prune::{Prune, Pruned, prune};
pub use self::reader::{
    CallSummary, Damage, Reader, RecordedOutcome, SlotsSummary, Summary, journals,
};
pub use self::recorder::{Entry, Recorder};
pub use self::registry::Journals;
pub use self::store::{SlotValue, Store};

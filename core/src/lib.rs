//! The foundation of all parts of fiber: functions that travel as a place in the binary, task
//! functions, ids, errors, configuration and the encoding of values.
//!
//! Programs use the crate `fiber`, which re-exports the public items from here.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod array;
pub mod at_exit;
pub mod blob;
mod build;
pub mod codec;
mod config;
pub mod entry;
mod error;
mod exit;
mod function;
mod id;
pub mod inspect;
pub mod malloc;
mod meta;
mod output;
pub mod panics;
mod portable;
mod rounded;
mod route;
mod run;
pub mod secrets;
pub mod shortage;
mod signals;
pub mod spill;
mod spin;
pub mod stacks;
pub mod stats;
mod threads;
pub mod transfer;
pub mod value_memory;
pub mod variables;
mod wait;

pub use address::{Address, AddressError, HostPort};
pub use array::{Array, Element};
pub use build::BuildId;
pub use config::{
    Config, ConfigProblem, ConfigSource, EarlierNames, LinkKind, OutputMode, Section, SectionEntry,
    SectionKey, SectionTable, values,
};
pub use entry::instance;
pub use error::{
    Cause, CloseReason, Error, Failure, FailureKind, PoolEndReason, RankActivity, Result,
    RingEndReason, RingProblem,
};
pub use exit::{Exit, ExitReason};
pub use function::{
    Arguments, Function, OneArgument, TupleArguments, TypedEntry, assert_captures_nothing,
    call_encoded, invoke,
};
pub use id::{ProcessId, SessionKey, random, random_fraction};
pub use inventory;
pub use meta::{Meta, MetaOf};
pub use output::{
    AsResult, AsTermination, AsValue, Diverging, Fallible, FutureOf, Output, OutputKind, Plain,
    Termination, TryOutput,
};
pub use portable::{OwnedLikeStringNotStr, Portable};
pub use rounded::rounded;
pub use route::local_ip_towards;
pub use run::{BlockOn, Outcome, Tasks};
pub use signals::{Ignored, Signals};
pub use spin::{Spin, set_spin};
pub use threads::on_a_thread;
pub use value_memory::{ValueMemory, value_memory};
pub use wait::{block_on, deadline_after, forbid_waiting, waiting_allowed};

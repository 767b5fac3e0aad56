//! The foundation of all parts of fiber: errors, exit reasons, ids, configuration, resources,
//! statistics, and what a process does at its end and in a shortage.
//!
//! Programs use the crate `fiber`, which re-exports the public items from here.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
pub mod at_exit;
mod build;
mod config;
pub mod control_groups;
mod error;
mod executable;
mod exit;
pub mod forks;
mod host;
mod id;
pub mod inspect;
mod json;
mod lossy;
mod meta;
mod orphans;
mod own_dir;
mod own_file;
pub mod panics;
mod patient;
mod rounded;
mod route;
pub mod secrets;
mod short_file;
pub mod shortage;
mod signals;
#[cfg(feature = "simulation")]
pub mod simulation;
mod sorted_map;
mod spin;
pub mod stacks;
pub mod stats;
mod stop_signals;
mod tasks;
mod terminal;
mod threads;
mod trust;
pub mod value_memory;
pub mod variables;
mod wait;

pub use address::{Address, AddressError, HostPort};
pub use build::BuildId;
pub use config::{
    Config, ConfigProblem, ConfigSource, LinkKind, OutputMode, Section, SectionEntry, SectionKey,
    SectionTable, nearest, values,
};
pub use error::{
    Cause, CloseReason, Error, Failure, FailureKind, PoolEndReason, RankActivity, Result,
    RingEndReason, RingProblem,
};
pub use executable::{executable, executable_name};
pub use exit::{Exit, ExitReason, SignalName};
pub use host::host_name;
pub use id::{ProcessId, SessionKey, random, random_fraction};
pub use inventory;
pub use json::{ReadError, read_json};
pub use lossy::{is_stopped, process_state, read_lossy};
pub use meta::{Meta, MetaOf, gpus_in_words};
pub use orphans::reap_orphans;
pub use own_dir::{check_own_dir, create_own_dir, create_private_dir};
pub use own_file::open_own;
pub use patient::Patient;
pub use rounded::rounded;
pub use route::local_ip_towards;
pub use short_file::short_file;
pub use signals::{Ignored, Signals, adjust_inherited};
pub use sorted_map::SortedMap;
pub use spin::{Spin, set_spin};
pub use stop_signals::StopSignals;
pub use tasks::{Relay, spawn_local};
pub use terminal::leave_terminal;
pub use threads::{on_a_thread, start_thread, start_user_thread};
pub use value_memory::{ValueMemory, value_memory};
pub use wait::{
    CENTURY, block_on, deadline_after, forbid_waiting, is_blocked, wait_for_kill, waiting_allowed,
};

/// Returns whether this thread belongs to a simulated world.
pub fn is_simulated() -> bool {
    #[cfg(feature = "simulation")]
    return simulation::world().is_some();
    #[cfg(not(feature = "simulation"))]
    false
}

//! Pools: supervised worker processes that run task functions.

mod batch;
mod broadcast;
mod buffer;
mod builder;
mod call_options;
mod calls;
mod controller;
mod durable;
mod exchange;
mod feeder;
mod keep_alive;
mod lifecycle;
mod pool;
#[cfg_attr(not(feature = "progress"), path = "progress/disabled.rs")]
mod progress;
mod run;
mod scheduler;
mod scheduling;
mod state;
mod stats;
mod submit;
#[cfg(feature = "simulation")]
mod trace;
mod wire;
mod worker;
mod worker_handle;

pub use broadcast::Broadcast;
pub use builder::PoolBuilder;
pub use calls::{ApplyCall, ImapCall, ImapUnorderedCall, MapCall};
pub use pool::Pool;
#[cfg(feature = "progress")]
pub use progress::suspend_progress;

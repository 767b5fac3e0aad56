//! Pools: supervised worker processes that run task functions.

mod away;
mod batch;
mod broadcast;
mod buffer;
mod builder;
mod call_options;
mod calls;
mod controller;
mod current;
mod durable;
mod exchange;
mod feeder;
mod followers;
mod held;
mod inner_calls;
mod keep_alive;
mod last_argument;
mod life;
mod lifecycle;
mod outputs;
mod pool;
#[cfg_attr(not(feature = "progress"), path = "progress/disabled.rs")]
mod progress;
mod reduce;
mod run;
mod scheduler;
mod scheduling;
mod state;
mod stats;
mod streams;
mod submit;
#[cfg(feature = "simulation")]
mod trace;
mod verdict;
mod wire;
mod with;
mod worker;
mod worker_handle;

pub use broadcast::Broadcast;
pub use builder::PoolBuilder;
pub use calls::{ApplyCall, ImapCall, ImapUnorderedCall, MapCall, OutputStream};
pub use pool::Pool;
#[cfg(feature = "progress")]
pub use progress::suspend_progress;
pub use reduce::ReduceCall;
pub use streams::StreamFunction;
pub use with::{FunctionWith, PoolWith};

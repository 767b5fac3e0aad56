//! Fiber's runtime, supervisors, processes, pools, rings and shared objects.
//!
//! Users name the crate `fiber`, which re-exports what they need from here.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod actor_pool;
mod blocking;
mod durable;
mod endpoint;
mod manager;
mod mesh;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "metrics/disabled.rs"]
mod metrics;
mod objects;
mod options;
mod parts;
mod pipe;
mod pool;
mod process;
mod queue;
mod random;
mod remote;
mod reply;
mod ring;
mod runtime;
pub mod stats;
pub mod supervisor;
pub mod sync;
mod timeline;
mod tokio_runtime;
#[cfg(test)]
mod trace;

#[doc(no_inline)]
pub use actix;
pub use actor_pool::{ActorPool, ActorPoolAddr, ActorPoolBuilder, Routing};
pub use blocking::{Blocking, block_on_main};
#[doc(hidden)]
pub use fiber_backends::capture_in_tests;
pub use manager::{
    AsyncManager, ManagerBuilder, NoSnapshots, Snapshot, SnapshotPolicy, Snapshots,
    UnspecifiedActor,
};
#[doc(hidden)]
pub use mesh::set_transit_time;
#[cfg(feature = "metrics")]
#[doc(hidden)]
pub use metrics::page as metrics_page;
pub use pipe::{Pipe, PipeReceiver, PipeSender};
#[cfg(feature = "progress")]
pub use pool::suspend_progress;
pub use pool::{ApplyCall, Broadcast, ImapCall, ImapUnorderedCall, MapCall, Pool, PoolBuilder};
pub use process::{Process, ProcessBuilder, ProcessHandle, active_children};
pub use queue::{Delivery, Get, Put, Queue, QueueBuilder, QueueStream};
pub use remote::{RemoteAddr, RemoteMessage, RemoteRecipient, SendError};
pub use reply::Reply;
pub use ring::{
    NoArguments, Number, Reduction, Rendezvous, Ring, RingBuilder, RingFunction, RingNode, RingRun,
};
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use runtime::simulation;
pub use runtime::{init, stats};
/// Export of spans by OpenTelemetry.
#[cfg(feature = "opentelemetry")]
pub mod opentelemetry {
    pub use crate::runtime::telemetry::{init, layer};
}
#[doc(no_inline)]
pub use supervisor::tree;

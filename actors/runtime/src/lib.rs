//! Fiber inside one process: its runtime, the links to other processes, its children, and what all
//! of fiber's actors, pools, rings and shared objects are made of.
//!
//! The modules form layers, and import only from the layers below their own. From the bottom to the
//! top: `json`; `events`, `timeline` and `tokio_runtime`; `blocking`, `endpoint`, `metrics` and
//! `stats`; `mesh`; `directory` and `topics`; `runtime`; `reply`; `durable` and `objects`.
//!
//! Users name the crate `fiber`, which re-exports what they need from here.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![expect(missing_debug_implementations, reason = "fiber's own crates alone use these types")]

pub mod blocking;
pub mod directory;
pub mod durable;
pub mod endpoint;
pub mod events;
mod json;
pub mod mesh;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "metrics/disabled.rs"]
mod metrics;
pub mod objects;
pub mod parts;
pub mod random;
pub mod reply;
pub mod runtime;
pub mod sources;
pub mod stats;
pub mod timeline;
pub mod tokio_runtime;
pub mod topics;

/// Lets fiber start this program again as its child processes. It must be the first line of `main`.
///
/// In a process that a user started it returns at once and starts nothing: fiber's thread starts
/// with the first pool, process or other object. In a process that fiber started it does not
/// return: the process works for its parent, and then exits, also when the parent dies. Further
/// calls do nothing. `#[fiber::main]` calls it, and so does `fiber::test_harness!()`.
///
/// `#[tokio::main]` and `#[actix::main]` start their runtime before the first line of `main`: use
/// `#[fiber::main]` in their place, which runs an `async fn main` in an actix system.
///
/// # Examples
/// ```
/// fn main() -> fiber::Result<()> {
///     fiber::init();
///     let pool = fiber::Pool::new(2)?;
///     assert_eq!(pool.apply(|x: u32| x + 1, 1).wait()?, 2);
///     Ok(())
/// }
/// ```
pub fn init() {
    objects::let_outputs_travel();
    runtime::init();
}

#[doc(hidden)]
pub use fiber_backends::capture_in_tests;
#[cfg(feature = "metrics")]
#[doc(hidden)]
pub use metrics::page as metrics_page;
/// Export of spans by OpenTelemetry.
#[cfg(feature = "opentelemetry")]
pub mod opentelemetry {
    pub use crate::runtime::telemetry::{init, layer};
}

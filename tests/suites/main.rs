//! The promises of the public API, with real processes.
//!
//! Tests of all topics share one binary, because each takes seconds to link. A suite that changes
//! or measures its whole process has a binary of its own.

mod arrays;
mod durable_state;
mod entities;
mod manager_chaos;
mod managers;
mod pipe;
mod pool;
mod process;
mod queue;
mod queue_chaos;
mod ring;
mod ring_sgd;
mod streams;
mod supervisor;
mod sync;
mod testing;
mod topics;

fiber::test_harness!();

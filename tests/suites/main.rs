//! The promises of the public API, with real processes.
//!
//! Tests of all topics share one binary, because each takes seconds to link. Some change or measure
//! their whole process: nextest gives each test one of its own.

mod arrays;
mod chaos;
mod durable_state;
mod entities;
mod hosts;
mod inspector;
mod large_values;
mod manager_chaos;
mod managers;
mod pipe;
mod pool;
mod process;
mod queue;
mod queue_arrays;
mod queue_chaos;
mod ring;
mod ring_sgd;
mod soak;
mod stacks;
mod streams;
mod supervisor;
mod sync;
mod testing;
mod topics;

fiber::test_harness!();

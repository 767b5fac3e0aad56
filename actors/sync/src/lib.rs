//! Fiber's shared objects: queues, pipes, and locks, values and collections that processes share.
//!
//! Users name the crate `fiber`, which re-exports what they need from here.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod pipe;
pub mod queue;
pub mod stream;
pub mod sync;

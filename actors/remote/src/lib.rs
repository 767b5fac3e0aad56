//! Fiber's actors beyond their process: addresses that travel, managed actors, and pools of them.
//!
//! Users name the crate `fiber`, which re-exports what they need from here.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod actor_pool;
pub mod manager;
pub mod remote;

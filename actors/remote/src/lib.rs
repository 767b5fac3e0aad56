//! Fiber's actors beyond their process: addresses that travel, names, managed actors, pools and
//! groups of them, actors by key, and topics.
//!
//! Users name the crate `fiber`, which re-exports what they need from here.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

/// Implements `Clone` for handles of any type. A derived implementation would bound the type.
macro_rules! clone_handle {
    ($name:ident<$of:ident> { $($field:ident),+ }) => {
        impl<$of> Clone for $name<$of> {
            fn clone(&self) -> $name<$of> {
                $name { $($field: self.$field.clone()),+ }
            }
        }
    };
}

mod access;
pub mod actor_pool;
pub mod entities;
pub mod group;
mod keys;
pub mod manager;
pub mod names;
pub mod remote;
pub mod topic;

pub use access::{Access, handle};

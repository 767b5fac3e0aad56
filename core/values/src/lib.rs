//! Functions that travel as a place in the binary, and values that travel beside them: task
//! functions, the encoding of values, and arrays, whose bytes travel apart.
//!
//! Programs use the crate `fiber`, which re-exports the public items from here.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod array;
pub mod blob;
pub mod codec;
pub mod entry;
mod function;
mod output;
mod portable;
mod run;
pub mod spill;
pub mod transfer;

pub use array::{Array, Element};
pub use entry::instance;
pub use function::{
    Arguments, Function, OneArgument, TupleArguments, TypedEntry, assert_captures_nothing,
    call_encoded, invoke,
};
pub use output::{
    AsResult, AsTermination, AsValue, Diverging, Fallible, FutureOf, Output, OutputKind, Plain,
    Termination, TryOutput,
};
pub use portable::{OwnedLikeStringNotStr, Portable};
pub use run::{BlockOn, Outcome, Tasks};

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
mod inputs;
pub mod kept_memory;
pub mod output;
mod portable;
mod run;
pub mod slot;
pub mod spill;
mod task_output;
pub mod transfer;

pub use array::{Array, Element};
pub use entry::instance;
pub use function::{
    Arguments, Function, OneArgument, TupleArguments, TypedEntry, assert_captures_nothing,
    call_encoded, invoke,
};
pub use inputs::{Argument, Inputs, Parts, PartsBuilder, PartsReader, PartsRecipe, Whole};
pub use output::{
    Dependent, Digest, Fetch, HeldBack, Make, Maker, MakingCall, Output, OutputCell, Recipe,
    afterwards, hold_back,
};
pub use portable::{OwnedLikeStringNotStr, Portable};
pub use run::{BlockOn, Outcome, Tasks};
pub use task_output::{
    AsResult, AsTermination, AsValue, Diverging, Fallible, FutureOf, OutputKind, Plain, TaskOutput,
    Termination, TryOutput,
};

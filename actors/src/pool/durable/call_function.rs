//! What a journal has to know of a call's function.

use std::any::{TypeId, type_name};

use fiber_core::TypedEntry;

/// The function of a call.
pub(in crate::pool) struct CallFunction {
    /// Its path and the type of its result, which has a part in the recorded bytes.
    pub(super) signature: String,
    pub(super) id: TypeId,
    pub(super) form: CallForm,
}

/// The method that makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) enum CallForm {
    /// `apply`, with one task.
    Apply,
    /// `map` and the like.
    Map,
}

impl CallFunction {
    pub(in crate::pool) fn of<A, T>(function: &TypedEntry<A, T>, form: CallForm) -> CallFunction {
        let signature = format!("{} -> {}", function.entry.name(), type_name::<T>());
        CallFunction { signature, id: function.function, form }
    }
}

//! What a journal has to know of a call's function.

use std::any::{TypeId, type_name};

use fiber_core::TypedEntry;

/// The function of a call.
pub(in crate::pool) struct CallFunction {
    /// Its path and the type of its result, which has a part in the recorded bytes.
    pub(super) signature: String,
    pub(super) id: TypeId,
    /// Whether the call has one task, by `apply`.
    pub(super) is_single: bool,
}

impl CallFunction {
    pub(in crate::pool) fn of<A, T>(function: &TypedEntry<A, T>, is_single: bool) -> CallFunction {
        let signature = format!("{} -> {}", function.entry.name(), type_name::<T>());
        CallFunction { signature, id: function.function, is_single }
    }
}

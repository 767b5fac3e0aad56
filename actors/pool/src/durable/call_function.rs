//! The function of a durable call, as its journal knows it.

use std::any::type_name;

use fiber_journal::{CallForm, CallFunction};
use fiber_values::TypedEntry;

/// Describes the function of a call.
pub(crate) fn called<A, T>(function: &TypedEntry<A, T>, form: CallForm) -> CallFunction {
    let signature = format!("{} -> {}", function.entry.name(), type_name::<T>());
    CallFunction { signature, id: function.function, form }
}

//! Functions that a process calls before it begins its work.

use fiber_core::at_exit::flush_output;
use fiber_core::{Failure, FailureKind, Result};
use fiber_values::codec::EncodedValue;
use fiber_values::entry::{EntryRef, TaskFn};
use fiber_values::transfer::KeepAlive;
use fiber_values::{Outcome, Portable, TypedEntry, transfer};
use serde::{Deserialize, Serialize};

use super::one_task::OneTask;

/// A function that a process calls before it begins its work, with its arguments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Initializer {
    entry: EntryRef,
    /// The function's name for people, which only the process that made this knows.
    name: String,
    arguments: EncodedValue,
    /// Shared objects among the arguments stay alive as long as this, in the process that starts
    /// the others.
    #[serde(skip)]
    _keep_alive: KeepAlive,
}

impl Initializer {
    /// Encodes a function and its arguments.
    ///
    /// # Errors
    /// [`Error::Encode`](fiber_core::Error::Encode) for the arguments.
    pub fn new<A: Portable, T>(function: &TypedEntry<A, T>, args: &A) -> Result<Initializer> {
        let (arguments, keep_alive) = transfer::repeatable(|| EncodedValue::new(args));
        Ok(Initializer {
            entry: function.entry.reference(),
            name: function.entry.display_name().into(),
            arguments: arguments?,
            _keep_alive: keep_alive,
        })
    }

    /// Calls the function, and drops the value that it returns.
    ///
    /// # Errors
    /// A message that names the function and its failure.
    pub fn run(self) -> Result<(), String> {
        let entry = self.entry.resolve::<TaskFn>().map_err(|error| error.to_string())?;
        let mut task = OneTask::new(self.arguments);
        entry.run(&mut task);
        flush_output();
        match task.outcome {
            Some((Outcome::Failure, failure)) => {
                let failure = failure
                    .decode()
                    .unwrap_or_else(|error| Failure::new(FailureKind::Result, error));
                Err(format!("its initializer `{}` {failure}", self.name))
            }
            _ => Ok(()),
        }
    }
}

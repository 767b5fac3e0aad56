//! The names in a journal that a session uses: of calls, and of durable objects.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fiber_core::{Error, Result};
use parking_lot::Mutex;

/// The name of all calls with one task of a function. Names that begin with `#` are not the user's.
const SINGLE_TASKS: &str = "#apply";

/// The function of a call.
#[derive(Clone, Debug)]
pub struct CallFunction {
    /// Its path and the type of its result, which has a part in the recorded bytes.
    pub signature: String,
    /// Its type, which closures of one path don't share.
    pub id: TypeId,
    /// The method that makes the call.
    pub form: CallForm,
}

/// The method that makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// `apply`, with one task.
    Apply,
    /// `map` and the like.
    Map,
}

/// The names in one journal.
#[derive(Default)]
pub(crate) struct Names {
    calls: Mutex<Calls>,
    objects: Mutex<Objects>,
}

#[derive(Default)]
struct Calls {
    /// The number of calls of each function without a name.
    numbers: HashMap<String, u64>,
    /// The functions of calls that are not numbered, by name and signature.
    functions: HashMap<(String, String), TypeId>,
}

#[derive(Default)]
struct Objects {
    claimed: HashSet<String>,
    /// The next number of each name whose objects come one after the other.
    numbers: HashMap<String, u64>,
}

/// Keeps other objects of the session from a name in a journal.
pub struct Claim {
    names: Arc<Names>,
    name: String,
}

impl Names {
    /// Returns the name of the next call of a function, or its number.
    pub(crate) fn of_call(&self, given: Option<&str>, function: &CallFunction) -> Result<String> {
        self.calls.lock().name(given, function)
    }

    /// Claims a name, if no object has it.
    pub(crate) fn claim(self: &Arc<Names>, name: &str) -> Option<Claim> {
        let is_free = self.objects.lock().claimed.insert(name.to_string());
        is_free.then(|| Claim { names: Arc::clone(self), name: name.to_string() })
    }

    /// Returns the number of the next object of a name.
    pub(crate) fn next_number(&self, name: &str) -> u64 {
        let mut objects = self.objects.lock();
        let next = objects.numbers.entry(name.to_string()).or_default();
        *next += 1;
        *next - 1
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Claim").field(&self.name).finish()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.names.objects.lock().claimed.remove(&self.name);
    }
}

impl Calls {
    /// Closures of one function have the same path. They are told apart by their order only, so
    /// they can't share a name.
    fn name(&mut self, given: Option<&str>, function: &CallFunction) -> Result<String> {
        let name = match given {
            Some(name) if name.starts_with('#') => {
                let problem = format!("`{name}` begins with `#`, as the names of fiber's own do");
                return Err(Error::invalid("Journal::call", problem));
            }
            Some(name) => name.to_string(),
            None if function.form == CallForm::Apply => SINGLE_TASKS.to_string(),
            None => {
                let number = self.numbers.entry(function.signature.clone()).or_default();
                *number += 1;
                return Ok(format!("#{}", *number - 1));
            }
        };
        let known = self.functions.entry((name, function.signature.clone()));
        let is_other = *known.or_insert(function.id) != function.id;
        if !is_other {
            return Ok(given.map_or_else(|| SINGLE_TASKS.to_string(), str::to_string));
        }
        Err(Error::invalid(
            "Pool::durable",
            format!(
                "two functions of the program are called `{}`, so the journal can't tell their \
                 tasks apart: make named functions of these closures, or give each a call of its \
                 own with `Journal::call`",
                function.signature
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function<F: 'static>(_: F, form: CallForm) -> CallFunction {
        CallFunction { signature: "path -> u64".into(), id: TypeId::of::<F>(), form }
    }

    #[test]
    fn calls_without_a_name_are_numbered_and_single_tasks_are_one_call() {
        let mut calls = Calls::default();
        let many = function(|x: u64| x, CallForm::Map);
        assert_eq!(calls.name(None, &many).unwrap(), "#0");
        assert_eq!(calls.name(Some("coarse"), &many).unwrap(), "coarse");
        assert_eq!(calls.name(None, &many).unwrap(), "#1");
        let one = function(|x: u64| x, CallForm::Apply);
        assert_eq!(calls.name(None, &one).unwrap(), "#apply");
        assert_eq!(calls.name(None, &one).unwrap(), "#apply");
        assert_eq!(calls.name(None, &many).unwrap(), "#2");
    }

    #[test]
    fn closures_of_one_path_do_not_share_a_name() {
        let mut calls = Calls::default();
        let (one, other) = (function(|| 1, CallForm::Apply), function(|| 2, CallForm::Apply));
        for name in [None, Some("name")] {
            calls.name(name, &one).unwrap();
            let error = calls.name(name, &other).unwrap_err().to_string();
            assert!(error.contains("path -> u64") && error.contains("Journal::call"), "{error}");
        }
        assert!(calls.name(Some("another"), &other).is_ok());
        assert!(calls.name(Some("#0"), &one).is_err());
    }
}

//! The journals that this program has open, and the calls that it has made with each.
//!
//! A journal stays open until the program ends. Otherwise the order of calls, and which outcomes
//! were taken, would depend on the moment at which the last handle is dropped.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

use fiber_core::{Config, Error, Result};
use fiber_journal::{CallId, CallLabel, Journal, Store};
use parking_lot::Mutex;

use super::{CallForm, CallFunction};

/// The name of all `apply` calls of a function. Names that begin with `#` are not the user's.
const SINGLE_TASKS: &str = "#apply";

static OPEN: Mutex<Vec<Arc<OpenJournal>>> = Mutex::new(Vec::new());

/// An open journal, and the calls that the program has made with it.
pub(super) struct OpenJournal {
    pub(super) store: Arc<Store>,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    /// The number of calls of each function without a name.
    numbers: HashMap<String, u64>,
    /// The functions of calls that are not numbered, by name and signature.
    functions: HashMap<(String, String), TypeId>,
}

impl OpenJournal {
    /// Opens a journal, or returns it if it is open.
    pub(super) fn of(journal: &Journal, config: &Config) -> Result<Arc<OpenJournal>> {
        let path = journal.path(config)?;
        let mut open = OPEN.lock();
        let store = Store::open(&path, journal)?;
        if let Some(known) = open.iter().find(|known| Arc::ptr_eq(&known.store, &store)) {
            return Ok(Arc::clone(known));
        }
        let opened = Arc::new(OpenJournal { store, calls: Mutex::default() });
        open.push(Arc::clone(&opened));
        Ok(opened)
    }

    /// Returns the id of the next call of a function.
    pub(super) fn begin_call(&self, journal: &Journal, function: &CallFunction) -> Result<CallId> {
        let name = self.calls.lock().name(journal.call_name(), function)?;
        Ok(self.store.call(&CallLabel {
            name,
            function: function.signature.clone(),
            version: journal.version_name().to_string(),
        }))
    }
}

impl Calls {
    /// Returns the name of the next call of a function, or its number.
    ///
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

//! Entries made of closures.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use fiber_core::Result;

use crate::format::Limits;
use crate::{CallLabel, Entry, Journal, Recorder, Store};

pub(crate) fn label(name: &str) -> CallLabel {
    CallLabel { name: name.into(), function: "program::square".into(), version: "1".into() }
}

/// Files so small that each test has several of them.
pub(crate) const LIMITS: Limits = Limits { outcomes: 3000, slots: 2000, superseded: 4000 };

pub(crate) fn open(path: &Path) -> Arc<Store> {
    try_open(path).expect("it can be opened")
}

pub(crate) fn try_open(path: &Path) -> Result<Arc<Store>> {
    Store::open_with(path, &Journal::at(path), LIMITS)
}

/// Makes an entry whose end nobody waits for.
pub(crate) fn record(record: impl Fn(&mut Recorder<'_>) + Send + 'static) -> Box<dyn Entry> {
    Box::new(Closure { record, result: None })
}

/// Records, and returns what the entry was told.
pub(crate) fn result(
    store: &Store,
    record: impl Fn(&mut Recorder<'_>) + Send + 'static,
) -> Result<()> {
    let (sender, receiver) = channel();
    store.record(Box::new(Closure { record, result: Some(sender) }));
    receiver.recv().expect("every entry gets a result")
}

/// Records, and waits until it is on disk.
pub(crate) fn recorded(store: &Store, record: impl Fn(&mut Recorder<'_>) + Send + 'static) {
    result(store, record).expect("it can be recorded");
}

struct Closure<F> {
    record: F,
    result: Option<Sender<Result<()>>>,
}

impl<F: Fn(&mut Recorder<'_>) + Send> Entry for Closure<F> {
    fn record(&self, recorder: &mut Recorder<'_>) {
        (self.record)(recorder);
    }

    fn recorded(self: Box<Self>, result: Result<()>) {
        if let Some(sender) = self.result {
            let _ = sender.send(result);
        }
    }
}

//! Entries made of closures.

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock};

use fiber_core::Result;
use fiber_journal::{CallLabel, Entry, Journal, Journals, Recorder, Store};

pub(crate) fn label(name: &str) -> CallLabel {
    CallLabel { name: name.into(), function: "program::square".into(), version: "1".into() }
}

/// Opens a journal in the session of all tests.
pub(crate) fn open(path: &Path) -> Arc<Store> {
    static JOURNALS: LazyLock<Journals> = LazyLock::new(Journals::default);
    JOURNALS.open(path, &Journal::at(path)).expect("it can be opened")
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

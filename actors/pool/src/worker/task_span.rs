//! The spans around tasks, from which what a task logs has its pool, function, index and worker.
//!
//! A span's target is the path of the task function. So a filter that lets a program's events
//! through (`RUST_LOG=my_program=info`) lets the spans of its tasks through, too. A callsite of the
//! macros has one target, which fiber would have to choose. Each function therefore has a callsite
//! of its own, made at run time.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use tracing::callsite::Callsite;
use tracing::field::{FieldSet, Value};
use tracing::level_filters::LevelFilter;
use tracing::metadata::Kind;
use tracing::span::EnteredSpan;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Span, dispatcher};
use tracing_core::identify_callsite;

use fiber_runtime::runtime::telemetry::RemoteParent;

const NAME: &str = "task";
const FIELDS: &[&str] = &["pool", "function", "index", "worker"];

/// The names of a worker in the spans of its tasks.
pub(super) struct WorkerNames {
    pub(super) pool: String,
    pub(super) worker: String,
}

/// The spans of the tasks of one run.
pub(super) struct RunSpans {
    callsite: &'static TaskCallsite,
    /// The span in which the call was made.
    parent: Option<RemoteParent>,
}

impl RunSpans {
    /// Returns the spans of tasks of a function if a subscriber may be interested. `context` is
    /// that of the call, encoded.
    #[inline]
    pub(super) fn of(function: &'static str, context: &[u8]) -> Option<RunSpans> {
        // `OFF` while there is no subscriber: one relaxed load.
        if LevelFilter::current() == LevelFilter::OFF {
            return None;
        }
        let callsite = TaskCallsite::interesting(function)?;
        Some(RunSpans { callsite, parent: RemoteParent::read(context) })
    }

    /// Enters the span of a task, if a subscriber is interested in it.
    pub(super) fn enter(&self, names: &WorkerNames, index: u64) -> Option<EnteredSpan> {
        let metadata = self.callsite.metadata();
        let enabled = self.callsite.interest.load(Ordering::Relaxed) == ALWAYS
            || dispatcher::get_default(|subscriber| subscriber.enabled(metadata));
        if !enabled {
            return None;
        }
        let values: [&dyn Value; FIELDS.len()] =
            [&names.pool.as_str(), &self.callsite.function, &index, &names.worker.as_str()];
        let values = values.map(Some);
        let span = Span::new(metadata, &metadata.fields().value_set_all(&values));
        if let Some(parent) = &self.parent {
            parent.adopt(&span);
        }
        Some(span.entered())
    }
}

/// The callsite of the spans of one function's tasks.
struct TaskCallsite {
    function: &'static str,
    metadata: OnceLock<Metadata<'static>>,
    interest: AtomicU8,
}

const NEVER: u8 = 0;
const SOMETIMES: u8 = 1;
const ALWAYS: u8 = 2;

impl TaskCallsite {
    /// Returns the callsite of a function, if a subscriber may be interested in it.
    fn interesting(function: &'static str) -> Option<&'static TaskCallsite> {
        // `tracing` registers callsites for the life of the process.
        static CALLSITES: Mutex<Option<HashMap<&'static str, &'static TaskCallsite>>> =
            Mutex::new(None);
        let mut callsites = CALLSITES.lock();
        let callsite = *callsites
            .get_or_insert_default()
            .entry(function)
            // A subscriber keeps its callsites for good, and a program has a limited number of
            // functions.
            .or_insert_with(|| TaskCallsite::register(function));
        (callsite.interest.load(Ordering::Relaxed) != NEVER).then_some(callsite)
    }

    fn register(function: &'static str) -> &'static TaskCallsite {
        let callsite: &'static TaskCallsite = Box::leak(Box::new(TaskCallsite {
            function,
            metadata: OnceLock::new(),
            interest: AtomicU8::new(SOMETIMES),
        }));
        callsite.metadata.get_or_init(|| {
            let fields = FieldSet::new(FIELDS, identify_callsite!(callsite));
            // The level of errors: a filter that lets only errors through shows where they come
            // from.
            Metadata::new(NAME, function, Level::ERROR, None, None, None, fields, Kind::SPAN)
        });
        tracing::callsite::register(callsite);
        callsite
    }
}

impl Callsite for TaskCallsite {
    fn set_interest(&self, interest: Interest) {
        let interest = if interest.is_never() {
            NEVER
        } else if interest.is_always() {
            ALWAYS
        } else {
            SOMETIMES
        };
        self.interest.store(interest, Ordering::Relaxed);
    }

    fn metadata(&self) -> &Metadata<'_> {
        self.metadata.get().expect("`register` sets it first")
    }
}

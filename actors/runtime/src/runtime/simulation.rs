//! Whole sessions in one process, for fiber's own tests: each has its head and its children, which
//! are threads of this process with runtimes of their own, and links in memory.

mod thread_job;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use fiber_core::{Config, Result};
use fiber_journal::Journals;
use fiber_values::entry;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use self::thread_job::ThreadBackend;
use super::exit::all_ended;
use super::parent_info::ChildPlace;
use super::{Runtime, thread};
use crate::endpoint::Endpoint;
use crate::parts::Parts;
use crate::random::Random;

/// A session beside that of the process.
pub struct Session {
    runtime: &'static Runtime,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Session {
    /// Starts the head of a session whose ids and keys come from `seed`.
    ///
    /// # Errors
    /// [`Error::System`](fiber_core::Error::System) if the system has no room for a thread.
    pub fn start(seed: u64) -> Result<Session> {
        entry::prepare()?;
        let parts = Parts::of_another_session();
        let random: &Random = parts.get();
        random.seed(seed);
        parts.get::<Trace>().is_on.store(true, Ordering::Relaxed);
        let mut config = Config::default();
        // Both belong to the process.
        (config.signals, config.shared_memory) = (false, false);
        let (stop, stopped) = oneshot::channel();
        let (arbiter, thread) = thread::start_until(parts, stopped)?;
        let (id, key) = (random.process_id(), random.session_key());
        let endpoint = Endpoint::new(parts, id, config, key, arbiter);
        let backend = Arc::new(ThreadBackend);
        let runtime = Runtime::new(endpoint, backend, None, ChildPlace::Alone, None, true);
        Ok(Session { runtime, stop, thread })
    }

    /// Makes this thread one of the session's head, until the guard is dropped.
    pub fn enter(&self) -> impl Drop + use<> {
        self.runtime.parts().enter()
    }

    /// Kills a child, as a backend's engine might.
    ///
    /// # Panics
    /// If there is no child of this name.
    pub fn kill(&self, child: &str) {
        let job = self.runtime.children.job(child);
        job.unwrap_or_else(|| panic!("there is no child `{child}`")).kill();
    }

    /// Returns what the schedulers of this session's pools have decided so far, in order.
    pub fn trace(&self) -> Vec<String> {
        self.runtime.part::<Trace>().effects.lock().clone()
    }

    /// Ends the session, and returns what of it is left: jobs, objects with statistics, hooks.
    pub fn end(self) -> Vec<String> {
        let Session { runtime, stop, thread } = self;
        let (done, ended) = std::sync::mpsc::channel();
        let jobs = runtime.kill_children();
        runtime.spawn(move || async move {
            all_ended(jobs).await;
            let _ = done.send(());
        });
        let _ = ended.recv();
        runtime.part::<Journals>().close();
        let _ = stop.send(());
        let _ = thread.join();
        let mut left: Vec<String> =
            runtime.jobs.iter().map(|job| format!("job: {}", job.place())).collect();
        let report = runtime.report_below();
        if !report.is_empty() {
            left.push(format!("statistics: {report:?}"));
        }
        if !runtime.drain_hooks().is_empty() {
            left.push("drain hooks".into());
        }
        left
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("head", &self.runtime.id()).finish_non_exhaustive()
    }
}

/// The decisions of a session's schedulers, in simulated sessions.
#[derive(Debug, Default)]
pub struct Trace {
    is_on: AtomicBool,
    effects: Mutex<Vec<String>>,
}

impl Trace {
    /// Returns the trace of a session that has one.
    pub fn of(runtime: &Runtime) -> Option<&'static Trace> {
        let trace: &Trace = runtime.part();
        trace.is_on.load(Ordering::Relaxed).then_some(trace)
    }

    /// Notes an effect.
    pub fn note(&self, effect: String) {
        self.effects.lock().push(effect);
    }
}

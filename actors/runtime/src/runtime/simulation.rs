//! Whole sessions in one process, for fiber's own tests: each has its head and its children, which
//! are threads of this process with runtimes of their own, and links in memory.

mod thread_job;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use fiber_core::{Config, Result, simulation};
use fiber_journal::Journals;
use fiber_values::entry;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use self::thread_job::ThreadBackend;
use super::exit::all_ended;
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
        Session::start_with(seed, Config::default())
    }

    /// Works as [`start`](Session::start), for a session whose engine would end it after this time.
    ///
    /// # Errors
    /// As [`start`](Session::start).
    pub fn start_within(seed: u64, limit: Duration) -> Result<Session> {
        let mut backend = ThreadBackend::default();
        backend.ends_at = Some(SystemTime::now() + limit);
        Session::start_on(seed, Config::default(), backend)
    }

    /// Works as [`start`](Session::start), with a configuration.
    ///
    /// # Errors
    /// As [`start`](Session::start).
    pub fn start_with(seed: u64, config: Config) -> Result<Session> {
        Session::start_on(seed, config, ThreadBackend::default())
    }

    fn start_on(seed: u64, mut config: Config, backend: ThreadBackend) -> Result<Session> {
        entry::prepare()?;
        let parts = Parts::of_another_session();
        let random: &Random = parts.get();
        random.seed(seed);
        parts.get::<Trace>().is_on.store(true, Ordering::Relaxed);
        // It belongs to the process.
        config.shared_memory = false;
        // Signals of the process are for its own session.
        config.signals = simulation::world().is_some();
        let (stop, stopped) = oneshot::channel();
        let (reached, thread) = thread::start_until(parts, stopped)?;
        let (id, key) = (random.process_id(), random.session_key());
        let endpoint = Endpoint::new(parts, id, config, key, reached);
        let backend = Arc::new(backend);
        let runtime = Runtime::new(endpoint, backend, None, None, None, None);
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
        if simulation::world().is_some() {
            // A journal may be writing its last entries, and the threads and links of a dead head
            // may hold one for ever.
            runtime.part::<Journals>().abandon();
        }
        let _ = stop.send(());
        let _ = thread.join();
        remains(runtime)
    }

    /// Returns what of the session is there: hosts, jobs, objects with statistics, hooks.
    pub fn remains(&self) -> Vec<String> {
        // A host may have no job yet. It is looked for before the jobs, which are there for longer.
        let hosts = self.runtime.hosts.names().into_iter().map(|host| format!("host: {host}"));
        let mut left: Vec<_> = hosts.collect();
        left.extend(remains(self.runtime));
        left
    }
}

/// Lets `work` be done in this thread's session, on whichever thread does it.
pub fn in_this_session<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let parts = Parts::current();
    move || {
        let _entered = parts.enter();
        work()
    }
}

fn remains(runtime: &'static Runtime) -> Vec<String> {
    let mut left: Vec<String> =
        runtime.jobs.iter().map(|job| format!("job: {}", job.place())).collect();
    let mut report = runtime.report_below();
    // The counts of a process last as long as it.
    report.dead_letters.clear();
    // That of single processes stays for the next one.
    for all in &mut report.supervisors {
        all.roots.retain(|root| !root.children.is_empty());
    }
    report.supervisors.retain(|all| !all.roots.is_empty());
    if !report.is_empty() {
        left.push(format!("statistics: {report:?}"));
    }
    if !runtime.drain_hooks().is_empty() {
        left.push("drain hooks".into());
    }
    left
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

//! Handles of processes, and the list of those that are alive.

use std::fmt;
use std::sync::{Arc, Weak};

use fiber_core::{Error, Exit, ExitReason};
use fiber_transport::Received;
use fiber_values::Outcome;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use fiber_runtime::parts::Parts;
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::{ProcessCommand, Runtime};

/// A handle of a process, without the type of its result.
///
/// Clones are handles of the same process. Dropping them leaves the process running.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Process;
///
/// let process = Process::builder().name("sleeper").spawn(|| std::thread::park(), ());
/// let handle = process.handle();
/// let pid = handle.started().wait()?;
/// assert_eq!((handle.name(), handle.pid()), ("sleeper", Some(pid)));
/// let exit = handle.stop().wait()?;
/// assert_eq!(exit.signal(), Some(15)); // SIGTERM
/// assert_eq!((handle.is_alive(), handle.exit()), (false, Some(exit)));
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone)]
pub struct ProcessHandle {
    status: Arc<ProcessStatus>,
}

/// The state of a process, shared by its handles and the supervisor that starts it.
pub(super) struct ProcessStatus {
    /// Includes the supervisors above it, if a user's supervisor starts it.
    pub(super) name: String,
    pub(super) state: watch::Sender<RunState>,
    pub(super) commands: mpsc::UnboundedSender<ProcessCommand>,
    pub(super) result: Mutex<Option<ProcessResult>>,
}

#[derive(Clone, Debug)]
pub(super) enum RunState {
    Starting,
    Running {
        pid: u32,
    },
    /// `pid` is the id that it had, if it was running.
    Ended {
        pid: Option<u32>,
        exit: Exit,
    },
}

/// A result that is known apart from the exit.
#[derive(Clone)]
pub(super) enum ProcessResult {
    /// The function has ended; the bytes are its encoded value or failure.
    Finished(Outcome, Received),
    /// There was nothing to start.
    NotSpawned(Error),
}

impl ProcessHandle {
    pub(super) fn new(status: Arc<ProcessStatus>) -> ProcessHandle {
        ProcessHandle { status }
    }

    /// Returns the handle of a process that could not even be prepared.
    pub(super) fn not_spawned(name: String, error: Error) -> ProcessHandle {
        let (status, _) = ProcessStatus::new(name);
        let exit = Exit::new(ExitReason::NotStarted(error.to_string()), Vec::new());
        *status.result.lock() = Some(ProcessResult::NotSpawned(error));
        status.end(exit);
        ProcessHandle::new(status)
    }

    /// Returns the process's name. The [example](ProcessHandle#examples) shows it.
    pub fn name(&self) -> &str {
        &self.status.name
    }

    /// Returns the process id, or `None` before the process has
    /// [started](ProcessHandle::started) and after its end. The [example](ProcessHandle#examples)
    /// shows it.
    pub fn pid(&self) -> Option<u32> {
        match &*self.status.state.borrow() {
            RunState::Running { pid } => Some(*pid),
            RunState::Starting | RunState::Ended { .. } => None,
        }
    }

    /// Waits until the process is ready to run its function, and returns the process id, also when
    /// it has ended since. The [example](ProcessHandle#examples) shows it.
    ///
    /// # Errors
    /// [`Error::Exited`] if the process ends before that; as for
    /// [`Process`](crate::process::Process), if there was nothing to start.
    pub fn started(&self) -> Reply<u32> {
        let status = Arc::clone(&self.status);
        let what = format!("the start of process `{}`", status.name);
        Reply::named(what, async move {
            match status.when(|state| !matches!(state, RunState::Starting)).await {
                // It may have ended before this looks.
                RunState::Running { pid } | RunState::Ended { pid: Some(pid), .. } => Ok(pid),
                RunState::Starting => unreachable!("the state has changed"),
                RunState::Ended { pid: None, exit } => Err(status.error(exit)),
            }
        })
    }

    /// Returns whether the process has not ended. A process that still starts is alive. The
    /// [example](ProcessHandle#examples) shows it.
    pub fn is_alive(&self) -> bool {
        !matches!(&*self.status.state.borrow(), RunState::Ended { .. })
    }

    /// Sends SIGTERM to the process, and waits for its end.
    ///
    /// The signal is sent even if the reply is not awaited. While the process is still starting,
    /// the signal waits for the end of the start. A process that does not handle SIGTERM ends at
    /// once, without a result; one that ignores it goes on, and so does the wait: limit it by
    /// [`timeout`](Reply::timeout), and [`kill`](ProcessHandle::kill) the process then.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// let process = fiber::Process::spawn(|| std::thread::park(), ());
    /// if process.handle().stop().timeout(Duration::from_secs(10)).wait().is_err() {
    ///     process.kill();
    /// }
    /// let exit = process.join().wait()?;
    /// assert!(matches!(exit.signal(), Some(15 | 9))); // SIGTERM or SIGKILL
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn stop(&self) -> Reply<Exit> {
        // A process that has ended receives no commands.
        let _ = self.status.commands.send(ProcessCommand::Terminate);
        self.join()
    }

    /// Kills the process, and all that it started, at once (SIGKILL). Does not wait for the end:
    /// [`join`](ProcessHandle::join) does, and its example shows both.
    ///
    /// This also ends a process that is still starting. After the end it does nothing.
    pub fn kill(&self) {
        let _ = self.status.commands.send(ProcessCommand::Kill(ExitReason::Signal(9)));
    }

    /// Waits for the end of the process, and returns its exit. Asks nothing of the process.
    ///
    /// A failure of the process is not an error of the reply: see [`Exit::reason`](Exit). A
    /// function that returns an `Err` to [`try_spawn`](crate::process::ProcessBuilder::try_spawn)
    /// gives exit code 1, one that panics 101. To limit the wait, use [`timeout`](Reply::timeout).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// use fiber::{Error, Process};
    ///
    /// let process = Process::spawn(|| std::thread::park(), ());
    /// let error = process.join().timeout(Duration::from_millis(10)).wait().unwrap_err();
    /// assert!(matches!(error, Error::TimedOut { .. }));
    /// process.kill();
    /// assert_eq!(process.join().wait()?.signal(), Some(9)); // SIGKILL
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn join(&self) -> Reply<Exit> {
        let status = Arc::clone(&self.status);
        let what = format!("the end of process `{}`", status.name);
        Reply::named(what, async move { Ok(status.ended().await) })
    }

    /// Returns the exit, or `None` while the process is alive. The
    /// [example](ProcessHandle#examples) shows it.
    pub fn exit(&self) -> Option<Exit> {
        match &*self.status.state.borrow() {
            RunState::Ended { exit, .. } => Some(exit.clone()),
            RunState::Starting | RunState::Running { .. } => None,
        }
    }

    pub(super) fn result(&self) -> Option<ProcessResult> {
        self.status.result.lock().clone()
    }
}

impl fmt::Debug for ProcessHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("name", &self.name())
            .field("state", &*self.status.state.borrow())
            .finish()
    }
}

impl ProcessStatus {
    pub(super) fn new(
        name: String,
    ) -> (Arc<ProcessStatus>, mpsc::UnboundedReceiver<ProcessCommand>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        let state = watch::Sender::new(RunState::Starting);
        let status = ProcessStatus { name, state, commands, result: Mutex::default() };
        (Arc::new(status), receiver)
    }

    async fn when(&self, reached: impl Fn(&RunState) -> bool) -> RunState {
        let mut state = self.state.subscribe();
        let reached = state.wait_for(|state| reached(state)).await;
        reached.expect("the sender lives in `self`").clone()
    }

    async fn ended(&self) -> Exit {
        match self.when(|state| matches!(state, RunState::Ended { .. })).await {
            RunState::Ended { exit, .. } => exit,
            _ => unreachable!("the state has changed"),
        }
    }

    /// Marks the process as ended, unless it is already.
    pub(super) fn end(&self, exit: Exit) {
        self.state.send_if_modified(|state| {
            let pid = match state {
                RunState::Starting => None,
                RunState::Running { pid } => Some(*pid),
                RunState::Ended { .. } => return false,
            };
            *state = RunState::Ended { pid, exit };
            true
        });
    }

    fn error(&self, exit: Exit) -> Error {
        match &*self.result.lock() {
            Some(ProcessResult::NotSpawned(error)) => error.clone(),
            _ => Error::Exited { name: self.name.clone(), exit },
        }
    }
}

/// The processes that a session has started in this one, and some that have ended.
#[derive(Default)]
struct StartedProcesses(Mutex<Vec<Weak<ProcessStatus>>>);

/// Adds a process to the [active children](active_children), and removes those that have ended.
pub(super) fn register(runtime: &Runtime, status: &Arc<ProcessStatus>) {
    let mut children = runtime.part::<StartedProcesses>().0.lock();
    children.retain(|child| {
        child
            .upgrade()
            .is_some_and(|child| !matches!(*child.state.borrow(), RunState::Ended { .. }))
    });
    children.push(Arc::downgrade(status));
}

/// Returns handles of the processes that are alive and that this process started: those of
/// [`Process::spawn`](crate::process::Process::spawn) and the processes of its supervisors. Workers
/// of pools, ring nodes and managed actors are not among them; [`tree`](crate::supervisor::tree())
/// shows those, too.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Process;
/// use fiber::process::active_children;
///
/// let process = Process::builder().name("sleeper").spawn(|| std::thread::park(), ());
/// assert!(active_children().iter().any(|child| child.name() == "sleeper"));
/// process.kill();
/// process.join().wait()?;
/// assert!(active_children().iter().all(|child| child.name() != "sleeper"));
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn active_children() -> Vec<ProcessHandle> {
    let started = Parts::current().get::<StartedProcesses>();
    let children: Vec<_> = started.0.lock().iter().filter_map(Weak::upgrade).collect();
    children.into_iter().map(ProcessHandle::new).filter(ProcessHandle::is_alive).collect()
}

//! Processes that run one function each.
//!
//! - [`Process`] is the handle with the function's result, [`ProcessHandle`] the one without.
//! - [`ProcessBuilder`] starts processes, and makes specifications for supervisors.
//! - The process is a child of a supervisor (`start`); `child_main` is the code that runs in it.

mod builder;
mod child_main;
mod control;
mod handle;
mod initializer;
mod one_task;
mod start;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fiber_core::{Error, Exit, Failure, FailureKind, Result, block_on};
use fiber_values::{
    AsValue, Function, Outcome, Portable, TaskOutput, TypedEntry, assert_captures_nothing, codec,
};
use serde::de::DeserializeOwned;

pub use self::builder::ProcessBuilder;
pub use self::control::{ProcessControl, running};
use self::handle::ProcessResult;
pub use self::handle::{ProcessHandle, active_children};
pub use self::initializer::Initializer;
use fiber_runtime::reply::Reply;

/// A process that runs one function. It is a future of the function's result.
///
/// It costs the start of a process, where a `Pool` runs further tasks in the workers that it has.
/// The process is not restarted: if it dies, its handle says why. A
/// [`ChildSpec::process`](crate::supervisor::ChildSpec::process) is a process that a supervisor
/// restarts.
///
/// Dropping the handle leaves the process running. A process ends with the process that started it.
///
/// # Errors
/// The future and [`wait`](Process::wait) return
/// - [`Error::Task`] if the function panicked or returned an `Err` ([`ProcessBuilder::try_spawn`]);
/// - [`Error::Exited`] if the process ended without a result, or could not be started;
/// - [`Error::NotInitialized`], [`Error::Config`], [`Error::Encode`], [`Error::TooLarge`] and
///   [`Error::Invalid`] if there was nothing to start: the process has then
///   [exited](Process::exit) with [`ExitReason::NotStarted`](fiber_core::ExitReason::NotStarted).
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Process;
///
/// let process = Process::spawn(|a: u32, b: u32| a + b, (1, 2));
/// assert_eq!(process.wait()?, 3);
/// # Ok::<(), fiber::Error>(())
/// ```
#[must_use = "the handle says whether the process could be started: use `.await` or `.wait()`"]
pub struct Process<T> {
    handle: ProcessHandle,
    function: &'static str,
    exited: Option<Reply<Exit>>,
    value: PhantomData<fn() -> T>,
}

impl Process<()> {
    /// Returns the options of a process, which [`ProcessBuilder::spawn`] then starts.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Process;
    ///
    /// let process = Process::builder().name("adder").spawn(|a: u32, b: u32| a + b, (1, 2));
    /// assert_eq!(process.name(), "adder");
    /// assert_eq!(process.wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn builder() -> ProcessBuilder {
        ProcessBuilder::default()
    }

    /// Runs `function` in a new process.
    ///
    /// The arguments are one value, or a tuple for a function of several. They are encoded on this
    /// thread. Returns at once: the process starts in the background, and errors come out of its
    /// handle.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Process;
    ///
    /// let process = Process::spawn(|name: String| format!("hello {name}"), "you".to_string());
    /// assert_eq!(process.wait()?, "hello you");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F, A, M, N>(function: F, args: A) -> Process<<F::Output as TaskOutput<N>>::Value>
    where
        F: Function<A, M, Output: TaskOutput<N>>,
        A: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        Process::builder().start(TypedEntry::of::<F, M, AsValue<N>>(function), &args)
    }
}

impl<T> Process<T> {
    fn new(handle: ProcessHandle, function: &'static str) -> Process<T> {
        Process { handle, function, exited: None, value: PhantomData }
    }
}

impl<T: DeserializeOwned> Process<T> {
    /// Returns a handle without the type of the result. It can be cloned, and outlives this one.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Error, Process};
    ///
    /// let process = Process::spawn(|| std::thread::park(), ());
    /// let handle = process.handle();
    /// std::thread::spawn(move || handle.kill());
    /// assert!(matches!(process.wait(), Err(Error::Exited { .. })));
    /// ```
    pub fn handle(&self) -> ProcessHandle {
        self.handle.clone()
    }

    /// Returns the process's name, as in the example of [`builder`](Process::builder).
    pub fn name(&self) -> &str {
        self.handle.name()
    }

    /// Returns the process id, or `None` before the process has [started](Process::started) and
    /// after its end. The example of [`started`](Process::started) shows it.
    ///
    /// In a container it is the id inside the container.
    pub fn pid(&self) -> Option<u32> {
        self.handle.pid()
    }

    /// Waits until the process is ready to run its function, and returns the process id.
    ///
    /// # Errors
    /// As the process's own result, if it ends before that.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Process;
    ///
    /// let process = Process::spawn(|| std::thread::park(), ());
    /// let pid = process.started().wait()?;
    /// assert_eq!(process.pid(), Some(pid));
    /// process.kill();
    /// process.join().wait()?;
    /// assert_eq!(process.pid(), None);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn started(&self) -> Reply<u32> {
        self.handle.started()
    }

    /// Returns whether the process has not ended. A process that still starts is alive. The example
    /// of [`exit`](Process::exit) shows it.
    pub fn is_alive(&self) -> bool {
        self.handle.is_alive()
    }

    /// Sends SIGTERM to the process, and waits for its end: see [`ProcessHandle::stop`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Process;
    ///
    /// let process = Process::spawn(|| std::thread::park(), ());
    /// assert_eq!(process.stop().wait()?.signal(), Some(15)); // SIGTERM
    /// assert!(process.wait().is_err()); // it ended without a result
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn stop(&self) -> Reply<Exit> {
        self.handle.stop()
    }

    /// Kills the process, and all that it started, at once (SIGKILL): see [`ProcessHandle::kill`].
    /// The example of [`started`](Process::started) shows it.
    pub fn kill(&self) {
        self.handle.kill();
    }

    /// Waits for the end of the process, and returns its exit: see [`ProcessHandle::join`]. The
    /// example of [`exit`](Process::exit) shows it.
    pub fn join(&self) -> Reply<Exit> {
        self.handle.join()
    }

    /// Returns the exit, or `None` while the process is alive.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Process;
    ///
    /// let process = Process::spawn(|| std::process::exit(3), ());
    /// let exit = process.join().wait()?;
    /// assert!(!process.is_alive());
    /// assert_eq!(exit.code(), Some(3));
    /// assert_eq!(process.exit(), Some(exit));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn exit(&self) -> Option<Exit> {
        self.handle.exit()
    }

    /// Blocks this thread until the result is there, or the process has ended without one.
    ///
    /// # Errors
    /// See [`Process`]; and [`Error::WouldDeadlock`] on fiber's own threads.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Error, Process};
    ///
    /// assert_eq!(Process::spawn(|x: u64| x * x, 3).wait()?, 9);
    /// let error = Process::spawn(|| std::process::abort(), ()).wait().unwrap_err();
    /// assert!(matches!(error, Error::Exited { .. }));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait(self) -> Result<T> {
        block_on(self)
    }

    fn result(&self, exit: Exit) -> Result<T> {
        let failed = |failure| Error::Task { function: self.function, index: 0, failure };
        match self.handle.result() {
            Some(ProcessResult::Finished(Outcome::Value, value)) => {
                codec::decode_with(&value, &value.blobs)
            }
            Some(ProcessResult::Finished(Outcome::Failure, failure)) => Err(failed(
                codec::decode(&failure)
                    .unwrap_or_else(|error| Failure::new(FailureKind::Result, error)),
            )),
            Some(ProcessResult::NotSpawned(error)) => Err(error),
            None => Err(Error::Exited { name: self.name().to_string(), exit }),
        }
    }
}

impl<T> Unpin for Process<T> {}

impl<T: DeserializeOwned> Future for Process<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let handle = self.handle.clone();
        let exited = self.exited.get_or_insert_with(|| handle.join());
        let exit = ready!(Pin::new(exited).poll(context))?;
        Poll::Ready(self.result(exit))
    }
}

impl<T> fmt::Debug for Process<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

//! One function in a process of its own.

mod child;
mod control;
mod initializer;
mod root;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{
    Conclusion, Conclusions, Error, Exit, ExitReason, Failure, FailureKind, Function, Meta,
    Outcome, Output, OutputKind, OutputMode, Portable, Result, Tries, TryOutput, Values, block_on,
    captures_nothing, codec, task_entry, travel,
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::{OnceCell, mpsc, watch};

use self::child::{Life, ProcessStart, Work};
pub(crate) use self::control::ProcessControl;
pub(crate) use self::initializer::Initializer;
pub(crate) use self::root::{OneTask, ProcessMain};
use crate::reply::Reply;
use crate::runtime::{ProcessCommand, Runtime};
use crate::supervisor::{ChildSpec, Restart, Shutdown, Supervisor, SupervisorRef};

/// A process that runs one function; a future of what it returns.
///
/// Dropping the handle leaves the process running. All processes end with the one that started
/// them.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Process;
///
/// let process = Process::spawn(|a: u32, b: u32| a + b, (1, 2))?;
/// assert_eq!(process.wait()?, 3);
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct Process<T> {
    shared: Arc<Shared>,
    function: &'static str,
    ended: Option<Reply<Exit>>,
    value: PhantomData<fn() -> T>,
}

/// What [`Process`]es of any type have in common: see [`active_children`].
#[derive(Clone)]
pub struct ProcessHandle {
    shared: Arc<Shared>,
}

struct Shared {
    /// With the supervisors above it, if it is a supervisor's child.
    name: String,
    state: watch::Sender<State>,
    commands: mpsc::UnboundedSender<ProcessCommand>,
    outcome: Mutex<Option<(Outcome, Bytes)>>,
}

#[derive(Clone, Debug)]
enum State {
    Starting,
    Running { pid: u32 },
    Ended(Exit),
}

/// A process to be; [`Process::builder`] makes one.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ProcessBuilder {
    name: Option<String>,
    meta: Meta,
    output: Option<OutputMode>,
}

impl ProcessBuilder {
    /// Names the process; the default is `process-1` and so on.
    pub fn name(mut self, name: impl Into<String>) -> ProcessBuilder {
        self.name = Some(name.into());
        self
    }

    /// Asks for resources, over what the function's `#[fiber::meta]` asks.
    pub fn meta(mut self, meta: Meta) -> ProcessBuilder {
        self.meta = meta;
        self
    }

    /// Sets where its output goes; the default is what the configuration says.
    pub fn output(mut self, output: OutputMode) -> ProcessBuilder {
        self.output = Some(output);
        self
    }

    /// Starts the process. Its arguments are one value, or a tuple for a function of several.
    ///
    /// # Errors
    /// If fiber can't work at all, or the arguments can't be serialised or are too large. That the
    /// process could not be started is told by its handle.
    pub fn spawn<F, A, M, N>(
        self,
        function: F,
        args: A,
    ) -> Result<Process<<F::Output as Output<N>>::Value>>
    where
        F: Function<A, M>,
        A: Portable,
        F::Output: Output<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        self.start::<F, A, M, Values<N>>(function, &args)
    }

    /// As [`spawn`](ProcessBuilder::spawn), for a function that returns a `Result` whose error can
    /// be displayed.
    ///
    /// # Errors
    /// As [`spawn`](ProcessBuilder::spawn).
    pub fn try_spawn<F, A, M, N>(
        self,
        function: F,
        args: A,
    ) -> Result<Process<<F::Output as TryOutput<N>>::Value>>
    where
        F: Function<A, M>,
        A: Portable,
        F::Output: TryOutput<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        self.start::<F, A, M, Tries<N>>(function, &args)
    }

    /// The process as the child of a supervisor, with the name that was given: see
    /// [`ChildSpec::process`](crate::supervisor::ChildSpec::process).
    ///
    /// # Errors
    /// As [`spawn`](ProcessBuilder::spawn).
    pub fn child<F, A, M, N>(self, function: F, args: A) -> Result<ChildSpec>
    where
        F: Function<A, M>,
        A: Portable,
        F::Output: Conclusion<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        let (name, work) = self.work::<F, A, M, Conclusions<N>>(function, &args)?;
        Ok(ChildSpec::new(name, ProcessStart::again_and_again(work)))
    }

    fn start<F, A, M, K>(self, function: F, args: &A) -> Result<Process<K::Value>>
    where
        F: Function<A, M>,
        A: Portable,
        K: OutputKind<F::Output>,
    {
        let (name, work) = self.work::<F, A, M, K>(function, args)?;
        let (runtime, function) = (work.runtime, work.function);
        // Names of processes may repeat; those of a supervisor's children may not.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let child = format!("{name} #{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let life = Life::new(name, work);
        let shared = Arc::clone(life.shared());
        let spec = ChildSpec::new(child, ProcessStart::once(life))
            .restart(Restart::Temporary)
            .shutdown(Shutdown::After(runtime.config().shutdown_timeout));
        let failing = Arc::clone(&shared);
        runtime.spawn(move || async move {
            let added = match supervisor(runtime).await {
                Ok(supervisor) => supervisor.add(spec).await,
                Err(error) => Err(error),
            };
            if let Err(error) = added {
                failing.end(Exit::new(ExitReason::NotStarted(error.to_string()), Vec::new()));
            }
        });
        Ok(Process { shared, function, ended: None, value: PhantomData })
    }

    /// The name, and what is to be done under it.
    fn work<F, A, M, K>(self, function: F, args: &A) -> Result<(String, Work)>
    where
        F: Function<A, M>,
        A: Portable,
        K: OutputKind<F::Output>,
    {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let _ = function;
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        let runtime = Runtime::get()?;
        let entry = task_entry::<F, A, M, K>();
        let limit = runtime.config().max_message.as_u64();
        let (arguments, pins) = travel::pinned(|| codec::encode(args));
        let arguments = arguments?;
        codec::check_size(arguments.len(), limit, || {
            format!("the arguments of `{}`", entry.name())
        })?;
        let name = self
            .name
            .unwrap_or_else(|| format!("process-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let work = Work {
            runtime,
            function: entry.name(),
            meta: self.meta.or(Meta::of::<F>()),
            output: self.output.unwrap_or(runtime.config().output),
            process_main: ProcessMain {
                entry: entry.reference(),
                arguments: arguments.into(),
                limit,
            },
            pins,
        };
        Ok((name, work))
    }
}

/// Names are parts of paths in the tree.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.contains('/') {
        let problem = format!(
            "`{name}` can't be the name of a process: use at least one character, and no `/`"
        );
        return Err(Error::invalid("ProcessBuilder::name", problem));
    }
    Ok(())
}

/// The supervisor of the processes that are spawned one by one.
async fn supervisor(runtime: &'static Runtime) -> Result<&'static SupervisorRef> {
    static SUPERVISOR: OnceCell<SupervisorRef> = OnceCell::const_new();
    SUPERVISOR
        .get_or_try_init(|| Supervisor::builder("processes").start_on(runtime.arbiter()))
        .await
}

impl Process<()> {
    /// A process to be.
    pub fn builder() -> ProcessBuilder {
        ProcessBuilder::default()
    }

    /// Runs `function` in a process of its own.
    ///
    /// # Errors
    /// As [`ProcessBuilder::spawn`].
    pub fn spawn<F, A, M, N>(
        function: F,
        args: A,
    ) -> Result<Process<<F::Output as Output<N>>::Value>>
    where
        F: Function<A, M>,
        A: Portable,
        F::Output: Output<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        Process::builder().start::<F, A, M, Values<N>>(function, &args)
    }
}

impl<T: DeserializeOwned> Process<T> {
    /// What all processes have in common.
    pub fn handle(&self) -> ProcessHandle {
        ProcessHandle { shared: Arc::clone(&self.shared) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The process id; `None` before it has started: see [`started`](Process::started).
    pub fn pid(&self) -> Option<u32> {
        self.handle().pid()
    }

    /// Waits until it is at work, and gives its process id.
    pub fn started(&self) -> Reply<u32> {
        self.handle().started()
    }

    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        self.handle().is_alive()
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) {
        self.handle().terminate();
    }

    /// Ends it, and what it started, at once (SIGKILL).
    pub fn kill(&self) {
        self.handle().kill();
    }

    /// Waits for its end, and gives its exit status.
    pub fn join(&self) -> Reply<Exit> {
        self.handle().join()
    }

    /// Waits for its end, but not longer than `limit`; `None` if it is still alive then.
    pub fn join_within(&self, limit: Duration) -> Reply<Option<Exit>> {
        self.handle().join_within(limit)
    }

    /// Its exit status; `None` while it is alive.
    pub fn exit(&self) -> Option<Exit> {
        self.handle().exit()
    }

    /// Blocks this thread until the result is there.
    ///
    /// # Errors
    /// The function's failure, or why the process ended without a result.
    pub fn wait(self) -> Result<T> {
        block_on(self)
    }

    fn result(&self, exit: Exit) -> Result<T> {
        let outcome = self.shared.outcome.lock().clone();
        let failed = |failure| Error::Task { function: self.function, index: 0, failure };
        match outcome {
            Some((Outcome::Value, value)) => codec::decode(&value),
            Some((Outcome::Failure, failure)) => Err(failed(
                codec::decode(&failure)
                    .unwrap_or_else(|error| Failure::new(FailureKind::Result, error)),
            )),
            None => Err(Error::Exited { name: self.shared.name.clone(), exit }),
        }
    }
}

impl ProcessHandle {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The process id; `None` before it has started.
    pub fn pid(&self) -> Option<u32> {
        match &*self.shared.state.borrow() {
            State::Running { pid } => Some(*pid),
            State::Starting | State::Ended(_) => None,
        }
    }

    /// Waits until it is at work, and gives its process id.
    pub fn started(&self) -> Reply<u32> {
        let shared = Arc::clone(&self.shared);
        Reply::new(async move {
            let state = shared.when(|state| !matches!(state, State::Starting)).await;
            match state {
                State::Running { pid } => Ok(pid),
                State::Starting => unreachable!("that was waited for"),
                State::Ended(exit) => Err(Error::Exited { name: shared.name.clone(), exit }),
            }
        })
    }

    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        !matches!(&*self.shared.state.borrow(), State::Ended(_))
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) {
        let _ = self.shared.commands.send(ProcessCommand::Terminate);
    }

    /// Ends it, and what it started, at once (SIGKILL).
    pub fn kill(&self) {
        let _ = self.shared.commands.send(ProcessCommand::Kill(ExitReason::Signal(9)));
    }

    /// Waits for its end, and gives its exit status.
    pub fn join(&self) -> Reply<Exit> {
        let shared = Arc::clone(&self.shared);
        Reply::new(async move { Ok(shared.end_of_it().await) })
    }

    /// Waits for its end, but not longer than `limit`; `None` if it is still alive then.
    pub fn join_within(&self, limit: Duration) -> Reply<Option<Exit>> {
        let shared = Arc::clone(&self.shared);
        let (answer, exit) = tokio::sync::oneshot::channel();
        // Timers belong to the node's thread: the caller's may have none.
        match Runtime::get() {
            Ok(runtime) => runtime.spawn(move || async move {
                let _ = answer.send(tokio::time::timeout(limit, shared.end_of_it()).await.ok());
            }),
            Err(_) => drop(answer),
        }
        Reply::new(async move { Ok(exit.await.unwrap_or_default()) })
    }

    /// Its exit status; `None` while it is alive.
    pub fn exit(&self) -> Option<Exit> {
        match &*self.shared.state.borrow() {
            State::Ended(exit) => Some(exit.clone()),
            _ => None,
        }
    }
}

impl fmt::Debug for ProcessHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("name", &self.name())
            .field("state", &*self.shared.state.borrow())
            .finish()
    }
}

impl<T> fmt::Debug for Process<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ProcessHandle { shared: Arc::clone(&self.shared) }.fmt(f)
    }
}

impl<T> Unpin for Process<T> {}

impl<T: DeserializeOwned> Future for Process<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let handle = self.handle();
        let ended = self.ended.get_or_insert_with(|| handle.join());
        let exit = ready!(Pin::new(ended).poll(context))?;
        Poll::Ready(self.result(exit))
    }
}

impl Shared {
    async fn when(&self, reached: impl Fn(&State) -> bool) -> State {
        let mut state = self.state.subscribe();
        let reached = state.wait_for(|state| reached(state)).await;
        reached.expect("the sender lives in `self`").clone()
    }

    async fn end_of_it(&self) -> Exit {
        match self.when(|state| matches!(state, State::Ended(_))).await {
            State::Ended(exit) => exit,
            _ => unreachable!("that was waited for"),
        }
    }

    fn end(&self, exit: Exit) {
        self.state.send_if_modified(|state| {
            let alive = !matches!(state, State::Ended(_));
            if alive {
                *state = State::Ended(exit);
            }
            alive
        });
    }
}

static CHILDREN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn register(shared: &Arc<Shared>) {
    let mut children = CHILDREN.lock();
    children.retain(|child| {
        child.upgrade().is_some_and(|child| !matches!(*child.state.borrow(), State::Ended(_)))
    });
    children.push(Arc::downgrade(shared));
}

/// The processes that this one has spawned one by one, or that its supervisors keep, and that have
/// not ended.
pub fn active_children() -> Vec<ProcessHandle> {
    let children: Vec<_> = CHILDREN.lock().iter().filter_map(Weak::upgrade).collect();
    children
        .into_iter()
        .map(|shared| ProcessHandle { shared })
        .filter(ProcessHandle::is_alive)
        .collect()
}

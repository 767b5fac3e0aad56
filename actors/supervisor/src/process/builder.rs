//! Options of processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fiber_core::{Exit, ExitReason, Result};
use fiber_values::codec::EncodedValue;
use fiber_values::{
    AsResult, AsTermination, AsValue, Function, Portable, TaskOutput, Termination, TryOutput,
    TypedEntry, assert_captures_nothing, codec, transfer,
};
use tokio::sync::OnceCell;

use super::child_main::ProcessMain;
use super::start::{PendingProcess, ProcessSpec, ProcessStart};
use super::{Process, ProcessHandle};
use crate::options::{ProcessOptions, builder_options};
use crate::supervisor::{ChildSpec, Restart, Shutdown, Supervisor, SupervisorRef, check_name};
use fiber_runtime::runtime::Runtime;

/// Configures and starts a [`Process`].
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::config::OutputMode;
/// use fiber::{Meta, Process};
///
/// let quiet = Process::builder().name("quiet").output(OutputMode::Null);
/// let half = quiet.meta(Meta::new().cpu(0.5));
/// half.spawn(|| println!("this goes nowhere"), ()).wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ProcessBuilder {
    options: ProcessOptions,
}

impl ProcessBuilder {
    builder_options! {
        /// The default is `process-1` and so on. The [example](ProcessBuilder#examples) shows it.
        name => options.name;
        /// Resources that are not set here come from the function's `#[fiber::meta]`. The
        /// [example](ProcessBuilder#examples) shows it.
        meta => options.meta;
        /// The [example](ProcessBuilder#examples) shows it.
        output => options.output;
    }

    /// Starts a process that runs `function`.
    ///
    /// The arguments are one value, or a tuple for a function of several. They are encoded on this
    /// thread. Returns at once; errors come out of the [`Process`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Process;
    ///
    /// let process = Process::builder().name("adder").spawn(|a: u32, b: u32| a + b, (1, 2));
    /// assert_eq!(process.wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F, A, M, N>(
        self,
        function: F,
        args: A,
    ) -> Process<<F::Output as TaskOutput<N>>::Value>
    where
        F: Function<A, M, Output: TaskOutput<N>>,
        A: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        self.start(TypedEntry::of::<F, M, AsValue<N>>(function), &args)
    }

    /// Works as [`spawn`](ProcessBuilder::spawn), for a function that returns a `Result` whose
    /// error implements `Display`. An `Err` becomes
    /// [`Error::Task`](fiber_core::Error::Task).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Process;
    ///
    /// let size = |path: String| std::fs::metadata(path).map(|file| file.len());
    /// let process = Process::builder().try_spawn(size, "/no/such/file".to_string());
    /// assert!(process.wait().unwrap_err().to_string().contains("No such file"));
    /// ```
    #[track_caller]
    pub fn try_spawn<F, A, M, N>(
        self,
        function: F,
        args: A,
    ) -> Process<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<A, M, Output: TryOutput<N>>,
        A: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        self.start(TypedEntry::of::<F, M, AsResult<N>>(function), &args)
    }

    /// Returns the specification of a supervisor's child with these options: see
    /// [`ChildSpec::process`].
    ///
    /// Encodes the arguments once; each incarnation of the process gets the same. Nothing starts
    /// before the supervisor starts the child.
    ///
    /// # Errors
    /// `NotInitialized` and `Config`; `Encode` and `TooLarge` for the arguments; `Invalid` for the
    /// name: see [`Error`](fiber_core::Error).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::config::OutputMode;
    /// use fiber::{Process, Supervisor};
    ///
    /// fn serve(name: String) {
    ///     println!("{name} is running");
    ///     std::thread::park();
    /// }
    ///
    /// let server = Process::builder().name("server").output(OutputMode::Prefix);
    /// let app = Supervisor::builder("app").child(server.child(serve, "a".to_string())?);
    /// let app = app.start().wait()?;
    /// app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn child<F, A, M, N>(self, function: F, args: A) -> Result<ChildSpec>
    where
        F: Function<A, M, Output: Termination<N>>,
        A: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let (name, options) = self.named();
        let spec =
            spec(&name, options, &TypedEntry::of::<F, M, AsTermination<N>>(function), &args)?;
        Ok(ChildSpec::new(name, ProcessStart::Repeated(spec)))
    }

    pub(super) fn start<A, T>(self, function: TypedEntry<A, T>, args: &A) -> Process<T>
    where
        A: Portable,
    {
        let (name, options) = self.named();
        let handle = match spec(&name, options, &function, args) {
            Ok(spec) => start(name, spec),
            Err(error) => ProcessHandle::not_spawned(name, error),
        };
        Process::new(handle, function.entry.display_name())
    }

    fn named(self) -> (String, ProcessOptions) {
        (self.options.name_or_numbered("process"), self.options)
    }
}

/// Encodes a function and its arguments.
fn spec<A: Portable, T>(
    name: &str,
    options: ProcessOptions,
    function: &TypedEntry<A, T>,
    args: &A,
) -> Result<ProcessSpec> {
    check_name("ProcessBuilder::name", name)?;
    let runtime = Runtime::get()?;
    let entry = function.entry;
    let limit = runtime.config().max_message.as_u64();
    let (arguments, keep_alive) = transfer::repeatable(|| EncodedValue::new(args));
    let arguments = arguments?;
    codec::check_size(arguments.size(), limit, || {
        format!("the arguments of `{}`", entry.display_name())
    })?;
    Ok(ProcessSpec {
        runtime,
        output: options.output(runtime.config()),
        meta: options.meta.or(function.meta),
        process_main: ProcessMain { entry: entry.reference(), limit },
        arguments,
        _keep_alive: keep_alive,
    })
}

/// Adds a process to the supervisor of this program's spawned processes.
fn start(name: String, spec: ProcessSpec) -> ProcessHandle {
    // Names of spawned processes may repeat; those of a supervisor's children may not.
    let runtime = spec.runtime;
    let number = runtime.part::<SpawnedProcesses>().last.fetch_add(1, Ordering::Relaxed) + 1;
    let child_name = format!("{name} #{number}");
    let pending = PendingProcess::new(name, spec);
    let status = Arc::clone(pending.status());
    let child = ChildSpec::new(child_name, ProcessStart::Once(Some(pending)))
        .restart(Restart::Temporary)
        .shutdown(Shutdown::After(runtime.config().shutdown_timeout));
    let starting = Arc::clone(&status);
    runtime.spawn(move || async move {
        let added = match spawned_processes(runtime).await {
            Ok(supervisor) => supervisor.add_child(child).await,
            Err(error) => Err(error),
        };
        if let Err(error) = added {
            starting.end(Exit::new(ExitReason::NotStarted(error.to_string()), Vec::new()));
        }
    });
    ProcessHandle::new(status)
}

/// The processes that a session has spawned in this one.
#[derive(Default)]
struct SpawnedProcesses {
    last: AtomicU64,
    supervisor: OnceCell<SupervisorRef>,
}

/// Returns the supervisor of spawned processes, which the first of them starts.
async fn spawned_processes(runtime: &'static Runtime) -> Result<&'static SupervisorRef> {
    let start = || Supervisor::builder("processes").start_on(runtime.arbiter());
    runtime.part::<SpawnedProcesses>().supervisor.get_or_try_init(start).await
}

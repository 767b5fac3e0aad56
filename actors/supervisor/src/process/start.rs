//! Processes as children of supervisors: the supervisor of spawned processes, or a user's own.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use fiber_backends::{ChildOutput, print_message};
use fiber_core::stats::ProcessRole;
use fiber_core::{Exit, ExitReason, Failure, FailureKind, Meta, Result, spawn_local};
use fiber_transport::{Link, Received};
use fiber_values::codec::EncodedValue;
use fiber_values::transfer::KeepAlive;
use fiber_values::{Function, Outcome, Portable, Termination, assert_captures_nothing, codec};
use futures_util::future::LocalBoxFuture;
use tokio::sync::mpsc;

use super::Process;
use super::child_main::ProcessMain;
use super::control::{ProcessControl, SignalControl, running};
use super::handle::{ProcessResult, ProcessStatus, RunState, register};
use crate::supervisor::{ChildContext, ChildSpec, Running, Start};
use fiber_runtime::runtime::{
    ChildProcess, ControlMessage, Launch, Owner, Placement, ProcessCommand, ReadyChild, Runtime,
    StartRequest,
};

const SIGTERM: i32 = 15;

impl ChildSpec {
    /// Returns the specification of a child process that runs `function`.
    ///
    /// Each incarnation is a new process that calls the function with the same arguments. The
    /// [tree](crate::supervisor::tree()) shows its process id. A return is a normal end; an `Err`,
    /// a panic and the death of the process are failures. The supervisor stops the process by
    /// SIGTERM, which ends a process that does not handle it at once, and kills it after its
    /// [shutdown](ChildSpec::shutdown) deadline.
    ///
    /// [`ProcessBuilder::child`](crate::process::ProcessBuilder::child) does the same with options.
    ///
    /// # Errors
    /// As [`ProcessBuilder::child`](crate::process::ProcessBuilder::child).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// use fiber::Supervisor;
    /// use fiber::supervisor::{ChildSpec, Restart, Shutdown};
    ///
    /// fn serve(name: String) -> Result<(), std::io::Error> {
    ///     println!("{name} is running");
    ///     loop {
    ///         std::thread::park();
    ///     }
    /// }
    ///
    /// let server = ChildSpec::process("server", serve, "a".to_string())?
    ///     .restart(Restart::Transient)
    ///     .shutdown(Shutdown::After(Duration::from_secs(1)));
    /// let app = Supervisor::builder("app").child(server).start().wait()?;
    /// println!("{}", fiber::tree()); // app, and below it: server  running  pid 4711  0s
    /// app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn process<F, A, M, N>(name: impl Into<String>, function: F, args: A) -> Result<ChildSpec>
    where
        F: Function<A, M, Output: Termination<N>>,
        A: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        Process::builder().name(name).child(function, args)
    }
}

/// A function with its arguments, and the options of the process that runs it.
#[derive(Clone)]
pub(super) struct ProcessSpec {
    pub(super) runtime: &'static Runtime,
    pub(super) meta: Meta,
    pub(super) output: ChildOutput,
    pub(super) process_main: ProcessMain,
    pub(super) arguments: EncodedValue,
    /// Shared objects among the arguments stay alive as long as this.
    pub(super) _keep_alive: KeepAlive,
}

/// Starts a process once, or a new one for each incarnation.
pub(super) enum ProcessStart {
    Once(Option<PendingProcess>),
    Repeated(ProcessSpec),
}

impl Start for ProcessStart {
    fn start(
        &mut self,
        context: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let pending = match self {
            ProcessStart::Once(pending) => pending.take(),
            ProcessStart::Repeated(spec) => {
                Some(PendingProcess::new(context.path().into(), spec.clone()))
            }
        };
        Box::pin(async move {
            let again = || ExitReason::NotStarted("a spawned process is started only once".into());
            pending.ok_or_else(again)?.start(context).await
        })
    }
}

/// A process that has not been started.
pub(super) struct PendingProcess {
    status: Arc<ProcessStatus>,
    commands: mpsc::UnboundedReceiver<ProcessCommand>,
    spec: ProcessSpec,
}

impl PendingProcess {
    pub(super) fn new(name: String, spec: ProcessSpec) -> PendingProcess {
        let (status, commands) = ProcessStatus::new(name);
        register(spec.runtime, &status);
        PendingProcess { status, commands, spec }
    }

    pub(super) fn status(&self) -> &Arc<ProcessStatus> {
        &self.status
    }

    async fn start(self, context: ChildContext) -> Result<Running, ExitReason> {
        let PendingProcess { status, commands, spec } = self;
        let ProcessSpec { runtime, meta, output, process_main, arguments, _keep_alive: keep_alive } =
            spec;
        let launch = Launch {
            name: status.name.clone(),
            role: ProcessRole::Function,
            restarts: context.restarts(),
            retry_creation: context.restarts() > 0,
            meta,
            output,
            request: StartRequest::new(&process_main),
            scheduling: None,
            placement: Placement::in_group(runtime.common_hosts()),
        };
        let stop_requested = Rc::new(Cell::new(false));
        let control = SignalControl {
            control: ProcessControl::new(status.commands.clone()),
            stop_requested: Rc::clone(&stop_requested),
        };
        let owner = ProcessOwner {
            context,
            _end: EndGuard(Arc::clone(&status)),
            status,
            arguments: Some(arguments),
            keep_alive,
            link: None,
            stop_requested,
        };
        let child = ChildProcess { runtime, launch, commands, owner }.start();
        running(child, control).await
    }
}

/// Gives a process its arguments, and takes its result.
struct ProcessOwner {
    context: ChildContext,
    _end: EndGuard,
    status: Arc<ProcessStatus>,
    arguments: Option<EncodedValue>,
    keep_alive: KeepAlive,
    /// Once it is ready.
    link: Option<Arc<dyn Link>>,
    stop_requested: Rc<Cell<bool>>,
}

impl Owner for ProcessOwner {
    fn ready(&mut self, ready: ReadyChild<'_>) {
        self.context.set_place(&*ready.place);
        self.status.state.send_replace(RunState::Running { pid: ready.info.pid });
        if let Some(arguments) = self.arguments.take() {
            // If the link is closed by now, the next message says so.
            let _ = ready.link.send(ProcessMain::begin(arguments));
        }
        self.link = Some(Arc::clone(ready.link));
    }

    fn message(&mut self, message: Received) {
        let outcome = if message.first() == Some(&0) { Outcome::Value } else { Outcome::Failure };
        let bytes = message.slice(message.len().min(1)..);
        let value = Received { bytes, blobs: message.blobs };
        *self.status.result.lock() = Some(ProcessResult::Finished(outcome, value));
        if let Some(link) = &self.link {
            // The process waits for this, so that its result arrives before its end.
            let _ = link.send(ControlMessage::Shutdown.message());
        }
    }

    async fn ended(self, exit: Exit) -> ExitReason {
        drop(self.keep_alive);
        let reason = match (&self.link, &exit.reason) {
            (None, ExitReason::NotStarted(_)) => exit.clone().start_failure(),
            (None, reason) => reason.clone(),
            (Some(_), _) => exit_reason(&self.status, &exit, self.stop_requested.get()),
        };
        self.status.end(exit);
        reason
    }
}

/// Marks a process as ended when it is dropped, unless the end is known already.
struct EndGuard(Arc<ProcessStatus>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end(Exit::new(ExitReason::Shutdown, Vec::new()));
    }
}

/// Returns why a process ended, for its supervisor: the function's own failure takes precedence
/// over the exit code.
fn exit_reason(status: &ProcessStatus, exit: &Exit, stop_requested: bool) -> ExitReason {
    let by_itself = matches!(exit.reason, ExitReason::Normal | ExitReason::Code(_));
    match (&*status.result.lock(), &exit.reason) {
        (Some(ProcessResult::Finished(Outcome::Failure, failure)), _) if by_itself => {
            match codec::decode::<Failure>(failure) {
                Ok(failure) if failure.kind == FailureKind::Panicked => {
                    if let Some(backtrace) = failure.backtrace() {
                        spawn_local(print_message(format!(
                            "`{}` panicked: {}; the backtrace:\n{backtrace}\n",
                            status.name, failure.message
                        )));
                    }
                    ExitReason::Panicked(failure.message)
                }
                Ok(Failure { kind: FailureKind::Returned, message, .. }) => {
                    ExitReason::Failed(message)
                }
                Ok(failure) => ExitReason::Failed(failure.to_string()),
                Err(_) => exit.reason.clone(),
            }
        }
        (_, ExitReason::Signal(SIGTERM)) if stop_requested => ExitReason::Shutdown,
        _ => exit.reason.clone(),
    }
}

//! Processes as children of supervisors: the supervisor of spawned processes, or a user's own.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use fiber_core::codec::EncodedValue;
use fiber_core::stats::ProcessRole;
use fiber_core::transfer::KeepAlive;
use fiber_core::{
    Exit, ExitReason, Failure, FailureKind, Function, Meta, Outcome, OutputMode, Portable, Result,
    Termination, assert_captures_nothing, codec,
};
use fiber_transport::Received;
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::Process;
use super::child_main::ProcessMain;
use super::control::SignalControl;
use super::handle::{ProcessResult, ProcessStatus, RunState, register};
use crate::runtime::{
    ControlMessage, JobKind, Launch, ProcessCommand, Runtime, StartRequest, launch, monitor,
};
use crate::supervisor::{ChildContext, ChildSpec, Running, Start};

const SIGTERM: i32 = 15;

impl ChildSpec {
    /// Returns the specification of a child process that runs `function`.
    ///
    /// Each incarnation is a new process that calls the function with the same arguments. The
    /// [tree](crate::tree()) shows its process id. A return is a normal end; an `Err`, a panic and
    /// the death of the process are failures. The supervisor stops the process by SIGTERM, which
    /// ends a process that does not handle it at once, and kills it after its
    /// [shutdown](ChildSpec::shutdown) deadline.
    ///
    /// [`ProcessBuilder::child`](crate::ProcessBuilder::child) does the same with options.
    ///
    /// # Errors
    /// As [`ProcessBuilder::child`](crate::ProcessBuilder::child).
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
    pub(super) output: OutputMode,
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
        register(&status);
        PendingProcess { status, commands, spec }
    }

    pub(super) fn status(&self) -> &Arc<ProcessStatus> {
        &self.status
    }

    async fn start(self, context: ChildContext) -> Result<Running, ExitReason> {
        let PendingProcess { status, mut commands, spec } = self;
        let end_guard = EndGuard(Arc::clone(&status));
        let ProcessSpec { runtime, meta, output, process_main, arguments, _keep_alive: keep_alive } =
            spec;
        let launch = launch(
            runtime,
            Launch {
                name: status.name.clone(),
                role: ProcessRole::Function,
                restarts: context.restarts(),
                retry_creation: context.restarts() > 0,
                meta,
                output,
                request: StartRequest::new(&process_main),
                scheduling: None,
                kind: JobKind::Process(runtime.common_hosts()),
            },
        );
        tokio::pin!(launch);
        // Commands that need the process's link wait for it.
        let mut deferred = Vec::new();
        let launched = loop {
            tokio::select! {
                launched = &mut launch => break launched,
                Some(command) = commands.recv() => match command {
                    ProcessCommand::Kill(reason) => break Err(Exit::new(reason, Vec::new())),
                    command => deferred.push(command),
                }
            }
        };
        let launched = launched.map_err(|exit| {
            let reason = match exit.reason {
                ExitReason::NotStarted(_) => exit.start_failure(),
                ref reason => reason.clone(),
            };
            status.end(exit);
            reason
        })?;
        let pid = launched.info.pid;
        let place = launched.place();
        context.set_place(&*place);
        for command in deferred {
            let _ = status.commands.send(command);
        }
        status.state.send_replace(RunState::Running { pid });
        // If the link is closed by now, `monitor` notices.
        let _ = launched.connection.link.send(ProcessMain::begin(arguments));
        let stop_requested = Rc::new(Cell::new(false));
        let control = SignalControl {
            commands: status.commands.clone(),
            stop_requested: Rc::clone(&stop_requested),
        };
        let (exited, exit) = oneshot::channel();
        actix::spawn(async move {
            let link = Arc::clone(&launched.connection.link);
            let receive = |message: Received| {
                let outcome =
                    if message.first() == Some(&0) { Outcome::Value } else { Outcome::Failure };
                let bytes = message.slice(message.len().min(1)..);
                let value = Received { bytes, blobs: message.blobs };
                *status.result.lock() = Some(ProcessResult::Finished(outcome, value));
                // The process waits for this, so that its result arrives before its end.
                let _ = link.send(ControlMessage::Shutdown.message());
            };
            let exit = monitor(runtime, launched, commands, receive).await;
            drop(keep_alive);
            let _ = exited.send(exit_reason(&status, &exit, stop_requested.get()));
            status.end(exit);
            drop(end_guard);
        });
        let exited =
            async { exit.await.unwrap_or(ExitReason::LinkLost("its monitor ended".into())) };
        Ok(Running::new(control, exited).place(place))
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
                        eprintln!(
                            "`{}` panicked: {}; the backtrace:\n{backtrace}",
                            status.name, failure.message
                        );
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

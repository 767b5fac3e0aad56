//! A process as the child of a supervisor: the one that keeps all spawned processes, or a user's.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use fiber_core::travel::Pins;
use fiber_core::{
    Conclusion, Exit, ExitReason, Failure, FailureKind, Function, Meta, Outcome, OutputMode,
    Portable, Result, captures_nothing, codec,
};
use futures_util::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::root::ProcessMain;
use super::{Process, Shared, State, register};
use crate::runtime::{
    ControlMessage, Launch, ProcessCommand, Runtime, StartRequest, launch, monitor,
};
use crate::supervisor::{self, ChildContext, ChildSpec, Running, Start};

impl ChildSpec {
    /// An OS process that runs one function, from its arguments again for each incarnation. The
    /// tree shows its pid.
    ///
    /// To return is a normal end; an `Err`, a panic and the process's death are failures. It is
    /// asked to end by SIGTERM, which ends a process that does not handle it at once, and killed
    /// after its [shutdown](ChildSpec::shutdown) deadline.
    /// [`ProcessBuilder::child`](crate::ProcessBuilder::child) makes one with resources or output
    /// of its own.
    ///
    /// # Errors
    /// As [`ProcessBuilder::spawn`](crate::ProcessBuilder::spawn).
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
    ///     println!("{name} is at work");
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
    /// app.shutdown().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn process<F, A, M, N>(name: impl Into<String>, function: F, args: A) -> Result<ChildSpec>
    where
        F: Function<A, M>,
        A: Portable,
        F::Output: Conclusion<N>,
        N: 'static,
    {
        const { captures_nothing::<F>() };
        Process::builder().name(name).child(function, args)
    }
}

/// What a process is to do, and with what.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) runtime: &'static Runtime,
    pub(super) function: &'static str,
    pub(super) meta: Meta,
    pub(super) output: OutputMode,
    pub(super) process_main: ProcessMain,
    /// Of the arguments.
    pub(super) pins: Pins,
}

/// One process, from before its start to its end. Dropped, it has ended.
pub(super) struct Life {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<ProcessCommand>,
    work: Work,
}

impl Life {
    pub(super) fn new(name: String, work: Work) -> Life {
        let (sender, commands) = mpsc::unbounded_channel();
        let state = watch::Sender::new(State::Starting);
        let shared = Arc::new(Shared { name, state, commands: sender, outcome: Mutex::default() });
        register(&shared);
        Life { shared, commands, work }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    async fn start(self, context: ChildContext) -> Result<Running, ExitReason> {
        let Life {
            shared,
            mut commands,
            work: Work { runtime, meta, output, process_main, pins, .. },
        } = self;
        let mut ending = EndsWith(shared);
        let shared = Arc::clone(&ending.0);
        let (name, restarts) = (shared.name.clone(), context.restarts());
        let request = StartRequest::new(&process_main);
        let launch =
            launch(runtime, Launch { name, restarts, meta, output, request, scheduling: None });
        tokio::pin!(launch);
        let mut asked = Vec::new();
        let launched = loop {
            tokio::select! {
                launched = &mut launch => break launched,
                // To be ended while it starts: it has no link yet through which it could be told.
                Some(command) = commands.recv() => match command {
                    ProcessCommand::Kill(reason) => break Err(Exit::new(reason, Vec::new())),
                    command => asked.push(command),
                }
            }
        };
        let launched = launched.map_err(|exit| {
            let reason = match exit.reason {
                ExitReason::NotStarted(_) => exit.start_failure(),
                ref reason => reason.clone(),
            };
            ending.end(exit);
            reason
        })?;
        let pid = launched.info.pid;
        let place = launched.place();
        context.set_place(&*place);
        asked.into_iter().for_each(|command| drop(shared.commands.send(command)));
        shared.state.send_replace(State::Running { pid });
        // A link that is closed by now is seen by the attendant.
        let _ = launched.connection.link.send(ProcessMain::begin());
        let told = Rc::new(Cell::new(Told::Nothing));
        let control = Ender { commands: shared.commands.clone(), told: Rc::clone(&told) };
        let (exited, exit) = oneshot::channel();
        actix::spawn(async move {
            let link = Arc::clone(&launched.connection.link);
            let receive = |message: Bytes| {
                let outcome =
                    if message.first() == Some(&0) { Outcome::Value } else { Outcome::Failure };
                *shared.outcome.lock() = Some((outcome, message.slice(message.len().min(1)..)));
                // It waits for this, so that its result is not lost with it.
                let _ = link.send(ControlMessage::Shutdown.message());
            };
            let exit = monitor(runtime, launched, commands, receive).await;
            drop(pins);
            let _ = exited.send(reason(&shared, &exit, told.get()));
            ending.end(exit);
        });
        let exited =
            async { exit.await.unwrap_or(ExitReason::LinkLost("its attendant ended".into())) };
        Ok(Running::new(control, exited).place(place))
    }
}

/// Sees to it that a process that will never run is known to have ended.
struct EndsWith(Arc<Shared>);

impl EndsWith {
    fn end(&mut self, exit: Exit) {
        self.0.end(exit);
    }
}

impl Drop for EndsWith {
    fn drop(&mut self) {
        // Only the first end counts.
        self.0.end(Exit::new(ExitReason::Shutdown, Vec::new()));
    }
}

/// Why a process ended, as its supervisor sees it: what the function said of its end counts before
/// the exit code.
fn reason(shared: &Shared, exit: &Exit, told: Told) -> ExitReason {
    let by_itself = matches!(exit.reason, ExitReason::Normal | ExitReason::Code(_));
    match (&*shared.outcome.lock(), &exit.reason) {
        (Some((Outcome::Failure, failure)), _) if by_itself => {
            match codec::decode::<Failure>(failure) {
                Ok(failure) if failure.kind == FailureKind::Panicked => {
                    if let Some(backtrace) = failure.backtrace() {
                        eprintln!(
                            "`{}` panicked: {}; the backtrace:\n{backtrace}",
                            shared.name, failure.message
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
        (_, ExitReason::Signal(SIGTERM)) if told == Told::ToEnd => ExitReason::Shutdown,
        _ => exit.reason.clone(),
    }
}

const SIGTERM: i32 = 15;

#[derive(Clone, Copy, PartialEq)]
enum Told {
    Nothing,
    ToEnd,
}

/// Ends a process, whose work may have no end. Dropped, it does so at once.
struct Ender {
    commands: mpsc::UnboundedSender<ProcessCommand>,
    told: Rc<Cell<Told>>,
}

impl supervisor::Control for Ender {
    fn shutdown(&mut self) {
        self.told.set(Told::ToEnd);
        // An attendant that is gone has seen the end of its process.
        let _ = self.commands.send(ProcessCommand::Terminate);
    }

    fn kill(&mut self, reason: ExitReason) {
        let _ = self.commands.send(ProcessCommand::Kill(reason));
    }
}

impl Drop for Ender {
    fn drop(&mut self) {
        let _ = self.commands.send(ProcessCommand::Kill(ExitReason::Shutdown));
    }
}

/// Starts a process once, or anew for each incarnation.
pub(super) enum ProcessStart {
    Once(Option<Life>),
    AgainAndAgain(Work),
}

impl ProcessStart {
    pub(super) fn once(life: Life) -> ProcessStart {
        ProcessStart::Once(Some(life))
    }

    pub(super) fn again_and_again(work: Work) -> ProcessStart {
        ProcessStart::AgainAndAgain(work)
    }
}

impl Start for ProcessStart {
    fn start(
        &mut self,
        context: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let life = match self {
            ProcessStart::Once(life) => life.take(),
            ProcessStart::AgainAndAgain(work) => {
                Some(Life::new(context.path().into(), work.clone()))
            }
        };
        Box::pin(async move {
            let again = || ExitReason::NotStarted("what was spawned is started once".into());
            life.ok_or_else(again)?.start(context).await
        })
    }
}

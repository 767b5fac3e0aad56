//! Children that follow a test's script, and a log of their starts and ends.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{ArbiterHandle, System};
use fiber_core::ExitReason;
use futures_core::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use crate::supervisor::{
    Backoff, ChildContext, ChildSpec, Control, Running, Start, Supervisor, SupervisorBuilder,
    SupervisorRef,
};

/// Runs a test in a runtime that is not the supervisor's.
pub(super) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(30), test).await.expect("in time")
    })
}

/// Starts a thread with an actix system of its own.
pub(super) fn system() -> ArbiterHandle {
    let (sender, arbiter) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let system = System::new();
        sender.send(System::current().arbiter().clone()).unwrap();
        system.run().unwrap();
    });
    arbiter.recv().unwrap()
}

/// Waits until the supervisor has handled all events before this call.
pub(super) async fn events_handled(supervisor: &SupervisorRef) {
    // It handles queued events before a command.
    supervisor.kill_child("nobody", ExitReason::Normal).await.unwrap_err();
}

/// Returns a supervisor that does not pause before restarts.
pub(super) fn eager(name: &str) -> SupervisorBuilder {
    Supervisor::builder(name).backoff(Backoff::none())
}

/// Starts a supervisor on a thread of its own.
pub(super) async fn start(builder: SupervisorBuilder) -> SupervisorRef {
    builder.start_on(&system()).await.unwrap()
}

/// The children of one test.
#[derive(Clone)]
pub(super) struct Script {
    log: mpsc::UnboundedSender<String>,
    children: Arc<Mutex<HashMap<String, ChildScript>>>,
    gates: Arc<Mutex<HashMap<String, watch::Sender<bool>>>>,
}

/// The starts and ends, in order.
pub(super) struct Log(mpsc::UnboundedReceiver<String>);

#[derive(Default)]
struct ChildScript {
    exit: Option<oneshot::Sender<ExitReason>>,
    ended: Option<oneshot::Receiver<()>>,
    failing_starts: u32,
}

/// The reaction of a child to its supervisor.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum OnStop {
    Exit,
    /// Only a kill ends it.
    Ignore,
    /// Not even a kill ends it.
    IgnoreKill,
}

pub(super) fn script() -> (Script, Log) {
    let (log, receiver) = mpsc::unbounded_channel();
    (Script { log, children: Arc::default(), gates: Arc::default() }, Log(receiver))
}

impl Script {
    pub(super) fn child(&self, name: &str) -> ChildSpec {
        self.child_that(name, OnStop::Exit)
    }

    pub(super) fn child_that(&self, name: &str, on_stop: OnStop) -> ChildSpec {
        self.children.lock().insert(name.into(), ChildScript::default());
        ChildSpec::new(name, ScriptedStart { script: self.clone(), name: name.into(), on_stop })
    }

    /// Returns a child whose start is done only when that of `other` has begun.
    pub(super) fn slow(&self, name: &str, other: &str) -> ChildSpec {
        let mut children = self.children.lock();
        children.insert(name.into(), ChildScript::default());
        let (mine, theirs) = (self.gate(name), self.gate(other));
        ChildSpec::new(name, SlowStart { script: self.clone(), name: name.into(), mine, theirs })
    }

    fn gate(&self, name: &str) -> watch::Sender<bool> {
        self.gates.lock().entry(name.into()).or_insert_with(|| watch::Sender::new(false)).clone()
    }

    /// Lets the next `count` starts of this child fail.
    pub(super) fn fail_starts(&self, name: &str, count: u32) {
        self.children.lock().get_mut(name).unwrap().failing_starts = count;
    }

    /// Ends the child's current incarnation.
    pub(super) fn exit(&self, name: &str, reason: ExitReason) {
        self.exit_sender(name).send(reason).unwrap();
    }

    /// Ends the child's current incarnation, and waits for its end.
    pub(super) async fn exit_and_wait(&self, name: &str, reason: ExitReason) {
        let ended = self.children.lock().get_mut(name).unwrap().ended.take().unwrap();
        self.exit(name, reason);
        ended.await.unwrap();
    }

    /// Returns the sender that ends the child's current incarnation.
    pub(super) fn exit_sender(&self, name: &str) -> oneshot::Sender<ExitReason> {
        self.children.lock().get_mut(name).unwrap().exit.take().unwrap()
    }

    pub(super) fn log(&self, line: impl fmt::Display) {
        let _ = self.log.send(line.to_string());
    }
}

impl Log {
    pub(super) async fn next(&mut self) -> String {
        self.0.recv().await.unwrap()
    }

    /// Checks the next lines.
    pub(super) async fn expect(&mut self, lines: &[&str]) {
        let mut seen = Vec::new();
        while seen.len() < lines.len() {
            seen.push(self.next().await);
        }
        assert_eq!(seen, lines);
    }

    /// Checks that there are no more lines.
    pub(super) fn expect_no_more(&mut self) {
        assert_eq!(self.0.try_recv().ok(), None);
    }
}

struct ScriptedStart {
    script: Script,
    name: String,
    on_stop: OnStop,
}

impl Start for ScriptedStart {
    fn start(
        &mut self,
        child: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let (exit, exited) = oneshot::channel();
        let (ends, gone) = oneshot::channel();
        {
            let mut children = self.script.children.lock();
            let child_script = children.get_mut(&self.name).unwrap();
            if child_script.failing_starts > 0 {
                child_script.failing_starts -= 1;
                self.script.log(format!("fail {}", self.name));
                return Box::pin(async { Err(ExitReason::NotStarted("as scripted".into())) });
            }
            child_script.exit = Some(exit);
            child_script.ended = Some(gone);
        }
        let (script, name, on_stop) = (self.script.clone(), self.name.clone(), self.on_stop);
        Box::pin(async move {
            let (end, ended) = oneshot::channel();
            let start = format!("start {name}");
            let control = ScriptedControl { script: script.clone(), name, on_stop, end: Some(end) };
            let exited = async move {
                // By now the supervisor has the event of the start in its queue.
                script.log(start);
                let reason = tokio::select! {
                    Ok(reason) = exited => reason,
                    Ok(reason) = ended => reason,
                    else => std::future::pending().await,
                };
                let _ = ends.send(());
                reason
            };
            Ok(Running::new(control, exited).place(format!("pid {}", child.incarnation())))
        })
    }
}

struct SlowStart {
    script: Script,
    name: String,
    mine: watch::Sender<bool>,
    theirs: watch::Sender<bool>,
}

impl Start for SlowStart {
    fn start(
        &mut self,
        child: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        self.script.log(format!("begin {}", self.name));
        self.mine.send_replace(true);
        let mut begun = self.theirs.subscribe();
        let on_stop = OnStop::Exit;
        let mut rest =
            ScriptedStart { script: self.script.clone(), name: self.name.clone(), on_stop };
        Box::pin(async move {
            begun.wait_for(|begun| *begun).await.unwrap();
            rest.start(child).await
        })
    }
}

struct ScriptedControl {
    script: Script,
    name: String,
    on_stop: OnStop,
    end: Option<oneshot::Sender<ExitReason>>,
}

impl Control for ScriptedControl {
    fn shutdown(&mut self) {
        self.script.log(format!("stop {}", self.name));
        if self.on_stop == OnStop::Exit
            && let Some(end) = self.end.take()
        {
            let _ = end.send(ExitReason::Shutdown);
        }
    }

    fn kill(&mut self, reason: ExitReason) {
        self.script.log(format!("kill {}", self.name));
        if self.on_stop != OnStop::IgnoreKill
            && let Some(end) = self.end.take()
        {
            let _ = end.send(reason);
        }
    }
}

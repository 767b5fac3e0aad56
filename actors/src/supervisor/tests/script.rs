//! Children that do what a test tells them, and a log of all that happens to them.

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

/// A thread with an actix system of its own.
pub(super) fn system() -> ArbiterHandle {
    let (sender, arbiter) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let system = System::new();
        sender.send(System::current().arbiter().clone()).unwrap();
        system.run().unwrap();
    });
    arbiter.recv().unwrap()
}

/// Waits until the supervisor has seen all starts and ends of its children that are known to have
/// happened.
pub(super) async fn settled(supervisor: &SupervisorRef) {
    // It looks at their news before it looks at a command.
    supervisor.kill_child("nobody", ExitReason::Normal).await.unwrap_err();
}

/// A supervisor that does not pause before it restarts.
pub(super) fn eager(name: &str) -> SupervisorBuilder {
    Supervisor::builder(name).backoff(Backoff::none())
}

/// The children of one test.
#[derive(Clone)]
pub(super) struct Scene {
    log: mpsc::UnboundedSender<String>,
    cast: Arc<Mutex<HashMap<String, Role>>>,
    gates: Arc<Mutex<HashMap<String, watch::Sender<bool>>>>,
}

/// What happened, in order.
pub(super) struct Log(mpsc::UnboundedReceiver<String>);

#[derive(Default)]
struct Role {
    exit: Option<oneshot::Sender<ExitReason>>,
    ended: Option<oneshot::Receiver<()>>,
    failing_starts: u32,
}

/// What a child does when it is told to end.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Manner {
    Obeys,
    Ignores,
    /// Not even a kill ends it.
    Immortal,
}

pub(super) fn scene() -> (Scene, Log) {
    let (log, receiver) = mpsc::unbounded_channel();
    (Scene { log, cast: Arc::default(), gates: Arc::default() }, Log(receiver))
}

impl Scene {
    pub(super) fn child(&self, name: &str) -> ChildSpec {
        self.mannered(name, Manner::Obeys)
    }

    pub(super) fn mannered(&self, name: &str, manner: Manner) -> ChildSpec {
        self.cast.lock().insert(name.into(), Role::default());
        ChildSpec::new(name, Actor { scene: self.clone(), name: name.into(), manner })
    }

    /// Its start is done only when the other's has begun, too.
    pub(super) fn slow(&self, name: &str, other: &str) -> ChildSpec {
        let mut cast = self.cast.lock();
        cast.insert(name.into(), Role::default());
        let (mine, theirs) = (self.gate(name), self.gate(other));
        ChildSpec::new(name, Slow { scene: self.clone(), name: name.into(), mine, theirs })
    }

    fn gate(&self, name: &str) -> watch::Sender<bool> {
        self.gates.lock().entry(name.into()).or_insert_with(|| watch::Sender::new(false)).clone()
    }

    /// The next `count` starts of this child fail.
    pub(super) fn fail_starts(&self, name: &str, count: u32) {
        self.cast.lock().get_mut(name).unwrap().failing_starts = count;
    }

    /// The child ends by itself.
    pub(super) fn exit(&self, name: &str, reason: ExitReason) {
        self.exit_of(name).send(reason).unwrap();
    }

    /// The child ends by itself; waits until it has.
    pub(super) async fn exit_now(&self, name: &str, reason: ExitReason) {
        let ended = self.cast.lock().get_mut(name).unwrap().ended.take().unwrap();
        self.exit(name, reason);
        ended.await.unwrap();
    }

    /// What ends the child's present incarnation.
    pub(super) fn exit_of(&self, name: &str) -> oneshot::Sender<ExitReason> {
        self.cast.lock().get_mut(name).unwrap().exit.take().unwrap()
    }

    pub(super) fn say(&self, line: impl fmt::Display) {
        let _ = self.log.send(line.to_string());
    }
}

impl Log {
    pub(super) async fn next(&mut self) -> String {
        self.0.recv().await.unwrap()
    }

    /// Checks that exactly this happens next.
    pub(super) async fn expect(&mut self, lines: &[&str]) {
        let mut seen = Vec::new();
        while seen.len() < lines.len() {
            seen.push(self.next().await);
        }
        assert_eq!(seen, lines);
    }

    /// Checks that nothing more has happened.
    pub(super) fn expect_no_more(&mut self) {
        assert_eq!(self.0.try_recv().ok(), None);
    }
}

struct Actor {
    scene: Scene,
    name: String,
    manner: Manner,
}

impl Start for Actor {
    fn start(
        &mut self,
        child: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let (exit, exited) = oneshot::channel();
        let (ends, gone) = oneshot::channel();
        {
            let mut cast = self.scene.cast.lock();
            let role = cast.get_mut(&self.name).unwrap();
            if role.failing_starts > 0 {
                role.failing_starts -= 1;
                self.scene.say(format!("fail {}", self.name));
                return Box::pin(async { Err(ExitReason::NotStarted("as told".into())) });
            }
            role.exit = Some(exit);
            role.ended = Some(gone);
        }
        let (scene, name, manner) = (self.scene.clone(), self.name.clone(), self.manner);
        Box::pin(async move {
            let (end, ended) = oneshot::channel();
            let start = format!("start {name}");
            let control = Scripted { scene: scene.clone(), name, manner, end: Some(end) };
            let exited = async move {
                // The supervisor's own news of the start is under way by now.
                scene.say(start);
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

struct Slow {
    scene: Scene,
    name: String,
    mine: watch::Sender<bool>,
    theirs: watch::Sender<bool>,
}

impl Start for Slow {
    fn start(
        &mut self,
        child: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        self.scene.say(format!("begin {}", self.name));
        self.mine.send_replace(true);
        let mut begun = self.theirs.subscribe();
        let manner = Manner::Obeys;
        let mut rest = Actor { scene: self.scene.clone(), name: self.name.clone(), manner };
        Box::pin(async move {
            begun.wait_for(|begun| *begun).await.unwrap();
            rest.start(child).await
        })
    }
}

struct Scripted {
    scene: Scene,
    name: String,
    manner: Manner,
    end: Option<oneshot::Sender<ExitReason>>,
}

impl Control for Scripted {
    fn shutdown(&mut self) {
        self.scene.say(format!("stop {}", self.name));
        if self.manner == Manner::Obeys
            && let Some(end) = self.end.take()
        {
            let _ = end.send(ExitReason::Shutdown);
        }
    }

    fn kill(&mut self, reason: ExitReason) {
        self.scene.say(format!("kill {}", self.name));
        if self.manner != Manner::Immortal
            && let Some(end) = self.end.take()
        {
            let _ = end.send(reason);
        }
    }
}

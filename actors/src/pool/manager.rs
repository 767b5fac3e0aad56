//! The actor that keeps a pool's workers: it starts its supervisor, adds workers to it and takes them away.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Recipient, WrapFuture};
use fiber_core::{ExitReason, Meta, OutputMode, Result};
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::shared::{Done, Request, Shared, Worker};
use super::worker::WorkerRoot;
use crate::node::{Command, Errand, Launch, Node, Patience, attend, launch};
use crate::process::ProcessControl;
use crate::supervisor::{Backoff, ChildContext, ChildSpec, Running, Shutdown, Start, Supervisor, SupervisorRef};

/// How often a pool that scales by itself looks at its queue, and for how long it must be short before workers go.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS_BEFORE_SHRINKING: u32 = 20;

/// How long after the first worker was found to have no room it is said how many do, if all others are at work by then.
const NO_ROOM: Duration = Duration::from_secs(2);

/// A worker that worked for this long is replaced at once when it dies; before, there is a pause that grows.
const SETTLED: Duration = Duration::from_millis(100);
/// Starts in a row that may fail, besides one for each worker, before a pool gives up. The same goes for workers that die
/// young without having had a task: if they had one, it is the tasks that fail.
const FAILED_STARTS: u32 = 5;

/// What a pool's workers are to be.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) meta: Meta,
    pub(super) output: OutputMode,
    pub(super) root: WorkerRoot,
    /// Tasks after which a worker is replaced.
    pub(super) quota: Option<u64>,
    pub(super) bounds: RangeInclusive<usize>,
}

/// See the module's documentation.
pub(super) struct Manager {
    node: &'static Node,
    name: String,
    shared: Weak<Shared>,
    plan: Plan,
    phase: Phase,
    wanted: usize,
    next: u64,
    /// Workers that are there or coming, by their place.
    children: BTreeSet<String>,
    waiting: Vec<Done>,
    short_looks: u32,
    /// Workers that wait for room, with the cluster's words.
    no_room: BTreeMap<String, String>,
    /// Whether that was said since all had room.
    said_no_room: bool,
    /// Starts that failed since one last worked.
    failed_starts: u32,
    /// Workers that died young and unused since one last did not.
    died_unused: u32,
}

enum Phase {
    New,
    Starting,
    Running(SupervisorRef),
    Ending,
    Ended,
}

/// Starts a manager on the node's thread.
pub(super) fn start(node: &'static Node, manager: Manager) -> Recipient<Request> {
    Manager::start_in_arbiter(node.arbiter(), |_| manager).recipient()
}

impl Actor for Manager {
    type Context = Context<Manager>;

    fn started(&mut self, context: &mut Context<Manager>) {
        // Its messages are few, and none may be refused.
        context.set_mailbox_capacity(0);
    }
}

impl Manager {
    pub(super) fn new(node: &'static Node, name: String, shared: Weak<Shared>, plan: Plan) -> Manager {
        let wanted = *plan.bounds.start();
        Manager {
            node,
            name,
            shared,
            plan,
            phase: Phase::New,
            wanted,
            next: 1,
            children: BTreeSet::new(),
            waiting: Vec::new(),
            short_looks: 0,
            no_room: BTreeMap::new(),
            said_no_room: false,
            failed_starts: 0,
            died_unused: 0,
        }
    }

    fn start_supervisor(&mut self, meta: Meta, context: &mut Context<Manager>) {
        if !matches!(self.phase, Phase::New) {
            return;
        }
        self.phase = Phase::Starting;
        self.plan.meta = self.plan.meta.or(meta);
        self.note_wanted();
        // What ends a worker is most often its task, which is given up in time: the pool goes on. It gives up when
        // workers can't be started any more: see `failed_start`.
        let supervisor = Supervisor::builder(&*self.name)
            .intensity(u32::MAX, Duration::from_secs(1))
            .backoff(Backoff::new(Duration::from_millis(10), Duration::from_secs(1)).reset_after(SETTLED));
        let arbiter = self.node.arbiter().clone();
        let started = async move { supervisor.start_on(&arbiter).await };
        context.spawn(started.into_actor(self).map(|started, manager, context| match started {
            Ok(supervisor) => manager.started_supervisor(supervisor, context),
            Err(error) => manager.fail(&error.to_string()),
        }));
        if self.plan.bounds.start() < self.plan.bounds.end() {
            context.run_interval(LOOK, Manager::look);
        }
    }

    fn started_supervisor(&mut self, supervisor: SupervisorRef, context: &mut Context<Manager>) {
        if !matches!(self.phase, Phase::Starting) {
            context.spawn(async move { drop(supervisor.shutdown().await) }.into_actor(self));
            return;
        }
        let watched = supervisor.clone();
        self.phase = Phase::Running(supervisor);
        let ended = async move { watched.ended().await.unwrap_or(ExitReason::Shutdown) };
        context.spawn(ended.into_actor(self).map(|reason, manager, _| manager.supervisor_ended(&reason)));
        self.adjust(context);
    }

    fn supervisor_ended(&mut self, reason: &ExitReason) {
        if !reason.is_normal() {
            return self.fail(&format!("failed: it {reason}"));
        }
        self.phase = Phase::Ended;
        self.answer();
    }

    fn fail(&mut self, why: &str) {
        self.phase = Phase::Ended;
        if let Some(shared) = self.shared.upgrade() {
            shared.end(why);
        }
        self.answer();
    }

    fn answer(&mut self) {
        for done in self.waiting.drain(..) {
            let _ = done.send(());
        }
    }

    fn note_wanted(&self) {
        if let Some(shared) = self.shared.upgrade() {
            let wanted = self.wanted.saturating_sub(self.no_room.len());
            shared.ready.send_modify(|readiness| readiness.wanted = wanted);
        }
    }

    /// Adds workers, or lets some end.
    fn adjust(&mut self, context: &mut Context<Manager>) {
        let (Phase::Running(supervisor), Some(shared)) = (&self.phase, self.shared.upgrade()) else { return };
        while self.children.len() < self.wanted {
            let child = format!("worker-{}", self.next);
            self.next += 1;
            self.children.insert(child.clone());
            let start = WorkerStart {
                node: self.node,
                child: child.clone(),
                shared: Arc::downgrade(&shared),
                plan: self.plan.clone(),
            };
            let spec =
                ChildSpec::new(child.clone(), start).shutdown(Shutdown::After(self.node.config().shutdown_timeout));
            let supervisor = supervisor.clone();
            let added = async move { supervisor.add(spec).await };
            context.spawn(added.into_actor(self).map(move |added, manager, _| manager.added(&child, added)));
        }
        while self.children.len() > self.wanted {
            // Those that have no room are missed least.
            if let Some((child, _)) = self.no_room.pop_first() {
                self.children.remove(&child);
                let supervisor = supervisor.clone();
                context.spawn(async move { drop(supervisor.terminate(&child).await) }.into_actor(self));
                continue;
            }
            let Some(worker) = shared.with_ledger(|ledger, effects| ledger.drain_one(effects)) else { break };
            self.children.remove(&worker.child);
            shared.ready.send_modify(|readiness| readiness.ready = readiness.ready.saturating_sub(1));
        }
    }

    /// A worker that can't be started at all is not tried again: the pool works with those that it has, if any.
    fn added(&mut self, child: &str, added: Result<()>) {
        let Err(error) = added else { return };
        if !matches!(self.phase, Phase::Running(_)) {
            return;
        }
        self.children.remove(child);
        self.no_room.remove(child);
        self.wanted = self.wanted.min(self.children.len());
        self.note_wanted();
        if self.children.is_empty() {
            self.fail(&format!("failed: {error}"));
        } else {
            tracing::warn!("pool `{}` goes on with {} workers: {error}", self.name, self.children.len());
        }
    }

    /// The pool works with the workers that have room, and grows when there is more.
    fn waits(&mut self, child: String, words: Option<String>, context: &mut Context<Manager>) {
        let all_had_room = self.no_room.is_empty();
        match words {
            Some(words) => drop(self.no_room.insert(child, words)),
            None if self.no_room.remove(&child).is_none() => return,
            None => {}
        }
        self.note_wanted();
        if all_had_room {
            self.say_no_room_soon(context);
        }
        self.said_no_room &= !self.no_room.is_empty();
    }

    /// Once, and when it is known of each worker whether it has room.
    fn say_no_room_soon(&self, context: &mut Context<Manager>) {
        context.run_later(NO_ROOM, |manager, context| {
            let Some(words) = manager.no_room.values().next().filter(|_| !manager.said_no_room) else { return };
            let ready = manager.shared.upgrade().map_or(0, |shared| shared.ready.borrow().ready);
            if ready == 0 || ready + manager.no_room.len() < manager.wanted {
                return manager.say_no_room_soon(context);
            }
            manager.said_no_room = true;
            tracing::warn!(
                "pool `{}` works with {ready} of {} workers, and grows when there is room for the others: {words}",
                manager.name,
                manager.wanted,
            );
        });
    }

    fn failed_start(&mut self, problem: &str, context: &mut Context<Manager>) {
        self.failed_starts += 1;
        let why = format!("{} starts of workers in a row failed; the last: {problem}", self.failed_starts);
        self.give_up_after(self.failed_starts, &why, context);
    }

    fn died_unused(&mut self, end: &str, context: &mut Context<Manager>) {
        self.died_unused += 1;
        let why = format!("{} workers in a row died young, before they had a task; the last {end}", self.died_unused);
        self.give_up_after(self.died_unused, &why, context);
    }

    fn give_up_after(&mut self, failures: u32, why: &str, context: &mut Context<Manager>) {
        let workers = u32::try_from(self.wanted).unwrap_or(u32::MAX);
        if failures <= workers.saturating_add(FAILED_STARTS) || !matches!(self.phase, Phase::Running(_)) {
            return;
        }
        if let Some(shared) = self.shared.upgrade() {
            shared.end(&format!("failed: {why}"));
        }
        self.end(context);
    }

    /// Follows the queue.
    fn look(&mut self, context: &mut Context<Manager>) {
        let (Phase::Running(_), Some(shared)) = (&self.phase, self.shared.upgrade()) else { return };
        let open = shared.ledger.lock().open();
        let needed = usize::try_from(open.div_ceil(self.plan.root.threads)).unwrap_or(usize::MAX);
        let needed = needed.clamp(*self.plan.bounds.start(), *self.plan.bounds.end());
        self.short_looks = if needed < self.wanted { self.short_looks + 1 } else { 0 };
        if needed > self.wanted || self.short_looks > LOOKS_BEFORE_SHRINKING {
            self.short_looks = 0;
            self.wanted = needed;
            self.note_wanted();
            self.adjust(context);
        }
    }

    fn end(&mut self, context: &mut Context<Manager>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Ending);
        match phase {
            Phase::New | Phase::Starting => {
                self.phase = Phase::Ended;
                self.answer();
            }
            Phase::Running(supervisor) => {
                let ended = async move { supervisor.shutdown().await };
                context.spawn(ended.into_actor(self).map(|_, manager, _| {
                    manager.phase = Phase::Ended;
                    manager.answer();
                }));
            }
            other => self.phase = other,
        }
        if matches!(self.phase, Phase::Ended) {
            self.answer();
        }
    }

    fn close(&mut self, context: &mut Context<Manager>) {
        let done = self.shared.upgrade().is_none_or(|shared| shared.ledger.lock().is_empty());
        if done {
            self.end(context);
            if let Some(shared) = self.shared.upgrade() {
                shared.end("has been closed and has ended");
            }
        }
    }
}

impl Handler<Request> for Manager {
    type Result = ();

    fn handle(&mut self, request: Request, context: &mut Context<Manager>) {
        match request {
            Request::Start(meta) => self.start_supervisor(meta, context),
            Request::Scale(count, noted) => {
                self.wanted = count;
                self.note_wanted();
                self.adjust(context);
                let _ = noted.send(());
            }
            Request::Retire(child) => {
                if let Phase::Running(supervisor) = &self.phase {
                    let supervisor = supervisor.clone();
                    context.spawn(async move { drop(supervisor.terminate(&child).await) }.into_actor(self));
                }
            }
            Request::FailedStart(problem) => self.failed_start(&problem, context),
            Request::Joined => self.failed_starts = 0,
            Request::Waits(child, words) => self.waits(child, words, context),
            Request::DiedUnused(end) => self.died_unused(&end, context),
            Request::Lived => self.died_unused = 0,
            Request::Close => self.close(context),
            Request::Join(done) => {
                self.waiting.push(done);
                self.close(context);
                if matches!(self.phase, Phase::Ended) {
                    self.answer();
                }
            }
            Request::Terminate(shared, done) => {
                self.waiting.extend(done);
                for worker in shared.ledger.lock().handles() {
                    let _ = worker.commands.send(Command::Kill(ExitReason::Shutdown));
                }
                self.end(context);
            }
        }
    }
}

/// Starts a worker's process, once for each incarnation.
struct WorkerStart {
    node: &'static Node,
    child: String,
    shared: Weak<Shared>,
    plan: Plan,
}

impl Start for WorkerStart {
    fn start(&mut self, context: ChildContext) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (node, child, shared, plan) = (self.node, self.child.clone(), self.shared.clone(), self.plan.clone());
        Box::pin(async move {
            let launched = launch(
                node,
                Launch {
                    name: context.path().to_string(),
                    restarts: context.restarts(),
                    meta: plan.meta,
                    output: plan.output,
                    errand: Errand::new(&plan.root),
                    patience: Some(Box::new(WorkerPatience { child: child.clone(), shared: shared.clone() })),
                },
            );
            let launched = launched.await.map_err(|exit| {
                let reason = exit.not_started();
                if let Some(shared) = shared.upgrade() {
                    shared.manager.do_send(Request::FailedStart(reason.obstacle()));
                }
                reason
            })?;
            let place = launched.place();
            let (commands, inbox) = mpsc::unbounded_channel();
            let worker = Arc::new(Worker {
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                child,
                link: Arc::clone(&launched.connection.link),
                commands: commands.clone(),
                ready_since: Instant::now(),
            });
            if let Some(shared) = shared.upgrade() {
                shared.join(Arc::clone(&worker), plan.root.threads, plan.quota);
            }
            let (exited, exit) = oneshot::channel();
            actix::spawn(async move {
                let receive = |message| {
                    if let Some(shared) = shared.upgrade() {
                        shared.receive(&worker, message);
                    }
                };
                let exit = attend(node, launched, inbox, receive).await;
                if let Some(shared) = shared.upgrade() {
                    shared.lost(&worker, &exit);
                }
                let _ = exited.send(exit.reason);
            });
            let exited = async { exit.await.unwrap_or(ExitReason::LinkLost("its attendant ended".into())) };
            Ok(Running::new(ProcessControl(commands), exited).place(place))
        })
    }
}

/// A worker waits for room as long as others are at work.
struct WorkerPatience {
    child: String,
    shared: Weak<Shared>,
}

impl Patience for WorkerPatience {
    fn waits(&self, words: Option<&str>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.manager.do_send(Request::Waits(self.child.clone(), words.map(str::to_string)));
        }
    }

    fn lasts(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.ready.borrow().ready > 0)
    }
}

impl Drop for WorkerPatience {
    /// It is at work, or it could not be started.
    fn drop(&mut self) {
        self.waits(None);
    }
}

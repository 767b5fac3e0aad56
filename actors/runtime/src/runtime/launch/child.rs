//! A child process: carries out what its [life](super::life) decides, with a job, a link and a
//! clock.

use std::convert::Infallible;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Buf;
use fiber_backends::JobState;
use fiber_core::{Exit, ExitReason};
use fiber_transport::{Connection, Link, Peer, PeerInfo, Received};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use super::life::{ChildLife, Effect, Event, Limits, LinkEnd, MessageKind, Surroundings};
use super::source::HostOfJob;
use super::waits::WaitsForRoom;
use super::{
    ExpectedChild, JobGuard, Launch, ProcessCommand, SchedulingPolicy, check_end, ended, prepare,
};
use crate::endpoint::{
    ALL_STAY, CONTROL, HeartbeatMonitor, LARGE_STAY, MAIN, MESH, SPANS, message_limit, or_never,
};
use crate::mesh::MeshPeer;
use crate::runtime::Runtime;
use crate::runtime::listen::ChildConnection;
use crate::runtime::protocol::ControlMessage;
use crate::runtime::telemetry;

/// A child at work, for its owner.
pub struct ReadyChild<'a> {
    /// The id of the child, and what it sent about its build and host when it connected.
    pub info: &'a PeerInfo,
    /// The link to the child.
    pub link: &'a Arc<dyn Link>,
    /// Where other processes can connect to it.
    pub address: Option<String>,
    /// Where it runs, for users: `pid 4711`.
    pub place: String,
    /// The number of the host in which it runs, if it shares a job.
    pub host: Option<u64>,
    /// Set when it is being lost, which takes a while: its link has ended, or it is killed.
    pub(crate) is_failing: &'a Arc<AtomicBool>,
}

/// The user of a child: a worker's pool, a function's handle, a managed actor, a ring, a host.
pub trait Owner: 'static {
    /// The child works. It is called at most once, before all messages.
    fn ready(&mut self, child: ReadyChild<'_>);

    /// The child's main has sent a message; a host, any message.
    fn message(&mut self, message: Received);

    /// Returns whether a message announces no other one, as a heartbeat does not.
    fn is_last(&self, _message: &Received) -> bool {
        false
    }

    /// The child has ended, or could not be started. Returns why, for its supervisor.
    fn ended(self, exit: Exit) -> impl Future<Output = ExitReason>
    where
        Self: Sized;
}

/// A child process with its owner, before its start.
pub struct ChildProcess<O> {
    /// The runtime of this process, the parent.
    pub runtime: &'static Runtime,
    /// The child's work, and where and how it starts.
    pub launch: Launch,
    /// Commands to the child, also while it starts. Dropping the sender leaves the child alone.
    pub commands: mpsc::UnboundedReceiver<ProcessCommand>,
    /// The receiver of the child's messages and of its end.
    pub owner: O,
}

impl<O: Owner> ChildProcess<O> {
    /// Starts the child, and follows it to its end in a task of its own.
    pub fn start(self) -> StartedChild {
        let (ready, is_ready) = oneshot::channel();
        let (ended, exited) = oneshot::channel();
        let (owned, unowned) = oneshot::channel();
        fiber_core::spawn_local(async move {
            let ChildProcess { runtime, launch, commands, mut owner } = self;
            let exit = follow(runtime, launch, commands, unowned, &mut owner, ready).await;
            let _ = ended.send(owner.ended(exit).await);
        });
        StartedChild { is_ready, exited, owned }
    }
}

/// A child that starts or works. It is killed if this is dropped before it is ready.
pub struct StartedChild {
    is_ready: oneshot::Receiver<String>,
    exited: oneshot::Receiver<ExitReason>,
    owned: oneshot::Sender<Infallible>,
}

impl StartedChild {
    /// Waits until the child is ready. Returns where it runs, and its end.
    ///
    /// # Errors
    /// Why it has ended before.
    pub async fn ready(
        self,
    ) -> Result<(String, impl Future<Output = ExitReason> + 'static), ExitReason> {
        let StartedChild { is_ready, exited, owned } = self;
        let place = is_ready.await;
        drop(owned);
        match place {
            Ok(place) => Ok((place, end_of(exited))),
            Err(_) => Err(end_of(exited).await),
        }
    }

    /// Waits for the child's end.
    pub async fn exited(self) -> ExitReason {
        let StartedChild { exited, owned: _owned, .. } = self;
        end_of(exited).await
    }
}

async fn end_of(exited: oneshot::Receiver<ExitReason>) -> ExitReason {
    exited.await.unwrap_or(ExitReason::LinkLost("fiber's thread ended".into()))
}

/// Starts a child, and follows it to its end.
async fn follow(
    runtime: &'static Runtime,
    launch: Launch,
    mut commands: mpsc::UnboundedReceiver<ProcessCommand>,
    mut unowned: oneshot::Receiver<Infallible>,
    owner: &mut dyn Owner,
    ready: oneshot::Sender<String>,
) -> Exit {
    let began = Instant::now();
    // Commands that need a child at work wait for it.
    let mut deferred = Vec::new();
    let prepared = {
        let mut preparing = pin!(prepare(runtime, launch));
        loop {
            tokio::select! {
                // A child that nobody wants any more gets no job.
                biased;
                Some(command) = commands.recv() => match command {
                    ProcessCommand::Kill(reason) => return Exit::new(reason, Vec::new()),
                    command => deferred.push(command),
                },
                _ = &mut unowned => return Exit::new(ExitReason::Shutdown, Vec::new()),
                prepared = &mut preparing => break prepared,
            }
        }
    };
    // The program may have come to its end meanwhile.
    let prepared = match prepared.and_then(|prepared| check_end(runtime).map(|()| prepared)) {
        Ok(prepared) => prepared,
        Err(exit) => return exit,
    };
    let Prepared { guard, host, max_lag, expected, start, scheduling } = prepared;
    let limits = Limits::new(runtime.config(), max_lag);
    let mut child = Child {
        runtime,
        began,
        guard,
        host,
        is_host_failing: None,
        is_failing: Arc::default(),
        linked: None,
        start: Some(start),
        scheduling,
        waits: None,
        ready: Some(ready),
        arrived: Arrived::default(),
    };
    let exit = child.live(limits, expected, deferred, &mut commands, &mut unowned, owner).await;
    if let Some(mut linked) = child.linked {
        linked.connection.link.close();
        linked.peer.lost(&exit.reason);
    }
    exit
}

/// A child whose job has been created, before its first event.
pub(super) struct Prepared {
    pub(super) guard: JobGuard,
    /// The host in which it runs, if it shares a job.
    pub(super) host: Option<HostOfJob>,
    /// By how much the ends of the process and of its link may differ.
    pub(super) max_lag: Duration,
    pub(super) expected: ExpectedChild,
    /// The message with its work.
    pub(super) start: ControlMessage,
    pub(super) scheduling: Option<Box<dyn SchedulingPolicy>>,
}

/// A child whose job has been created.
struct Child {
    runtime: &'static Runtime,
    began: Instant,
    guard: JobGuard,
    host: Option<HostOfJob>,
    /// Whether its host is failing; missed heartbeats then don't count.
    is_host_failing: Option<Arc<AtomicBool>>,
    is_failing: Arc<AtomicBool>,
    linked: Option<Linked>,
    /// The message with its work, until it is sent.
    start: Option<ControlMessage>,
    /// Ends with the start.
    scheduling: Option<Box<dyn SchedulingPolicy>>,
    waits: Option<WaitsForRoom>,
    ready: Option<oneshot::Sender<String>>,
    arrived: Arrived,
}

/// A child that has connected.
struct Linked {
    info: PeerInfo,
    connection: Connection,
    peer: MeshPeer,
    heartbeats: HeartbeatMonitor,
    is_open: bool,
}

/// The last arrival, until the life has decided what becomes of it.
#[derive(Default)]
struct Arrived {
    peer: Option<Peer>,
    message: Option<Received>,
    control: Option<ControlMessage>,
}

impl Surroundings for Child {
    fn accept_failure(&self) -> Option<String> {
        self.runtime.accept_failure_since(self.began)
    }

    fn is_host_failing(&self) -> bool {
        self.is_host_failing.as_ref().is_some_and(|failing| failing.load(Ordering::Acquire))
    }

    fn may_wait_longer(&self) -> bool {
        self.scheduling.as_deref().is_some_and(SchedulingPolicy::may_wait_longer)
    }
}

impl Child {
    /// Feeds the child's life with what happens, and carries out what it decides, until its end.
    async fn live(
        &mut self,
        limits: Limits,
        mut expected: ExpectedChild,
        deferred: Vec<ProcessCommand>,
        commands: &mut mpsc::UnboundedReceiver<ProcessCommand>,
        unowned: &mut oneshot::Receiver<Infallible>,
        owner: &mut dyn Owner,
    ) -> Exit {
        let runtime = self.runtime;
        let mut states = self.guard.job.states();
        let mut effects = Vec::new();
        let mut life = ChildLife::new(Instant::now(), limits);
        let known = states.borrow_and_update().clone();
        let mut has_exited = matches!(known, JobState::Ended(_));
        let mut waiting: Vec<_> =
            deferred.into_iter().map(Event::Command).chain([Event::Job(known)]).collect();
        let (mut is_commanded, mut is_owned) = (true, true);
        let mut refused = pin!(runtime.accept_failure_lasts());
        loop {
            for effect in effects.drain(..) {
                if let Effect::End(exit) = effect {
                    return exit;
                }
                self.carry_out(effect, owner);
            }
            let (connection, heartbeats) = match &mut self.linked {
                Some(linked) => {
                    (linked.is_open.then_some(&mut linked.connection), Some(&mut linked.heartbeats))
                }
                None => (None, None),
            };
            let until = life.deadline().map(tokio::time::Instant::from);
            let event = match waiting.pop() {
                Some(event) => event,
                None => tokio::select! {
                    biased;
                    message = or_never(connection.map(Connection::next)) => {
                        self.arrived(message, owner)
                    }
                    connection = &mut expected.connection, if life.awaits_connection() => {
                        self.connected(connection.ok())
                    }
                    changed = states.changed(), if !has_exited => {
                        let state = match changed {
                            Ok(()) => states.borrow_and_update().clone(),
                            Err(_) => JobState::Ended(ended(&mut states).await),
                        };
                        has_exited = matches!(state, JobState::Ended(_));
                        Event::Job(state)
                    }
                    command = commands.recv(), if is_commanded => match command {
                        Some(command) => Event::Command(command),
                        None => {
                            is_commanded = false;
                            continue;
                        }
                    },
                    _ = &mut *unowned, if is_owned => {
                        is_owned = false;
                        Event::Unowned
                    }
                    () = or_never(heartbeats.map(HeartbeatMonitor::lost)), if life.must_send() => {
                        Event::Silent
                    }
                    () = or_never(until.map(sleep_until)) => Event::Deadline,
                    problem = &mut refused, if life.awaits_connection() => {
                        refused.set(runtime.accept_failure_lasts());
                        Event::NotAccepted(problem)
                    }
                },
            };
            let was_silent = matches!(event, Event::Silent);
            life.handle(Instant::now(), event, &*self, &mut effects);
            if was_silent && let Some(linked) = &mut self.linked {
                linked.heartbeats.received();
            }
        }
    }

    /// Notes a connection, or that there will be none.
    fn connected(&mut self, connection: Option<ChildConnection>) -> Event {
        Event::Connected(match connection {
            None => Err("this process stopped waiting for it".into()),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(peer)) => {
                self.arrived.peer = Some(peer);
                Ok(())
            }
        })
    }

    /// Notes a message, or the end of the link.
    fn arrived(&mut self, message: Option<std::io::Result<Received>>, owner: &dyn Owner) -> Event {
        let Some(linked) = &mut self.linked else { unreachable!("there is no link to read") };
        linked.heartbeats.received();
        let message = match message {
            Some(Ok(message)) => message,
            end => {
                linked.is_open = false;
                return Event::LinkClosed(match end {
                    Some(Err(error)) if error.kind() == ErrorKind::InvalidData => {
                        LinkEnd::Unreadable(error.to_string())
                    }
                    Some(Err(error)) => LinkEnd::Closed(error.to_string()),
                    _ => LinkEnd::Closed("it was closed by the other side".into()),
                });
            }
        };
        self.arrived.control = None;
        let kind = match message.first() {
            Some(&MESH | &SPANS) => MessageKind::Aside,
            Some(&CONTROL) => {
                linked.connection.allow_sleep();
                let control = ControlMessage::read(&message);
                let kind = match &control {
                    Some(ControlMessage::Ready { .. }) => MessageKind::Ready,
                    Some(ControlMessage::Failed(problem)) => MessageKind::Failed(problem.clone()),
                    Some(_) => MessageKind::Control,
                    None => MessageKind::Main,
                };
                self.arrived.control = control;
                kind
            }
            _ => MessageKind::Main,
        };
        if owner.is_last(&message) {
            linked.connection.allow_sleep();
        }
        self.arrived.message = Some(message);
        Event::Message(kind)
    }

    fn carry_out(&mut self, effect: Effect, owner: &mut dyn Owner) {
        match effect {
            Effect::Unschedulable(reason) => {
                let runtime = self.runtime;
                let waits = || self.waits.take().unwrap_or_else(|| WaitsForRoom::new(runtime));
                self.waits = reason.is_some().then(waits);
                if let Some(scheduling) = &self.scheduling {
                    scheduling.set_unschedulable(reason.as_deref());
                }
            }
            Effect::Begin => self.begin(),
            Effect::Deliver => self.deliver(owner),
            Effect::Ready => self.get_ready(owner),
            Effect::Shutdown => self.send(&ControlMessage::Shutdown),
            Effect::Terminate => self.guard.job.terminate(),
            Effect::Kill => {
                if self.runtime.listening.serves_remote_children() {
                    self.send(&ControlMessage::Kill);
                }
                self.guard.job.kill();
            }
            Effect::Failing => self.is_failing.store(true, Ordering::Release),
            Effect::CloseLink => {
                if let Some(linked) = &self.linked {
                    linked.connection.link.close();
                }
            }
            Effect::Unconfirmed => tracing::error!(
                "{} was killed, but its end is not confirmed: going on without it",
                self.guard.job.place()
            ),
            Effect::End(_) => unreachable!("the loop returns it"),
        }
    }

    /// Sends a message to the child. If the link is closed by now, the next message says so.
    fn send(&self, message: &ControlMessage) {
        if let Some(linked) = &self.linked {
            let _ = linked.connection.link.send(message.message());
        }
    }

    /// Sends its work to a child that has connected.
    fn begin(&mut self) {
        let Some(Peer { info, mut connection }) = self.arrived.peer.take() else { return };
        let config = self.runtime.config();
        connection.incoming.set_limit(message_limit(config));
        let mut heartbeats = HeartbeatMonitor::new(config);
        if self.host.is_some() {
            heartbeats = heartbeats.after_host();
        }
        let peer = self.runtime.mesh.add_link(info.id, &connection.link);
        self.linked = Some(Linked { info, connection, peer, heartbeats, is_open: true });
        if let Some(start) = self.start.take() {
            self.send(&start);
        }
    }

    fn get_ready(&mut self, owner: &mut dyn Owner) {
        (self.scheduling, self.waits) = (None, None);
        let address = match self.arrived.control.take() {
            Some(ControlMessage::Ready { address }) => address,
            _ => None,
        };
        let Some(linked) = &self.linked else { return };
        let link = &linked.connection.link;
        self.runtime.children.connected(&linked.info, link);
        let host = self.host.as_ref().and_then(|host| host());
        let (host, is_host_failing) = host.unzip();
        self.is_host_failing = is_host_failing;
        let place = self.guard.job.place().to_string();
        owner.ready(ReadyChild {
            info: &linked.info,
            link,
            address,
            place: place.clone(),
            host,
            is_failing: &self.is_failing,
        });
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(place);
        }
    }

    fn deliver(&mut self, owner: &mut dyn Owner) {
        if let Some(control) = self.arrived.control.take() {
            let parts = self.runtime.parts();
            return self.runtime.children.receive(parts, self.guard.id, control);
        }
        let (Some(mut message), Some(linked)) = (self.arrived.message.take(), &mut self.linked)
        else {
            return;
        };
        match message.first() {
            Some(&MAIN | &LARGE_STAY | &ALL_STAY) => {
                message.bytes.advance(1);
                owner.message(message);
            }
            Some(&MESH) => linked.peer.receive(message),
            Some(&SPANS) => telemetry::receive(message.bytes.slice(1..)),
            _ => {}
        }
    }
}

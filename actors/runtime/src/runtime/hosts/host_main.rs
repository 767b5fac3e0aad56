//! The work of a host: starts processes beside itself, and passes messages between them and their
//! parent.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::{Arc, mpsc as std_mpsc};

use fiber_backends::{Job, JobSpec, Room, gpu_count};
use fiber_core::{Error, Exit, ExitReason, ProcessId, Signals};
use fiber_transport::{Connection, Link, Message, Peer, Received};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::kept_blobs::KeptBlobs;
use super::shared::{Key, into_shared, to_keep};
use super::stays;
use super::wire::{self, Arrived, FromHost, HostedProcess, Number, ToHost};
use crate::endpoint::{CONTROL, message_limit, or_never};
use crate::runtime::launch::{MAX_LAG, create, ended, not_started};
use crate::runtime::listen::{ChildConnection, expect_child};
use crate::runtime::parent_info::{ChildPlace, ParentInfo};
use crate::runtime::{ChildMain, ControlMessage, ParentMessage, Runtime, StartedMain};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// See the module's documentation.
#[derive(Serialize, Deserialize)]
pub(super) struct HostMain {
    /// Whether its processes are threads: see `simulated`.
    pub(super) simulates: bool,
}

impl ChildMain for HostMain {
    fn start(self, runtime: &'static Runtime, link: Arc<dyn Link>) -> StartedMain {
        let (end, ended) = std_mpsc::channel();
        let host = Rc::new(Host {
            runtime,
            parent: Arc::clone(&link),
            processes: RefCell::default(),
            kept: RefCell::default(),
            kept_blobs: Arc::default(),
            relayed: Notify::new(),
            terminating: Cell::new(false),
            simulates: self.simulates,
            end,
        });
        fiber_core::spawn_local(Rc::clone(&host).forward_sigterm());
        fiber_core::spawn_local(Rc::clone(&host).flush_relayed());
        let kept = Arc::clone(&host.kept_blobs);
        let receive = move |message| host.receive(message);
        let run = move || {
            let _ = link.send(ControlMessage::Ready { address: None }.message());
            let _ = link.send(wire::command(&FromHost::Room(own_room(runtime))));
            runtime.spawn(move || stays::open_door(runtime, kept, link));
            // The channel is open as long as the runtime's thread.
            let _ = ended.recv();
            0
        };
        StartedMain { receive: Box::new(receive), run: Box::new(run) }
    }
}

/// Returns the room of this machine, as far as this process may use it.
fn own_room(runtime: &Runtime) -> Room {
    let cpu = std::thread::available_parallelism().map_or(1, NonZero::get);
    Room { cpu: cpu as f64, memory: None, gpu: gpu_count(runtime.config()) }
}

/// The state of a host, on the runtime's thread.
struct Host {
    runtime: &'static Runtime,
    parent: Arc<dyn Link>,
    processes: RefCell<HashMap<Number, Hosted>>,
    /// The messages that this host keeps for its processes.
    kept: RefCell<HashMap<Key, Received>>,
    kept_blobs: Arc<Mutex<KeptBlobs>>,
    /// Whether there are relayed messages to send.
    relayed: Notify,
    /// Whether SIGTERM asked this host to end.
    terminating: Cell<bool>,
    #[cfg_attr(not(feature = "simulation"), expect(dead_code, reason = "nothing is simulated"))]
    simulates: bool,
    /// Ends the main thread.
    end: std_mpsc::Sender<()>,
}

/// A process in this host.
struct Hosted {
    commands: mpsc::UnboundedSender<Command>,
    /// The link to it, once it has connected.
    link: Option<Arc<dyn Link>>,
}

/// A request of the parent about a process.
#[derive(Clone, Copy)]
enum Command {
    Terminate,
    Kill,
}

impl Host {
    fn receive(self: &Rc<Self>, message: ParentMessage) {
        let message = match message {
            ParentMessage::Shutdown => {
                let _ = self.end.send(());
                return;
            }
            ParentMessage::Data(message) => message,
        };
        match wire::read(message) {
            Some(Arrived::Relayed(number, Received { bytes, blobs })) => {
                // The process maps them then, and no socket has to carry them.
                let blobs = into_shared(&blobs);
                self.pass_on(number, Received { bytes, blobs });
            }
            Some(Arrived::WithBlobs { number, travels, message }) => {
                let blobs = self.kept_blobs.lock().arrive(&travels, &message.blobs);
                match blobs {
                    Some(blobs) => self.pass_on(number, Received { blobs, ..message }),
                    None => tracing::error!("a blob that this host does not keep was wanted"),
                }
            }
            Some(Arrived::Command(ToHost::DropBlob(key))) => {
                self.kept_blobs.lock().drop_one(key);
                self.end_if_idle();
            }
            Some(Arrived::Command(ToHost::FetchBlob(key))) => {
                let blob = self.kept_blobs.lock().get(key);
                let _ = self.parent.send(wire::blob(key, blob));
            }
            Some(Arrived::Command(ToHost::CopyBlobs { door, blobs })) => {
                let (kept, parent) = (Arc::clone(&self.kept_blobs), Arc::clone(&self.parent));
                stays::get(self.runtime, kept, &door, blobs, move |copied| {
                    let _ = parent.send(wire::command(&copied));
                });
            }
            Some(Arrived::Shared { number, key, message }) => {
                let message = to_keep(message);
                self.kept.borrow_mut().insert(key, message.clone());
                self.pass_on(number, message);
            }
            Some(Arrived::Command(ToHost::SendKept { number, key })) => {
                match self.kept.borrow().get(&key).cloned() {
                    Some(message) => self.pass_on(number, message),
                    None => tracing::error!("a message that this host does not keep was wanted"),
                }
            }
            Some(Arrived::Command(ToHost::DropKept(keys))) => {
                let mut kept = self.kept.borrow_mut();
                keys.iter().for_each(|key| drop(kept.remove(key)));
            }
            Some(Arrived::Command(ToHost::Start(process))) => self.start(*process),
            Some(Arrived::Command(ToHost::Terminate(number))) => {
                self.command(number, Command::Terminate);
            }
            Some(Arrived::Command(ToHost::Kill(number))) => self.command(number, Command::Kill),
            Some(Arrived::Command(ToHost::Close(number))) => {
                if let Some(process) = self.processes.borrow_mut().get_mut(&number)
                    && let Some(link) = process.link.take()
                {
                    link.close();
                }
            }
            Some(Arrived::Blob(..)) | None => {
                tracing::error!("ignored an invalid message to this host");
            }
        }
    }

    /// Passes a message on to a process, or to each of several.
    fn pass_on(&self, number: Number, mut message: Received) {
        if number != wire::EACH {
            return self.pass_to(number, Vec::new(), message);
        }
        match wire::take_heads(&mut message.bytes) {
            Some(heads) => heads
                .into_iter()
                .for_each(|(number, head)| self.pass_to(number, head.to_vec(), message.clone())),
            None => tracing::error!("ignored an invalid message to several processes"),
        }
    }

    fn pass_to(&self, number: Number, head: Vec<u8>, Received { bytes: body, blobs }: Received) {
        if let Some(Hosted { link: Some(link), .. }) = self.processes.borrow().get(&number) {
            // If it is gone, its parent hears of that.
            let _ = link.send(Message { head, body, blobs });
        }
    }

    fn command(&self, number: Number, command: Command) {
        if let Some(process) = self.processes.borrow().get(&number) {
            let _ = process.commands.send(command);
        }
    }

    fn send(&self, message: &FromHost) {
        // If the link is closed, this process is about to end.
        let _ = self.parent.send(wire::command(message));
    }

    /// Passes SIGTERM on, and ends with the last process.
    async fn forward_sigterm(self: Rc<Self>) {
        let mut signals = match Signals::listen_for_sigterm() {
            Ok(signals) => signals,
            Err(error) => {
                return tracing::warn!("SIGTERM can't be handled, and ends this host: {error}");
            }
        };
        signals.next().await;
        self.terminating.set(true);
        // First: the parent starts their successors elsewhere.
        self.send(&FromHost::Terminating);
        let numbers: Vec<Number> = self.processes.borrow().keys().copied().collect();
        numbers.into_iter().for_each(|number| self.command(number, Command::Terminate));
        self.end_if_idle();
    }

    fn end_if_idle(&self) {
        let is_idle = self.processes.borrow().is_empty() && !self.kept_blobs.lock().has_staying();
        if self.terminating.get() && is_idle {
            let _ = self.end.send(());
        }
    }

    fn start(self: &Rc<Self>, process: HostedProcess) {
        let (commands, inbox) = mpsc::unbounded_channel();
        let number = process.number;
        if self.terminating.get() {
            // It was on its way when the others got theirs.
            let _ = commands.send(Command::Terminate);
        }
        self.processes.borrow_mut().insert(number, Hosted { commands, link: None });
        let host = Rc::clone(self);
        fiber_core::spawn_local(async move {
            let exit = host.run(process, inbox).await;
            host.processes.borrow_mut().remove(&number);
            host.send(&FromHost::Ended { number, exit });
            host.end_if_idle();
        });
    }

    /// Runs a process to its end, and passes its messages on.
    async fn run(
        &self,
        process: HostedProcess,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) -> Exit {
        let runtime = self.runtime;
        let HostedProcess { number, id, .. } = process;
        let spec = match self.job_spec(&process).await {
            Ok(spec) => spec,
            Err(error) => return not_started(error.to_string()),
        };
        let mut expected = expect_child(id);
        let mut is_expected = true;
        let created = tokio::select! {
            biased;
            created = self.create(id, spec, process.retry_creation) => created,
            command = commands.recv() => Err(Exit::new(ended_by(command), Vec::new())),
        };
        let job = match created {
            Ok(job) => job,
            Err(exit) => return exit,
        };
        runtime.jobs.insert(id, Arc::clone(&job));
        self.send(&FromHost::Running { number, place: job.place() });
        let mut states = job.states();
        let mut connection: Option<Connection> = None;
        let exit = loop {
            tokio::select! {
                biased;
                message = or_never(connection.as_mut().map(Connection::next)) => match message {
                    Some(Ok(message)) => {
                        if message.first() == Some(&CONTROL)
                            && let Some(connection) = &mut connection
                        {
                            connection.allow_sleep();
                        }
                        self.relay(number, message);
                    }
                    end => {
                        self.closed(number, end.and_then(Result::err));
                        connection = None;
                    }
                },
                Some(command) = commands.recv() => match command {
                    Command::Terminate => job.terminate(),
                    Command::Kill => job.kill(),
                },
                peer = &mut expected.connection, if is_expected => {
                    is_expected = false;
                    connection = peer.ok().and_then(|peer| self.connected(number, peer));
                }
                exit = ended(&mut states) => break exit,
            }
        };
        drop(expected);
        // Messages from before the end count.
        while let Some(open) = &mut connection {
            match timeout(MAX_LAG, open.next()).await {
                Ok(Some(Ok(message))) => self.relay(number, message),
                _ => connection = None,
            }
        }
        runtime.jobs.remove(&id);
        exit
    }

    async fn create(
        &self,
        _id: ProcessId,
        spec: JobSpec,
        retry: bool,
    ) -> Result<Arc<dyn Job>, Exit> {
        #[cfg(feature = "simulation")]
        if self.simulates {
            return Ok(super::simulated::start(self.runtime, _id));
        }
        create(self.runtime, spec, retry).await
    }

    /// Makes the job of a process beside this one.
    async fn job_spec(&self, process: &HostedProcess) -> Result<JobSpec, Error> {
        let runtime = self.runtime;
        let address = runtime.listen().await?;
        let info = ParentInfo {
            id: process.id,
            parent: process.parent,
            parent_pid: Some(std::process::id().cast_signed()),
            listener: runtime.id(),
            place: runtime.interface.map_or(ChildPlace::Alone, ChildPlace::InHost),
            address: address.link.clone(),
        };
        Ok(JobSpec {
            restarts: process.restarts,
            meta: process.meta,
            output: process.output.into(),
            ..info.job_spec(runtime, process.name.clone())
        })
    }

    /// Takes the link of a process that has connected.
    fn connected(&self, number: Number, peer: ChildConnection) -> Option<Connection> {
        let (peer, connection) = match peer {
            Ok(Peer { info, mut connection }) => {
                connection.incoming.set_limit(message_limit(self.runtime.config()));
                if let Some(process) = self.processes.borrow_mut().get_mut(&number) {
                    process.link = Some(Arc::clone(&connection.link));
                }
                (Ok(info), Some(connection))
            }
            Err(error) => (Err(error.to_string()), None),
        };
        self.send(&FromHost::Connected { number, peer });
        connection
    }

    fn relay(&self, number: Number, Received { bytes, blobs }: Received) {
        let (head, blobs) = if blobs.is_empty() || self.parent.lends_memory() {
            (wire::relay_head(number, 0), blobs)
        } else {
            let channel = bytes.first().copied();
            let (travels, blobs) = self.kept_blobs.lock().leave(&blobs, channel);
            (wire::blobs_head(number, &travels, 0), blobs)
        };
        let _ = self.parent.send_later(Message { head, body: bytes, blobs });
        self.relayed.notify_one();
    }

    /// Sends all messages that processes had for the parent at the same time with one write: this
    /// task runs after those that relay them.
    async fn flush_relayed(self: Rc<Self>) {
        loop {
            self.relayed.notified().await;
            self.parent.flush();
        }
    }

    fn closed(&self, number: Number, error: Option<std::io::Error>) {
        if let Some(process) = self.processes.borrow_mut().get_mut(&number) {
            process.link = None;
        }
        let problem = error.map(|error| error.to_string());
        self.send(&FromHost::Closed { number, problem });
    }
}

/// Returns the reason of a process that a command ends before it exists.
fn ended_by(command: Option<Command>) -> ExitReason {
    match command {
        Some(Command::Terminate) => ExitReason::Signal(SIGTERM),
        Some(Command::Kill) | None => ExitReason::Signal(SIGKILL),
    }
}

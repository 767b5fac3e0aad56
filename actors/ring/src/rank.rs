//! The process of a rank.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fiber_core::at_exit::flush_output;
use fiber_core::{Error, RankActivity, Result, block_on, shortage, wait_for_kill};
use fiber_transport::shared_memory::StreamListener;
use fiber_transport::{Link, Peer, Role, is_near};
use fiber_values::codec;
use fiber_values::codec::EncodedValue;
use fiber_values::entry::{Entry, EntryRef, MethodFn};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::confirmed::ConfirmedCheckpoints;
use super::node::{Checkpoints, RingNode};
use super::rendezvous::ReservedPort;
use super::streams::{LinkReader, RankShared, RankStreams, StreamReader, Wakeup};
use super::task::RankTask;
use super::wire::{CoordinatorMessage, RankAddress, RankMessage, StreamError};
use fiber_runtime::mesh::ProcessRef;
use fiber_runtime::runtime::{ChildMain, ControlMessage, ParentMessage, Runtime, StartedMain};
use fiber_supervisor::process::Initializer;

/// The exit code of a process whose function failed.
const EXIT_FAILED: i32 = 1;

/// The start message of a rank's process. The function's arguments and the rank's checkpoint are
/// messages of their own, because they may be large.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct RingMain {
    pub(super) entry: EntryRef,
    pub(super) ring: String,
    pub(super) rank: u64,
    pub(super) initializer: Option<Initializer>,
    pub(super) timeout: Duration,
    /// The folder of the journal of a durable ring: the coordinator confirms that checkpoints are
    /// recorded.
    pub(super) journal: Option<String>,
}

/// The messages from fiber's thread to the main thread. `None` says that the process is to end.
type Messages = mpsc::UnboundedReceiver<Option<CoordinatorMessage>>;

impl ChildMain for RingMain {
    fn start(self, runtime: &'static Runtime, link: Arc<dyn Link>) -> StartedMain {
        let (sender, messages) = mpsc::unbounded_channel();
        let prepared: Arc<OnceLock<Arc<RankShared>>> = Arc::default();
        let (rank, coordinator) = (Arc::clone(&prepared), Arc::clone(&link));
        let receive = move |inbound| {
            let message = match inbound {
                ParentMessage::Shutdown => None,
                ParentMessage::Data(message) => match CoordinatorMessage::decode(message.into()) {
                    Some(CoordinatorMessage::QueryActivity) => {
                        // The main thread may be busy in the function.
                        let activity = rank.get().map(|rank| rank.activity.lock().clone());
                        let activity = RankMessage::Activity(activity.unwrap_or_default());
                        let _ = coordinator.send(activity.encode());
                        return;
                    }
                    Some(CoordinatorMessage::CheckpointRecorded(number)) => {
                        if let Some(rank) = rank.get() {
                            rank.confirmed.set(number);
                        }
                        return;
                    }
                    Some(message) => Some(message),
                    None => return tracing::error!("ignored an invalid message of the ring"),
                },
            };
            let _ = sender.send(message);
        };
        let run = move || match Rank::prepare(runtime, self, &link, &prepared) {
            Ok(rank) => rank.run(&link, messages),
            Err(problem) => {
                let _ = link.send(ControlMessage::Failed(problem).message());
                // The parent kills this process when it has read the message.
                wait_for_kill()
            }
        };
        StartedMain { receive: Box::new(receive), run: Box::new(run) }
    }
}

/// A rank that other ranks can reach.
struct Rank {
    runtime: &'static Runtime,
    main: RingMain,
    entry: &'static Entry<MethodFn>,
    shared: Arc<RankShared>,
    address: RankAddress,
    _reserved: Option<ReservedPort>,
}

impl Rank {
    fn prepare(
        runtime: &'static Runtime,
        mut main: RingMain,
        coordinator: &Arc<dyn Link>,
        prepared: &OnceLock<Arc<RankShared>>,
    ) -> Result<Rank, String> {
        let text = |error: Error| error.to_string();
        let entry = main.entry.resolve::<MethodFn>().map_err(text)?;
        main.initializer.take().map_or(Ok(()), Initializer::run)?;
        let address = runtime.address_now().map_err(text)?;
        // Without a Unix socket, other ranks can't know that they share this machine.
        let shares_memory = is_near(address);
        let wakeup = Wakeup::new(shares_memory).map_err(|error| {
            format!("creating an eventfd failed: {}", shortage::explain(&error))
        })?;
        let shared = Arc::new(RankShared {
            wakeup: Arc::new(wakeup),
            opened: Mutex::default(),
            activity: Mutex::default(),
            confirmed: ConfirmedCheckpoints::default(),
        });
        let _ = prepared.set(Arc::clone(&shared));
        let accepting = Arc::clone(&shared);
        runtime.on_peer(Role::Ring, move |peer| accept_link(&accepting, peer));
        let streams = shares_memory
            .then(|| listen_for_streams(runtime, &shared, coordinator))
            .transpose()
            .map_err(|error| shortage::explain(&error))?;
        let reserved = (main.rank == 0).then(ReservedPort::new).transpose().map_err(text)?;
        let port = reserved.as_ref().map(|reserved| reserved.port);
        let process = ProcessRef { id: runtime.id(), address: address.into() };
        let address = RankAddress { process, streams, port };
        Ok(Rank { runtime, main, entry, shared, address, _reserved: reserved })
    }

    /// Runs the function, and returns the process's exit code.
    fn run(self, link: &Arc<dyn Link>, mut messages: Messages) -> i32 {
        let mut next = || block_on(async { Ok(messages.recv().await.flatten()) }).ok().flatten();
        let address = Some(self.address.process.address.to_string());
        let _ = link.send(ControlMessage::Ready { address }.message());
        let _ = link.send(RankMessage::Joined(self.address.clone()).encode());
        let (mut arguments, mut checkpoint) = (EncodedValue::default(), None);
        let addresses = loop {
            match next() {
                Some(CoordinatorMessage::Arguments(encoded)) => arguments = encoded,
                Some(CoordinatorMessage::Checkpoint(number, state)) => {
                    checkpoint = Some((number, state));
                }
                Some(CoordinatorMessage::Start(addresses)) => break addresses,
                Some(
                    CoordinatorMessage::QueryActivity | CoordinatorMessage::CheckpointRecorded(_),
                ) => {}
                None => return 0,
            }
        };
        let RingMain { ring, rank, timeout, journal, .. } = self.main;
        let shared = Arc::clone(&self.shared);
        let streams = RankStreams::new(self.runtime, rank as usize, addresses, shared, timeout);
        let max_message = self.runtime.config().max_message.as_u64();
        let shared = Arc::clone(&self.shared);
        let checkpoints = Checkpoints::new(checkpoint, journal, &shared.confirmed);
        let node = RingNode::new(streams, Arc::clone(link), ring, max_message, checkpoints, shared);
        let outcome = RankTask::new(node, arguments, max_message).run(self.entry);
        // The coordinator may end this process as soon as it has the outcome.
        flush_output();
        *self.shared.activity.lock() = RankActivity::Returned;
        let (message, code) = match outcome {
            Ok(value) => (RankMessage::Value(value), 0),
            Err(failure) => {
                let failure = codec::encode(&failure).expect("a failure serializes");
                (RankMessage::Failure(failure.into()), EXIT_FAILED)
            }
        };
        let _ = link.send(message.encode());
        // Other ranks may still receive what this one has sent, so it stays until all have
        // returned.
        while next().is_some() {}
        code
    }
}

/// Accepts a connection on which another rank sends.
fn accept_link(rank: &Arc<RankShared>, peer: Peer) {
    let rank = Arc::clone(rank);
    let wakeup = Arc::clone(&rank.wakeup);
    let opened = move |from, reader| rank.opened.lock().push((from, StreamReader::Link(reader)));
    fiber_core::spawn_local(LinkReader::receive(peer, wakeup, opened));
}

/// Accepts shared-memory streams from other ranks on the runtime's thread. Returns the address of
/// their socket.
fn listen_for_streams(
    runtime: &'static Runtime,
    shared: &Arc<RankShared>,
    coordinator: &Arc<dyn Link>,
) -> std::io::Result<String> {
    let (shared, coordinator) = (Arc::clone(shared), Arc::clone(coordinator));
    let (done, bound) = oneshot::channel();
    runtime.spawn(move || async move {
        let mut listener = match StreamListener::bind() {
            Ok(listener) => listener,
            Err(error) => return drop(done.send(Err(error))),
        };
        let _ = done.send(Ok(listener.address().to_string()));
        loop {
            match listener.accept(runtime.key()).await {
                Ok((greeting, reader)) => {
                    let Ok(rank) = greeting.try_into().map(u64::from_le_bytes) else { continue };
                    shared.opened.lock().push((rank as usize, StreamReader::shared(reader)));
                    shared.wakeup.notify();
                }
                Err(error) => {
                    let problem = shortage::explain(&error);
                    tracing::error!("accepting a stream of another rank failed: {problem}");
                    let error = StreamError::NotAccepted(problem);
                    let _ = coordinator.send(RankMessage::Error(error).encode());
                }
            }
        }
    });
    let bound = block_on(async { Ok(bound.await) }).map_err(std::io::Error::other)?;
    bound.unwrap_or_else(|_| Err(std::io::Error::other("fiber's thread ended")))
}

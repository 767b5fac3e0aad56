//! This process as an end of links: its ids in the session, how it connects to other processes,
//! and how it detects that they are gone.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::ArbiterHandle;
use fiber_core::{BuildId, Config, ProcessId, Relay, SessionKey, host_name, shortage};
use fiber_transport::{
    Connection, HandshakeError, Link, Message, Pass, PeerInfo, Role, connect, join_session,
};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};

use crate::parts::Parts;

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Time limit for connecting and the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The pauses before a child connects to its parent again, if the connection was cut.
const RETRY_PAUSES: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// The channels of a link; the first byte of a message names its channel.
pub(crate) const CONTROL: u8 = 0;
/// The channel of a child's main.
pub const MAIN: u8 = 1;
/// The channel of actors and shared objects.
pub(crate) const MESH: u8 = 2;
/// The channel of spans, from a child to its parent.
pub(crate) const SPANS: u8 = 3;
/// The channel of a child's main for messages whose large blobs may stay in the child's host.
pub const LARGE_STAY: u8 = 4;
/// The channel of a child's main for messages whose blobs may all stay in the child's host.
pub const ALL_STAY: u8 = 5;

/// The background thread, as other threads reach it.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeThread {
    /// For actors. A thread that ends can't use it: see [`Relay`].
    pub(crate) arbiter: ArbiterHandle,
    /// The number of its actix system.
    pub(crate) system: usize,
    pub(crate) relay: Arc<Relay>,
}

/// The data that the runtime and its mesh share.
pub(crate) struct Endpoint {
    /// The values that modules keep for the session.
    pub(crate) parts: &'static Parts,
    pub(crate) id: ProcessId,
    pub(crate) config: Config,
    pub(crate) key: SessionKey,
    /// The number that identifies the session.
    pub(crate) session: u64,
    /// The thread of the links.
    pub(crate) thread: RuntimeThread,
}

impl Endpoint {
    pub(crate) fn new(
        parts: &'static Parts,
        id: ProcessId,
        config: Config,
        key: SessionKey,
        thread: RuntimeThread,
    ) -> &'static Endpoint {
        let session = key.session();
        Box::leak(Box::new(Endpoint { parts, id, config, key, session, thread }))
    }

    /// Runs a future on the thread of the links.
    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        future: impl FnOnce() -> F + Send + 'static,
    ) {
        self.spawn_boxed(Box::new(move || Box::pin(future())));
    }

    fn spawn_boxed(&self, future: Box<dyn FnOnce() -> LocalFuture + Send>) {
        self.thread.relay.run(Box::new(move || drop(fiber_core::spawn_local(future()))));
    }
}

/// Connects the process `own` to the process `to`, in a role. With the session's key, if the
/// process has a ticket.
///
/// # Errors
/// A message that says why there is no connection; `None` if the other process does not wait for a
/// child with this ticket.
pub(crate) async fn connect_to(
    address: &str,
    pass: &Pass,
    own: ProcessId,
    to: ProcessId,
    role: Role,
) -> Result<(Connection, Option<SessionKey>), Option<String>> {
    let build = BuildId::current().map_err(|error| Some(error.to_string()))?.clone();
    let info = PeerInfo { id: own, to, role, build, pid: std::process::id(), host: host_name() };
    let attempt = || async {
        let mut connection = connect(address, pass.clone()).await?;
        let key = join_session(&mut connection, pass.clone(), &info).await?;
        Ok((connection, key))
    };
    // A child without its parent is lost. Other peers connect again when they need to.
    let retries = if role == Role::Child { RETRY_PAUSES.len() } else { 0 };
    let attempts = async {
        for pause in &RETRY_PAUSES[..retries] {
            match attempt().await {
                Err(HandshakeError::Io(error)) if was_cut(&error) => sleep(*pause).await,
                outcome => return outcome,
            }
        }
        attempt().await
    };
    match timeout(HANDSHAKE_TIMEOUT, attempts).await {
        Ok(outcome) => outcome.map_err(|error: HandshakeError| match error {
            HandshakeError::Ticket => None,
            HandshakeError::Io(error) if !was_cut(&error) => Some(shortage::explain(&error)),
            other => Some(other.to_string()),
        }),
        Err(_) => Err(Some(format!(
            "no answer within {HANDSHAKE_TIMEOUT:?}: it may be short of files, or the network \
             between may fail or deny it (a firewall, a NetworkPolicy)"
        ))),
    }
}

/// Waits for a future, if there is one, and else for ever.
pub(crate) async fn or_never<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Returns whether a connection was cut: by the network, or because the other end had to make room
/// for other connections.
fn was_cut(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    )
}

/// Returns the maximum size of a message in bytes: that of a value, with room for its header.
pub fn message_limit(config: &Config) -> usize {
    config.max_message.as_u64() as usize + (64 << 10)
}

/// Sends heartbeats at regular intervals until the link closes.
pub(crate) async fn send_heartbeats(
    link: Arc<dyn Link>,
    every: Duration,
    heartbeat: impl Fn() -> Message,
) {
    let mut ticks = interval(every);
    while link.send(heartbeat()).is_ok() {
        ticks.tick().await;
    }
}

/// How many more intervals a hosted process may be silent than its host.
const HOST_FIRST: u128 = 3;

/// Detects that another process sends no heartbeats any more.
pub(crate) struct HeartbeatMonitor {
    ticks: Interval,
    silent_ticks: u128,
    allowed: u128,
}

impl HeartbeatMonitor {
    pub(crate) fn new(config: &Config) -> HeartbeatMonitor {
        let mut ticks = interval(config.heartbeat);
        // A late tick counts once: if this process was stopped, the other one may still be alive.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let allowed =
            config.heartbeat_timeout.as_millis().div_ceil(config.heartbeat.as_millis().max(1));
        HeartbeatMonitor { ticks, silent_ticks: 0, allowed }
    }

    /// Lets the other process be silent for longer, so that the loss of its host is found first.
    pub(crate) fn after_host(mut self) -> HeartbeatMonitor {
        self.allowed += HOST_FIRST;
        self
    }

    /// Resets the monitor, as a message has come.
    pub(crate) fn received(&mut self) {
        self.silent_ticks = 0;
    }

    /// Returns when there was no message for longer than `heartbeat_timeout`.
    pub(crate) async fn lost(&mut self) {
        while self.silent_ticks <= self.allowed {
            self.ticks.tick().await;
            self.silent_ticks += 1;
        }
    }
}

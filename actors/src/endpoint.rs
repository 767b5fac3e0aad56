//! This process as an end of links: who it is in its session, how it calls other nodes, and how it
//! knows that they live.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use actix_rt::ArbiterHandle;
use fiber_core::{BuildId, Config, ProcessId, SessionKey, shortage};
use fiber_transport::{
    Connection, HandshakeError, Link, Message, PeerInfo, Role, connect, join_session,
};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};

/// How long a peer may take to show who it is.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The pauses before a child tries again to connect_to its parent, when the connection was cut.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// What the first byte of a message says: who it is for.
pub(crate) const CONTROL: u8 = 0;
/// For what runs at the root of the child, or from there.
pub(crate) const MAIN: u8 = 1;
/// For the actors of a node, or from there.
pub(crate) const MESH: u8 = 2;

/// What the node and its mesh have in common.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) id: ProcessId,
    pub(crate) config: Config,
    pub(crate) key: SessionKey,
    /// Tells this session from others.
    pub(crate) session: u64,
    /// The thread that serves the links.
    pub(crate) arbiter: ArbiterHandle,
}

impl Endpoint {
    pub(crate) fn new(
        id: ProcessId,
        config: Config,
        key: SessionKey,
        arbiter: ArbiterHandle,
    ) -> &'static Endpoint {
        let session = key.session();
        Box::leak(Box::new(Endpoint { id, config, key, session, arbiter }))
    }

    /// Runs a future on the thread of the links.
    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        future: impl FnOnce() -> F + Send + 'static,
    ) {
        self.arbiter.spawn_fn(move || drop(tokio::task::spawn_local(future())));
    }
}

/// Connects node `own` to another, as what it is to that one.
pub(crate) async fn connect_to(
    address: &str,
    key: &SessionKey,
    own: ProcessId,
    to: ProcessId,
    role: Role,
) -> Result<Connection, String> {
    let build = BuildId::current().map_err(|error| error.to_string())?.clone();
    let info = PeerInfo { id: own, to, role, build, pid: std::process::id(), host: host_name() };
    let attempt = || async {
        let mut connection = connect(address, key).await?;
        join_session(&mut connection, key, &info).await?;
        Ok(connection)
    };
    // A child is lost if it does not connect_to its parent. Others are called again by those who need
    // them.
    let attempts = if role == Role::Child { PAUSES.len() } else { 0 };
    let meeting = async {
        for pause in &PAUSES[..attempts] {
            match attempt().await {
                Err(HandshakeError::Io(error)) if was_cut(&error) => sleep(*pause).await,
                met => return met,
            }
        }
        attempt().await
    };
    match timeout(HANDSHAKE, meeting).await {
        Ok(met) => met.map_err(|error: HandshakeError| match error {
            HandshakeError::Io(error) if !was_cut(&error) => shortage::explain(&error),
            other => other.to_string(),
        }),
        Err(_) => Err(format!(
            "no answer within {HANDSHAKE:?}: it may be short of files, or the network between may fail"
        )),
    }
}

/// Whether a connection was there and was cut: by the network, or because others wanted its place
/// at the other end.
fn was_cut(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    )
}

/// The name of this host.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The longest message that nodes accept from each other: the largest value, and what tells what it
/// is.
pub(crate) fn message_limit(config: &Config) -> usize {
    config.max_message.as_u64() as usize + (64 << 10)
}

/// Says something at regular times, until the link closes.
pub(crate) async fn send_heartbeats(
    link: Arc<dyn Link>,
    every: Duration,
    sign: impl Fn() -> Message,
) {
    let mut beat = interval(every);
    while link.send(sign()).is_ok() {
        beat.tick().await;
    }
}

/// Counts the signs of life of another node against time.
pub(crate) struct HeartbeatMonitor {
    beat: Interval,
    silent_beats: u128,
    allowed: u128,
}

impl HeartbeatMonitor {
    pub(crate) fn new(config: &Config) -> HeartbeatMonitor {
        let mut beat = interval(config.heartbeat);
        // A tick that comes late counts once: if this process stood still, that is not the other's
        // fault.
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let allowed =
            config.heartbeat_timeout.as_millis().div_ceil(config.heartbeat.as_millis().max(1));
        HeartbeatMonitor { beat, silent_beats: 0, allowed }
    }

    pub(crate) fn received(&mut self) {
        self.silent_beats = 0;
    }

    /// Returns when it has been silent for too long.
    pub(crate) async fn lost(&mut self) {
        while self.silent_beats <= self.allowed {
            self.beat.tick().await;
            self.silent_beats += 1;
        }
    }
}

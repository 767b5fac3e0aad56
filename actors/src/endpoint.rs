//! This process as an end of links: who it is in its session, how it calls other nodes, and how it knows that they live.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::ArbiterHandle;
use fiber_core::{BuildId, Config, NodeId, SessionKey};
use fiber_transport::{Connection, Link, Message, PeerInfo, Role, connect, join};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

/// How long a peer may take to show who it is.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

/// What the first byte of a message says: who it is for.
pub(crate) const CONTROL: u8 = 0;
/// For what runs at the root of the child, or from there.
pub(crate) const ROOT: u8 = 1;
/// For the actors of a node, or from there.
pub(crate) const MESH: u8 = 2;

/// What the node and its mesh have in common.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) id: NodeId,
    pub(crate) config: Config,
    pub(crate) key: SessionKey,
    /// Tells this session from others.
    pub(crate) session: u64,
    /// The thread that serves the links.
    pub(crate) arbiter: ArbiterHandle,
}

impl Endpoint {
    pub(crate) fn new(id: NodeId, config: Config, key: SessionKey, arbiter: ArbiterHandle) -> &'static Endpoint {
        let session = key.session();
        Box::leak(Box::new(Endpoint { id, config, key, session, arbiter }))
    }

    /// Runs a future on the thread of the links.
    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(&self, future: impl FnOnce() -> F + Send + 'static) {
        self.arbiter.spawn_fn(move || drop(tokio::task::spawn_local(future())));
    }
}

/// Connects node `own` to another, as what it is to that one.
pub(crate) async fn meet(
    address: &str,
    key: &SessionKey,
    own: NodeId,
    to: NodeId,
    role: Role,
) -> Result<Connection, String> {
    let connect = async {
        let mut connection = connect(address, key).await.map_err(|error| error.to_string())?;
        let build = BuildId::current().clone();
        let info = PeerInfo { node: own, to, role, build, pid: std::process::id(), host: host_name() };
        join(&mut connection, key, &info).await.map_err(|error| error.to_string())?;
        Ok(connection)
    };
    timeout(HANDSHAKE, connect).await.unwrap_or_else(|_| Err(format!("no answer within {HANDSHAKE:?}")))
}

/// The name of this host.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The longest message that nodes accept from each other: the largest value, and what tells what it is.
pub(crate) fn message_limit(config: &Config) -> usize {
    config.max_message.as_u64() as usize + (64 << 10)
}

/// Says something at regular times, until the link closes.
pub(crate) async fn give_signs_of_life(link: Arc<dyn Link>, every: Duration, sign: impl Fn() -> Message) {
    let mut beat = interval(every);
    while link.send(sign()).is_ok() {
        beat.tick().await;
    }
}

/// Counts the signs of life of another node against time.
pub(crate) struct Pulse {
    beat: Interval,
    silent_beats: u128,
    allowed: u128,
}

impl Pulse {
    pub(crate) fn new(config: &Config) -> Pulse {
        let mut beat = interval(config.heartbeat);
        // A tick that comes late counts once: if this process stood still, that is not the other's fault.
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let allowed = config.heartbeat_timeout.as_millis().div_ceil(config.heartbeat.as_millis().max(1));
        Pulse { beat, silent_beats: 0, allowed }
    }

    pub(crate) fn felt(&mut self) {
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

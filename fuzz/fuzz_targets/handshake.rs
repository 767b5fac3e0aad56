//! Two ends come to their keys through somebody who alters what they say: with anything altered,
//! neither trusts the other. And a stranger without the key is never trusted, whatever it says, by
//! the acceptor, the connector or the node's handshake that comes after.

#![no_main]

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use fiber_core::{BuildId, ProcessId, SessionKey};
use fiber_transport::nng::{accept_keys, connect_keys};
use fiber_transport::{Closed, Connection, Incoming, Link, Message, PeerInfo, Role, accept_peer, join_session};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime takes nothing that is missing")
});

#[derive(Arbitrary, Debug)]
enum Attack {
    /// What is xored to what the connector says, and to what the acceptor says.
    Between(Vec<u8>, Vec<u8>),
    /// All that a stranger says.
    Stranger(Vec<u8>),
    /// Messages of a stranger to a node, once there is a link.
    Node(Vec<Vec<u8>>),
}

fuzz_target!(|attack: Attack| {
    let key = SessionKey::random();
    match attack {
        Attack::Between(to_acceptor, to_connector) => RUNTIME.block_on(between(&key, &to_acceptor, &to_connector)),
        Attack::Stranger(says) => RUNTIME.block_on(stranger(&key, &says)),
        Attack::Node(messages) => RUNTIME.block_on(node(&key, &messages)),
    }
});

const NODE: ProcessId = ProcessId(1);

/// The lengths of what is said.
const TO_ACCEPTOR: usize = 8 + 32 + 32 + 32;
const TO_CONNECTOR: usize = 32 + 32;

async fn between(key: &SessionKey, to_acceptor: &[u8], to_connector: &[u8]) {
    let ((mut connector, near), (far, mut acceptor)) = (duplex(1024), duplex(1024));
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    let connecting = async {
        let keys = connect_keys(&mut connector, key).await;
        drop(connector);
        keys.is_ok()
    };
    let accepting = async {
        let keys = accept_keys(&mut acceptor, key).await;
        drop(acceptor);
        keys.is_ok()
    };
    let (connected, accepted, (), ()) = tokio::join!(
        connecting,
        accepting,
        alter(near_read, far_write, to_acceptor),
        alter(far_read, near_write, to_connector)
    );
    let altered = |mask: &[u8], length: usize| mask.iter().take(length).any(|byte| *byte != 0);
    let honest = !altered(to_acceptor, TO_ACCEPTOR) && !altered(to_connector, TO_CONNECTOR);
    assert_eq!(accepted, honest);
    // The connector has nothing to wait for when it has said the last word.
    let last_word_only = !altered(to_acceptor, TO_ACCEPTOR - 32) && !altered(to_connector, TO_CONNECTOR);
    assert_eq!(connected, last_word_only);
}

/// Passes on what comes, xored.
async fn alter(mut from: tokio::io::ReadHalf<DuplexStream>, mut to: tokio::io::WriteHalf<DuplexStream>, mask: &[u8]) {
    let mut mask = mask.iter().copied().chain(std::iter::repeat(0));
    let mut buffer = [0; 256];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        buffer[..length].iter_mut().zip(&mut mask).for_each(|(byte, mask)| *byte ^= mask);
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

async fn stranger(key: &SessionKey, says: &[u8]) {
    for accepts in [true, false] {
        let (mut end, mut stranger) = duplex(1 << 20);
        stranger.write_all(&says[..says.len().min(1 << 19)]).await.expect("there is room");
        stranger.shutdown().await.expect("it is open");
        let keys = if accepts { accept_keys(&mut end, key).await } else { connect_keys(&mut end, key).await };
        assert!(keys.is_err());
        drop(end);
        let mut answer = Vec::new();
        stranger.read_to_end(&mut answer).await.expect("it is open");
        assert!(!accepts || answer.is_empty(), "a stranger got an answer");
    }
}

async fn node(key: &SessionKey, messages: &[Vec<u8>]) {
    let connection = || {
        let link = Arc::new(Recorded(Mutex::default()));
        let messages = messages.iter().map(|message| Bytes::from(message.clone())).collect();
        (Connection { link: Arc::clone(&link) as _, incoming: Box::new(Said(messages)) }, link)
    };
    let (accepting, answers) = connection();
    let (_, info) = accept_peer(accepting, key, NODE).await.expect_err("a stranger was let in");
    assert_eq!(info, None);
    let answered: usize = answers.0.lock().expect("nobody panicked").iter().sum();
    assert!(answered < 1024, "a stranger made a node say {answered} bytes");
    let (mut joining, _) = connection();
    let build = BuildId::stated("a build");
    let info = PeerInfo { id: NODE, to: NODE, role: Role::Peer, build, pid: 1, host: "a host".into() };
    assert!(join_session(&mut joining, key, &info).await.is_err());
}

#[derive(Debug)]
struct Recorded(Mutex<Vec<usize>>);

impl Link for Recorded {
    fn send(&self, message: Message) -> Result<(), Closed> {
        self.0.lock().map_err(|_| Closed)?.push(message.len());
        Ok(())
    }

    fn close(&self) {}
}

struct Said(VecDeque<Bytes>);

impl Incoming for Said {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }

    fn set_limit(&mut self, _: usize) {}
}

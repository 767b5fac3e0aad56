//! The key exchange and the handshake against an attacker. If a proxy alters any byte between two
//! ends, neither accepts the other. Acceptor, connector and handshake refuse a peer without the
//! key, whatever it sends.

#![no_main]

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{BuildId, ProcessId, SessionKey};
use fiber_transport::nng::{accept_keys, connect_keys};
use fiber_transport::{
    Closed, Connection, Incoming, Link, Message, PeerInfo, Received, Role, accept_peer,
    join_session,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without I/O needs no resources")
});

#[derive(Arbitrary, Debug)]
enum Attack {
    /// A proxy that XORs the connector's bytes and the acceptor's bytes with these.
    Proxy(Vec<u8>, Vec<u8>),
    /// A peer without the key that sends these bytes.
    KeyExchange(Vec<u8>),
    /// A peer without the key that sends these messages over a link.
    Handshake(Vec<Vec<u8>>),
}

fuzz_target!(|attack: Attack| {
    let key = SessionKey::random();
    match attack {
        Attack::Proxy(to_acceptor, to_connector) => {
            RUNTIME.block_on(proxy(&key, &to_acceptor, &to_connector))
        }
        Attack::KeyExchange(bytes) => RUNTIME.block_on(key_exchange(&key, &bytes)),
        Attack::Handshake(messages) => RUNTIME.block_on(handshake(&key, &messages)),
    }
});

const PROCESS: ProcessId = ProcessId(1);

/// The number of bytes that each end sends.
const TO_ACCEPTOR: usize = 8 + 8 + 32 + 32 + 32;
const TO_CONNECTOR: usize = 32 + 32;

async fn proxy(key: &SessionKey, to_acceptor: &[u8], to_connector: &[u8]) {
    let ((mut connector, near), (far, mut acceptor)) = (duplex(1024), duplex(1024));
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    let connecting = async {
        let keys = connect_keys(&mut connector, &key.into()).await;
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
    // The connector does not wait for an answer to its last message.
    let before_last = TO_ACCEPTOR - 32;
    let unaltered = !altered(to_acceptor, before_last) && !altered(to_connector, TO_CONNECTOR);
    assert_eq!(connected, unaltered);
}

/// Forwards bytes, XORed with `mask`.
async fn alter(
    mut from: tokio::io::ReadHalf<DuplexStream>,
    mut to: tokio::io::WriteHalf<DuplexStream>,
    mask: &[u8],
) {
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

async fn key_exchange(key: &SessionKey, bytes: &[u8]) {
    for accepts in [true, false] {
        let (mut end, mut attacker) = duplex(1 << 20);
        attacker.write_all(&bytes[..bytes.len().min(1 << 19)]).await.expect("there is room");
        attacker.shutdown().await.expect("it is open");
        let keys = match accepts {
            true => accept_keys(&mut end, key).await,
            false => connect_keys(&mut end, &key.into()).await,
        };
        assert!(keys.is_err());
        drop(end);
        let mut answer = Vec::new();
        attacker.read_to_end(&mut answer).await.expect("it is open");
        assert!(!accepts || answer.is_empty(), "a peer without the key got an answer");
    }
}

async fn handshake(key: &SessionKey, messages: &[Vec<u8>]) {
    let connection = || {
        let link = Arc::new(Recorded(Mutex::default()));
        let messages = messages.iter().map(|message| Bytes::from(message.clone())).collect();
        (Connection::new(Arc::clone(&link) as _, Messages(messages)), link)
    };
    let (accepting, answers) = connection();
    let (_, info) = accept_peer(accepting, key, PROCESS, |_| true)
        .await
        .expect_err("a peer without the key was accepted");
    assert_eq!(info, None);
    let answered: usize = answers.0.lock().expect("no thread panicked").iter().sum();
    assert!(answered < 1024, "a peer without the key got {answered} bytes");
    let (mut joining, _) = connection();
    let build = BuildId::stated("a build");
    let info = PeerInfo {
        id: PROCESS,
        to: PROCESS,
        role: Role::Peer,
        build,
        pid: 1,
        host: "a host".into(),
    };
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

    fn set_peer_timeout(&self, _: Duration) {}
}

struct Messages(VecDeque<Bytes>);

impl Incoming for Messages {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Received>>> {
        Poll::Ready(self.0.pop_front().map(|message| Ok(message.into())))
    }

    fn set_limit(&mut self, _: usize) {}
}

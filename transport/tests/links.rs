//! The promises of all kinds of link. Each test runs for each kind that can keep the promise.

mod support;

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{ErrorKind, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::Child;

use bytes::Bytes;
use fiber_core::{BuildId, LinkKind, ProcessId, SessionKey};
use fiber_transport::{
    Closed, Connection, HandshakeError, ListenAt, Listener, Message, Pass, Peer, PeerInfo, Role,
    accept_peer, connect, join_session, listen,
};

use support::{child, filler, promises, run, spawn_child, within};

promises! {
    everywhere {
        messages_arrive_whole_and_in_order,
        messages_for_later_arrive_in_order_with_the_next_one_or_a_flush,
        messages_sent_by_several_threads_all_arrive,
        closing_a_link_ends_both_halves_at_both_ends,
        dropping_the_receiving_half_closes_the_link,
        connections_outlive_their_listener,
        a_message_above_the_limit_is_an_error_that_names_both_sizes,
        a_handshake_returns_the_description_of_the_peer,
        a_peer_of_another_build_receives_the_reason_for_its_refusal,
        a_peer_with_another_key_is_refused_and_learns_nothing,
        a_ticket_lets_its_child_in_once_and_gives_it_the_key,
        two_hundred_peers_connect_at_once,
        connecting_without_a_listener_is_refused,
        connections_leave_nothing_behind,
    }
    between_processes {
        a_killed_peer_closes_the_link,
        a_reader_that_does_not_read_makes_the_sender_wait_and_nothing_is_lost,
        invalid_bytes_do_not_disturb_other_peers,
    }
}

/// A limit that is larger than any test's message.
const LIMIT: usize = 64 << 20;

struct Ends {
    listener: Box<dyn Listener>,
    acceptor: Connection,
    connector: Connection,
}

async fn ends(kind: LinkKind) -> Ends {
    let key = SessionKey::random();
    let mut listener = listen(kind, &key, &ListenAt::default()).unwrap();
    let address = listener.address();
    let (acceptor, connector) = tokio::join!(next_peer(&mut *listener), connect(&address, &key));
    Ends { listener, acceptor, connector: raised(connector.unwrap()) }
}

async fn next_peer(listener: &mut dyn Listener) -> Connection {
    raised(poll_fn(|context| listener.poll_accept(context)).await.unwrap())
}

fn raised(mut connection: Connection) -> Connection {
    connection.incoming.set_limit(LIMIT);
    connection
}

async fn next(connection: &mut Connection) -> Bytes {
    connection.next().await.expect("the link is open").expect("the link is whole").bytes
}

fn message(body: impl Into<Bytes>) -> Message {
    Message::with_body(Vec::new(), body.into())
}

/// Waits for the link's end, with or without an error: a peer that dies may cut a message.
async fn end(connection: &mut Connection) {
    while let Some(Ok(_)) = connection.next().await {}
}

async fn messages_arrive_whole_and_in_order(kind: LinkKind) {
    let Ends { mut acceptor, connector, listener: _listener } = ends(kind).await;
    let length = |index: usize| match index % 20_000 {
        7 => 5 << 20,
        8 => (256 << 10) - 4,
        9 => 256 << 10,
        _ => index % 97,
    };
    let sender = std::thread::spawn(move || {
        for index in 0..100_000 {
            let head = (index as u32).to_le_bytes().to_vec();
            connector.link.send(Message::with_body(head, filler(index, length(index)))).unwrap();
        }
        // Keeps the link until all messages have arrived.
        connector.link
    });
    for index in 0..100_000 {
        let received = next(&mut acceptor).await;
        assert_eq!(received[..4], (index as u32).to_le_bytes());
        assert!(received[4..] == filler(index, length(index)), "message {index} is damaged");
    }
    drop(sender.join().unwrap());
}

async fn messages_for_later_arrive_in_order_with_the_next_one_or_a_flush(kind: LinkKind) {
    let Ends { mut acceptor, connector, listener: _listener } = ends(kind).await;
    let link = &connector.link;
    // More than one write carries.
    for index in 0..100 {
        link.send_later(message(filler(index, 10 * index))).unwrap();
    }
    link.send(message(filler(100, 1000))).unwrap();
    for index in 0..=100 {
        assert!(next(&mut acceptor).await == filler(index, 10 * index), "{index}");
    }
    link.send_later(message("later")).unwrap();
    link.flush();
    assert_eq!(next(&mut acceptor).await, "later");
    // Nothing is queued.
    link.flush();
    link.close();
    assert_eq!(link.send_later(message("late")), Err(Closed));
    link.flush();
}

async fn messages_sent_by_several_threads_all_arrive(kind: LinkKind) {
    let Ends { mut acceptor, connector, listener: _listener } = ends(kind).await;
    for thread in 0..4_u8 {
        let link = connector.link.clone();
        std::thread::spawn(move || {
            (0..10_000_u32).for_each(|index| {
                link.send(Message::new([&[thread], &index.to_le_bytes()[..]].concat())).unwrap()
            })
        });
    }
    let mut seen = [0_u32; 4];
    for _ in 0..40_000 {
        let received = next(&mut acceptor).await;
        let count = &mut seen[usize::from(received[0])];
        assert_eq!(received[1..], count.to_le_bytes());
        *count += 1;
    }
}

async fn closing_a_link_ends_both_halves_at_both_ends(kind: LinkKind) {
    for swapped in [false, true] {
        let ends = ends(kind).await;
        let (mut near, mut far) =
            if swapped { (ends.connector, ends.acceptor) } else { (ends.acceptor, ends.connector) };
        near.link.close();
        assert_eq!(near.link.send(Message::default()), Err(Closed));
        assert!(near.next().await.is_none());
        assert!(far.next().await.is_none());
        while far.link.send(Message::default()).is_ok() {
            tokio::task::yield_now().await;
        }
    }
}

async fn dropping_the_receiving_half_closes_the_link(kind: LinkKind) {
    for swapped in [false, true] {
        let ends = ends(kind).await;
        let (near, mut far) =
            if swapped { (ends.connector, ends.acceptor) } else { (ends.acceptor, ends.connector) };
        drop(near.incoming);
        assert_eq!(near.link.send(Message::default()), Err(Closed));
        assert!(far.next().await.is_none());
    }
}

async fn connections_outlive_their_listener(kind: LinkKind) {
    let Ends { mut acceptor, mut connector, listener } = ends(kind).await;
    drop(listener);
    connector.link.send(Message::new(vec![1])).unwrap();
    assert_eq!(next(&mut acceptor).await, [1][..]);
    acceptor.link.send(Message::new(vec![2])).unwrap();
    assert_eq!(next(&mut connector).await, [2][..]);
}

/// Starts a child process that runs [`child_process`] in this role, and connects to it.
async fn peer_process(kind: LinkKind, role: &str) -> (Child, Connection, Box<dyn Listener>) {
    let key = SessionKey::random();
    let mut listener = listen(kind, &key, &ListenAt::default()).unwrap();
    let child = spawn_child(role, &[listener.address(), key.reveal()]);
    let connection = next_peer(&mut *listener).await;
    (child, connection, listener)
}

async fn a_killed_peer_closes_the_link(kind: LinkKind) {
    let (mut child, mut connection, _listener) = peer_process(kind, "wait").await;
    assert_eq!(next(&mut connection).await, "ready");
    child.kill().unwrap();
    // No time limit for silent peers is set, so only the kernel's close ends the link.
    end(&mut connection).await;
    while connection.link.send(Message::default()).is_ok() {
        tokio::task::yield_now().await;
    }
    child.wait().unwrap();
}

const FLOOD: usize = 4096;
const FLOOD_MESSAGE: usize = 64 << 10;

/// Runs in a process of its own, because it measures its memory.
async fn a_reader_that_does_not_read_makes_the_sender_wait_and_nothing_is_lost(kind: LinkKind) {
    let mut child = spawn_child("stall", &[kind.to_string()]);
    assert!(child.wait().unwrap().success());
}

async fn stall(kind: LinkKind) {
    let (mut child, flood, _listener) = peer_process(kind, "flood").await;
    let mut flood = raised(flood);
    let before = support::resident_memory();
    // The child reports over another link that it has sent all.
    let key = SessionKey::random();
    let mut second = listen(kind, &key, &ListenAt::default()).unwrap();
    flood
        .link
        .send(Message::new(format!("{} {}", second.address(), key.reveal()).into_bytes()))
        .unwrap();
    let mut report = next_peer(&mut *second).await;
    assert_eq!(next(&mut report).await, "sent");
    let grown = support::resident_memory().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes are held for a reader that does not read");
    for index in 0..FLOOD {
        assert!(
            next(&mut flood).await == filler(index, FLOOD_MESSAGE),
            "message {index} is damaged"
        );
    }
    flood.link.send(Message::new(b"done".to_vec())).unwrap();
    assert!(child.wait().unwrap().success());
}

async fn a_message_above_the_limit_is_an_error_that_names_both_sizes(kind: LinkKind) {
    let Ends { mut acceptor, connector, listener: _listener } = ends(kind).await;
    acceptor.incoming.set_limit(1_000_000);
    connector.link.send(message(filler(0, 1_000_000))).unwrap();
    connector.link.send(message(filler(0, 1_234_567))).unwrap();
    assert_eq!(next(&mut acceptor).await.len(), 1_000_000);
    let error = acceptor.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let text = error.to_string();
    assert!(text.contains("1234567") && text.contains("1000000"), "{text}");
}

fn info() -> PeerInfo {
    PeerInfo {
        id: ProcessId(7),
        to: ProcessId(1),
        role: Role::Child,
        build: BuildId::current().unwrap().clone(),
        pid: 42,
        host: "far away".into(),
    }
}

async fn a_handshake_returns_the_description_of_the_peer(kind: LinkKind) {
    let key = SessionKey::random();
    let mut listener = listen(kind, &key, &ListenAt::default()).unwrap();
    let address = listener.address();
    let joined = async {
        let mut connection = connect(&address, &key).await.unwrap();
        join_session(&mut connection, &key, &info()).await.unwrap();
        connection
    };
    let accepted = async {
        let connection = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
        accept_peer(connection, &key, ProcessId(1), |_| true).await.unwrap()
    };
    let (peer, mut connection) = tokio::join!(accepted, joined);
    assert_eq!(peer.info, info());
    peer.connection.link.send(Message::new(b"welcome".to_vec())).unwrap();
    assert_eq!(next(&mut connection).await, "welcome");
}

async fn a_peer_of_another_build_receives_the_reason_for_its_refusal(kind: LinkKind) {
    let key = SessionKey::random();
    let mut listener = listen(kind, &key, &ListenAt::default()).unwrap();
    let address = listener.address();
    let other = PeerInfo { build: BuildId::stated("another"), ..info() };
    let joined = async {
        let mut connection = connect(&address, &key).await.unwrap();
        join_session(&mut connection, &key, &other).await
    };
    let accepted = async {
        let connection = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
        accept_peer(connection, &key, ProcessId(1), |_| true).await.map(|peer| peer.info)
    };
    let (accepted, joined) = tokio::join!(accepted, joined);
    let (error, told) = accepted.expect_err("it must not be let in");
    assert!(matches!(error, HandshakeError::Build { .. }), "{error}");
    assert_eq!(told.as_ref(), Some(&other));
    let error = joined.expect_err("it must not be let in");
    assert!(matches!(&error, HandshakeError::Rejected(why) if why.contains("another")), "{error}");
}

async fn a_peer_with_another_key_is_refused_and_learns_nothing(kind: LinkKind) {
    let key = SessionKey::random();
    let mut listener = listen(kind, &key, &ListenAt::default()).unwrap();
    let address = listener.address();
    let refusals = tokio::task::spawn_local(async move {
        let connection = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
        accept_peer(connection, &key, ProcessId(1), |_| true).await.map(|peer| peer.info)
    });
    let other = SessionKey::random();
    let joined = async {
        let mut connection = connect(&address, &other).await?;
        join_session(&mut connection, &other, &info()).await
    };
    let error = joined.await.expect_err("it must not be let in");
    match kind {
        LinkKind::Unix | LinkKind::Memory => {
            assert!(matches!(error, HandshakeError::Key), "{error}");
            let (_, info) = refusals.await.unwrap().expect_err("it must not be let in");
            assert_eq!(info, None);
        }
        // The listener refuses it before there is a connection.
        _ => {
            assert!(error.to_string().contains("key"), "{error}");
            assert!(!refusals.is_finished());
            refusals.abort();
        }
    }
}

async fn a_ticket_lets_its_child_in_once_and_gives_it_the_key(kind: LinkKind) {
    let (key, child) = (SessionKey::random(), ProcessId(7));
    let mut listener = listen(kind, &key, &ListenAt::default()).unwrap();
    let address = listener.address();
    let is_there = Cell::new(true);
    let mut attempt = async |id| {
        let pass = Pass::ticket(child, key.ticket(child));
        let own = PeerInfo { id, role: Role::Child, ..info() };
        let joined = async {
            let mut connection = connect(&address, pass.clone()).await?;
            join_session(&mut connection, pass, &own).await
        };
        let accepted = async {
            let connection = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
            let take = |asked| asked == child && is_there.replace(false);
            accept_peer(connection, &key, ProcessId(1), take).await
        };
        tokio::join!(accepted, joined)
    };
    type Accepted = Result<Peer, (HandshakeError, Option<PeerInfo>)>;
    type Joined = Result<Option<SessionKey>, HandshakeError>;
    let is_refused = |(accepted, joined): (Accepted, Joined)| {
        let (error, told) = accepted.expect_err("it must not be let in");
        assert!(matches!(error, HandshakeError::Ticket), "{error}");
        assert_eq!(told, None);
        let error = joined.expect_err("it must not be let in");
        assert!(matches!(error, HandshakeError::Ticket), "{error}");
    };
    is_refused(attempt(ProcessId(8)).await);
    let (accepted, joined) = attempt(child).await;
    assert_eq!(accepted.unwrap().info.id, child);
    assert_eq!(joined.unwrap(), Some(key.clone()));
    is_refused(attempt(child).await);
}

async fn invalid_bytes_do_not_disturb_other_peers(kind: LinkKind) {
    let key = SessionKey::random();
    let mut listener = listen(kind, &key, &ListenAt::default()).unwrap();
    let address = listener.address();
    let echo_key = key.clone();
    tokio::task::spawn_local(async move {
        loop {
            let connection = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
            let key = echo_key.clone();
            tokio::task::spawn_local(async move {
                let Ok(mut peer) = accept_peer(connection, &key, ProcessId(1), |_| true).await
                else {
                    return;
                };
                while let Some(Ok(received)) = peer.connection.next().await {
                    let _ = peer.connection.link.send(message(received));
                }
            });
        }
    });
    let mut connection = connect(&address, &key).await.unwrap();
    join_session(&mut connection, &key, &info()).await.unwrap();
    let nonsense = nonsense(&address);
    for index in 0..100 {
        connection.link.send(message(filler(index, index))).unwrap();
        assert!(next(&mut connection).await == filler(index, index));
    }
    let mut another = connect(&address, &key).await.unwrap();
    join_session(&mut another, &key, &info()).await.unwrap();
    drop(nonsense);
}

/// Sends invalid bytes to `address` in several ways, and returns the open connections.
fn nonsense(address: &str) -> Vec<Box<dyn std::any::Any>> {
    let mut speakers: Vec<Box<dyn std::any::Any>> = Vec::new();
    let junk: [&[u8]; 4] = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 70_000],
        b"\0SP\0\0\x50\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    for junk in junk {
        match address.split_once(':').unwrap() {
            ("unix", name) => {
                let mut stream =
                    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap())
                        .unwrap();
                let _ = stream.write_all(junk);
                speakers.push(Box::new(stream));
            }
            (_, url) => {
                let mut stream =
                    std::net::TcpStream::connect(url.trim_start_matches("tcp://")).unwrap();
                let _ = stream.write_all(junk);
                speakers.push(Box::new(stream));
                let socket = nng::Socket::new(nng::Protocol::Pair0).unwrap();
                socket.dial_async(url).unwrap();
                speakers.push(Box::new(socket));
            }
        }
    }
    speakers
}

async fn two_hundred_peers_connect_at_once(kind: LinkKind) {
    let key = SessionKey::random();
    let mut listener = listen(kind, &key, &ListenAt::default()).unwrap();
    let address = listener.address();
    let mut peers = tokio::task::JoinSet::new();
    for index in 0..200_usize {
        let (address, key) = (address.clone(), key.clone());
        peers.spawn_local(async move {
            let mut connection = connect(&address, &key).await.unwrap();
            connection.link.send(message(filler(index, 1000 + index))).unwrap();
            assert!(next(&mut connection).await == filler(index, 1000 + index));
        });
    }
    for _ in 0..200 {
        let mut connection = next_peer(&mut *listener).await;
        tokio::task::spawn_local(async move {
            let received = next(&mut connection).await;
            connection.link.send(message(received)).unwrap();
            end(&mut connection).await;
        });
    }
    while let Some(peer) = peers.join_next().await {
        peer.unwrap();
    }
}

async fn connecting_without_a_listener_is_refused(kind: LinkKind) {
    let key = SessionKey::random();
    let listener = listen(kind, &key, &ListenAt::default()).unwrap();
    let address = listener.address();
    drop(listener);
    let error = connect(&address, &key).await.expect_err("nobody listens");
    // A time limit would be another kind of error.
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

/// Runs in a process of its own, because it counts descriptors and threads.
async fn connections_leave_nothing_behind(kind: LinkKind) {
    let mut child = spawn_child("leave", &[kind.to_string()]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn child_process() {
    let Some((role, arguments)) = child() else { return };
    run(async move {
        match role.as_str() {
            "wait" => {
                let mut connection =
                    connect(&arguments[0], &arguments[1].parse().unwrap()).await.unwrap();
                connection.link.send(Message::new(b"ready".to_vec())).unwrap();
                end(&mut connection).await;
            }
            "flood" => flood(&arguments).await,
            "stall" => stall(kind_of(&arguments[0])).await,
            _ => leave(kind_of(&arguments[0])).await,
        }
    });
}

fn kind_of(name: &str) -> LinkKind {
    let kinds = [LinkKind::Unix, LinkKind::Nng, LinkKind::Memory];
    kinds.into_iter().find(|kind| kind.to_string() == name).expect("the parent names a kind")
}

async fn flood(arguments: &[String]) {
    let mut connection = connect(&arguments[0], &arguments[1].parse().unwrap()).await.unwrap();
    let second = next(&mut connection).await;
    for index in 0..FLOOD {
        connection.link.send(message(filler(index, FLOOD_MESSAGE))).unwrap();
    }
    let second = String::from_utf8(second.to_vec()).unwrap();
    let (address, key) = second.split_once(' ').unwrap();
    let report = connect(address, &key.parse().unwrap()).await.unwrap();
    report.link.send(Message::new(b"sent".to_vec())).unwrap();
    assert_eq!(next(&mut connection).await, "done");
}

async fn leave(kind: LinkKind) {
    let once = || async {
        let mut ends = ends(kind).await;
        ends.connector.link.send(message(filler(1, 1_000_000))).unwrap();
        next(&mut ends.acceptor).await;
        // One end closes in the middle of a message.
        ends.connector.link.send(message(filler(1, 10_000_000))).unwrap();
        drop(ends.connector);
        end(&mut ends.acceptor).await;
    };
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    once().await;
    let (descriptors, threads) = (count("fd"), count("task"));
    for _ in 0..100 {
        once().await;
    }
    within(async {
        while count("fd") > descriptors + 8 || count("task") > threads + 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

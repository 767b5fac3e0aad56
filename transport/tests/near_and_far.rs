//! Listeners at two addresses: peers take the Unix socket where it is reached, else nng.

mod support;

use std::process::Command;

use fiber_core::SessionKey;
use fiber_transport::{Connection, ListenAt, Message, connect, is_near, listen_near_and_far};
use fiber_values::blob::{Blobs, arena};
use support::{child, next_peer, run, spawn_child_by};

const LARGE: usize = 1 << 20;
const LIMIT: usize = 8 * LARGE;

fn blob_message() -> Message {
    arena::enable(true);
    let blob = arena::copy_of(&vec![7; LARGE]).expect("there is room");
    Message { head: vec![1], blobs: Blobs::from(vec![blob]), ..Message::default() }
}

/// Returns whether the next message of the link has its blob in shared memory.
async fn is_lent(connection: &mut Connection) -> bool {
    connection.incoming.set_limit(LIMIT);
    let received = connection.next().await.unwrap().unwrap();
    assert!(received.blobs[0].iter().all(|byte| *byte == 7));
    received.blobs[0].as_shared().is_some()
}

/// Connects to the listener by its address after `change`, and returns whether blobs are lent.
fn lends_at(change: impl Fn(&str) -> String) -> bool {
    let mut lent = None;
    run(async {
        let key = SessionKey::random();
        let mut listener = listen_near_and_far(&key, &ListenAt::default()).unwrap();
        let address = change(&listener.address());
        let (near, far) = tokio::join!(next_peer(&mut *listener, LIMIT), connect(&address, &key));
        near.link.send(blob_message()).unwrap();
        lent = Some(is_lent(&mut far.unwrap()).await);
    });
    lent.expect("the test has run")
}

#[test]
fn a_peer_in_the_same_namespaces_uses_the_unix_socket() {
    assert!(lends_at(str::to_string));
}

#[test]
fn a_peer_out_of_reach_of_the_unix_socket_uses_nng() {
    assert!(!lends_at(|address| address.replacen("near:", "near:another-machine-", 1)));
}

#[test]
fn a_peer_that_the_unix_socket_refuses_uses_nng() {
    assert!(!lends_at(|address| address.replacen("|fiber-", "|fiber-nobody-", 1)));
}

/// The program and arguments that run a command in a new namespace.
fn in_new_namespace(kind: &'static str) -> [&'static str; 5] {
    ["unshare", "--user", "--map-current-user", kind, "--fork"]
}

fn may_make_namespaces() -> bool {
    let [program, arguments @ ..] = in_new_namespace("--pid");
    Command::new(program).args(arguments).arg("true").status().is_ok_and(|ended| ended.success())
}

#[test]
fn a_process_in_another_pid_namespace_uses_nng() {
    if !may_make_namespaces() {
        return eprintln!("this user can't make namespaces");
    }
    run(async {
        let key = SessionKey::random();
        let mut listener = listen_near_and_far(&key, &ListenAt::default()).unwrap();
        for (wrapper, expected) in [(&[][..], 1), (&in_new_namespace("--pid")[..], 0)] {
            let arguments = [listener.address(), key.reveal()];
            let mut child = spawn_child_by(wrapper, "borrow", &arguments);
            let mut connection = next_peer(&mut *listener, LIMIT).await;
            connection.link.send(blob_message()).unwrap();
            let answer = connection.next().await.unwrap().unwrap();
            assert_eq!(answer, &[expected][..]);
            connection.link.close();
            child.wait().unwrap();
        }
    });
}

#[test]
fn a_process_in_another_network_namespace_is_not_near() {
    if !may_make_namespaces() {
        return eprintln!("this user can't make namespaces");
    }
    run(async {
        let key = SessionKey::random();
        let listener = listen_near_and_far(&key, &ListenAt::default()).unwrap();
        for (wrapper, expected) in [(&[][..], 0), (&in_new_namespace("--net")[..], 1)] {
            let ended = spawn_child_by(wrapper, "look", &[listener.address()]).wait().unwrap();
            assert_eq!(ended.code(), Some(expected));
        }
    });
}

#[test]
fn child_process() {
    let Some((role, arguments)) = child() else { return };
    match (&*role, &*arguments) {
        ("look", [address]) => std::process::exit(i32::from(!is_near(address))),
        ("borrow", [address, key]) => run(async {
            let mut connection = connect(address, &key.parse().unwrap()).await.unwrap();
            let lent = is_lent(&mut connection).await;
            connection.link.send(Message::new(vec![lent.into()])).unwrap();
            while let Some(Ok(_)) = connection.next().await {}
        }),
        other => panic!("{other:?} is no role"),
    }
}

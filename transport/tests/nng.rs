//! The behavior of nng that links rely on.
//!
//! The bindings were made for NNG 1.4, and the library is NNG 1.11. These tests show whether a new
//! version of either still works with the other.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use fiber_core::{LinkKind, SessionKey};
use fiber_transport::{ListenAt, connect, listen};
use nng::options::{Options, RecvMaxSize};
use nng::{Aio, AioResult, Error, Listener, Message, PipeEvent, Protocol, Socket};

use support::run;

const SOON: Duration = Duration::from_secs(20);
const LIMIT: usize = 1000;

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Returns a PAIR socket and the events of its pipes.
fn pair() -> (Socket, Receiver<PipeEvent>) {
    let socket = Socket::new(Protocol::Pair0).unwrap();
    socket.set_opt::<RecvMaxSize>(LIMIT).unwrap();
    let (sender, events) = channel();
    socket
        .pipe_notify(move |_, event| {
            let _ = sender.send(event);
        })
        .unwrap();
    (socket, events)
}

fn adopt(socket: &Socket, stream: TcpStream) {
    let listener = Listener::new(socket, "socket://").unwrap().nng_listener();
    let listener = nng_sys::nng_listener { _bindgen_opaque_blob: listener._bindgen_opaque_blob };
    // SAFETY: the name is a C string, and nng owns the descriptor from here on.
    #[allow(unsafe_code)]
    let failed = unsafe {
        nng_sys::nng_listener_set_int(
            listener,
            nng_sys::NNG_OPT_SOCKET_FD.as_ptr().cast(),
            stream.into_raw_fd(),
        )
    };
    assert_eq!(failed, 0);
}

fn wait_for(events: &Receiver<PipeEvent>, wanted: PipeEvent) {
    while events.recv_timeout(SOON).unwrap() != wanted {}
}

/// Returns an asynchronous operation and its results.
fn aio() -> (Aio, Receiver<Result<Option<Message>, Error>>) {
    let (sender, results) = channel();
    let aio = Aio::new(move |_, result| {
        let result = match result {
            AioResult::Send(result) => result.map(|()| None).map_err(|(_, error)| error),
            AioResult::Recv(result) => result.map(Some),
            AioResult::Sleep(_) => panic!("nobody sleeps"),
        };
        drop(sender.send(result));
    });
    (aio.unwrap(), results)
}

#[test]
fn the_library_has_the_tested_version() {
    assert_eq!((nng_sys::NNG_MAJOR_VERSION, nng_sys::NNG_MINOR_VERSION), (1, 11));
    // SAFETY: it returns a constant.
    #[allow(unsafe_code)]
    let version = unsafe { std::ffi::CStr::from_ptr(nng_sys::nng_version()) };
    assert!(version.to_str().unwrap().starts_with("1.11."), "{version:?}");
}

#[test]
fn two_sockets_exchange_messages_over_an_adopted_connection() {
    let ((near, near_events), (far, far_events)) = (pair(), pair());
    assert!(matches!(near.try_send(&[0][..]), Err((_, Error::TryAgain))));
    let (sending, sent) = aio();
    near.send_async(&sending, &[1][..]).unwrap();
    let (receiving, received) = aio();
    far.recv_async(&receiving).unwrap();

    let (stream, other) = tcp();
    adopt(&near, stream);
    adopt(&far, other);
    wait_for(&near_events, PipeEvent::AddPost);
    wait_for(&far_events, PipeEvent::AddPost);
    assert!(sent.recv_timeout(SOON).unwrap().is_ok());
    assert_eq!(&received.recv_timeout(SOON).unwrap().unwrap().unwrap()[..], [1]);

    // Without a receiver the sender waits, and no message is lost.
    let mut count = 0_u32;
    while near.try_send(&[&count.to_le_bytes()[..], &[7; 900]].concat()[..]).is_ok() {
        count += 1;
    }
    near.send_async(&sending, &count.to_le_bytes()[..]).unwrap();
    for index in 0..=count {
        far.recv_async(&receiving).unwrap();
        let message = received.recv_timeout(SOON).unwrap().unwrap().unwrap();
        assert_eq!(message[..4], index.to_le_bytes());
    }
    assert!(sent.recv_timeout(SOON).unwrap().is_ok());

    far.close();
    far.close();
    wait_for(&near_events, PipeEvent::RemovePost);
}

#[test]
fn pending_operations_end_with_their_socket() {
    for receives in [false, true] {
        let (socket, _events) = pair();
        let (aio, results) = aio();
        if receives {
            socket.recv_async(&aio).unwrap();
        } else {
            socket.send_async(&aio, &[2][..]).unwrap();
        }
        socket.close();
        assert_eq!(results.recv_timeout(SOON).unwrap().unwrap_err(), Error::Closed);
        aio.wait();
        assert!(matches!(socket.try_send(&[0][..]), Err((_, Error::Closed))));
    }
}

#[test]
fn a_message_that_is_too_long_closes_the_pipe_before_memory_is_allocated() {
    let (socket, events) = pair();
    let (mut stream, other) = tcp();
    adopt(&socket, other);
    stream.write_all(b"\0SP\0\0\x10\0\0").unwrap();
    stream.write_all(&(LIMIT as u64 + 1).to_be_bytes()).unwrap();
    wait_for(&events, PipeEvent::RemovePost);
    // The peer has received only nng's own header.
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert_eq!(said, b"\0SP\0\0\x10\0\0");
}

#[test]
fn nng_starts_few_threads() {
    let Some(_) = support::child() else {
        let mut child = support::spawn_test("nng_starts_few_threads", "count", &[]);
        assert!(child.wait().unwrap().success());
        return;
    };
    let count = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = count();
    run(async {
        let key = SessionKey::random();
        let mut listener = listen(LinkKind::Nng, &key, &ListenAt::default()).unwrap();
        let address = listener.address();
        let accepted = std::future::poll_fn(|context| listener.poll_accept(context));
        let (_acceptor, _connector) = tokio::join!(accepted, connect(&address, &key));
        // The threads that check for room may end later.
        let deadline = Instant::now() + SOON;
        while count() > before + 7 {
            assert!(Instant::now() < deadline, "{} threads more", count() - before);
            std::thread::yield_now();
        }
    });
}

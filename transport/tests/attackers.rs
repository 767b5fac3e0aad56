//! Attacks on links over nng, on real sockets.

mod support;

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{LinkKind, SessionKey};
use fiber_transport::{Connection, ListenAt, Listener, Message, connect, listen};

use support::{filler, run, within};

/// The lengths of a connector's first two messages, and of nng's own header.
const HELLO: usize = 8 + 8 + 32 + 32;
const CONFIRMATION: usize = 32;
const NNG_HEADER: usize = 8;
/// The size of the length before each frame.
const LENGTH: usize = 8;
const TAG: usize = 16;

fn listener() -> (SessionKey, Box<dyn Listener>) {
    let key = SessionKey::random();
    let listener = listen(LinkKind::Nng, &key, &ListenAt::default()).unwrap();
    (key, listener)
}

fn socket_address(listener: &dyn Listener) -> String {
    listener.address().strip_prefix("nng:tcp://").unwrap().to_owned()
}

async fn next_peer(listener: &mut dyn Listener) -> Connection {
    let mut connection = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
    connection.incoming.set_limit(1 << 20);
    connection
}

/// Waits for the end of `attack`. Fails if the listener accepts a peer meanwhile.
async fn nothing_is_accepted<T: Send + 'static>(
    listener: &mut dyn Listener,
    attack: impl FnOnce() -> T + Send + 'static,
) -> T {
    let attack = tokio::task::spawn_blocking(attack);
    tokio::select! {
        done = attack => done.unwrap(),
        _ = poll_fn(|context| listener.poll_accept(context)) => {
            panic!("a peer without the key was accepted")
        }
    }
}

/// Reads until a connection ends in any way, and returns the received bytes.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    received
}

/// Starts a proxy in front of `acceptor`, and returns its address. The connector's bytes go through
/// `tamper`, whose last argument is the stream to the acceptor. The proxy forwards the answers
/// unchanged.
fn proxy_to(
    acceptor: String,
    tamper: impl FnOnce(TcpStream, TcpStream) + Send + 'static,
) -> String {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("nng:tcp://{}", socket.local_addr().unwrap());
    thread::spawn(move || {
        let near = socket.accept().unwrap().0;
        let far = TcpStream::connect(acceptor).unwrap();
        let (mut back_from, mut back_to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut back_from, &mut back_to);
            back_to.shutdown(Shutdown::Both)
        });
        tamper(near, far);
    });
    address
}

fn read_bytes(stream: &mut TcpStream, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).map(|()| bytes)
}

/// Forwards the key exchange and nng's header, and returns them.
fn pass_exchange(near: &mut TcpStream, far: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut passed = Vec::new();
    for length in [HELLO, CONFIRMATION, NNG_HEADER] {
        let part = read_bytes(near, length)?;
        far.write_all(&part)?;
        passed.extend(part);
    }
    Ok(passed)
}

/// Reads a frame with its length.
fn read_frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut frame = read_bytes(stream, LENGTH)?;
    let length = u64::from_be_bytes(frame[..].try_into().unwrap());
    frame.extend(read_bytes(stream, length as usize)?);
    Ok(frame)
}

/// Forwards the key exchange and the first two frames, passes the third and fourth through
/// `tamper`, and forwards the rest.
fn tampering(
    tamper: impl FnOnce(Vec<u8>, Vec<u8>) -> Vec<u8> + Send + 'static,
) -> impl FnOnce(TcpStream, TcpStream) + Send {
    move |mut near, mut far| {
        let passed = (|| {
            pass_exchange(&mut near, &mut far)?;
            for _ in 0..2 {
                far.write_all(&read_frame(&mut near)?)?;
            }
            let (third, fourth) = (read_frame(&mut near)?, read_frame(&mut near)?);
            far.write_all(&tamper(third, fourth))?;
            std::io::copy(&mut near, &mut far)
        })();
        // Either end may be gone by now.
        drop(passed);
        let _ = far.shutdown(Shutdown::Both);
        let _ = near.shutdown(Shutdown::Both);
    }
}

/// Sends a hundred frames through `tamper`. Returns how many whole messages the acceptor received,
/// and how the link ended.
async fn received_through(
    tamper: impl FnOnce(TcpStream, TcpStream) + Send + 'static,
) -> (usize, Option<std::io::Error>) {
    let (key, mut listener) = listener();
    let address = proxy_to(socket_address(&*listener), tamper);
    let (mut acceptor, connector) =
        tokio::join!(next_peer(&mut *listener), connect(&address, &key));
    let mut connector = connector.unwrap();
    for index in 0..100 {
        if connector.link.send(Message::with_body(Vec::new(), filler(index, 100))).is_err() {
            break;
        }
        // Each of these messages is a frame of its own, because the next one is sent after it
        // arrived.
        if index < 2 {
            assert!(acceptor.next().await.unwrap().unwrap() == filler(index, 100));
        }
    }
    let mut whole = 2;
    let ended = loop {
        match acceptor.next().await {
            Some(Ok(message)) => {
                assert!(
                    message == filler(whole, 100),
                    "each accepted message is the one that was sent"
                );
                whole += 1;
            }
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    assert!(
        acceptor.link.send(Message::default()).is_err() || ended.is_none(),
        "the link is closed"
    );
    drop(acceptor);
    while let Some(Ok(_)) = connector.next().await {}
    (whole, ended)
}

#[test]
fn altered_frames_end_the_link_with_an_error_that_says_so() {
    type Tamper = fn(Vec<u8>, Vec<u8>) -> Vec<u8>;
    let tampers: [(&str, Tamper); 7] = [
        ("a flipped bit in the text", |mut third, fourth| {
            third[LENGTH] ^= 1;
            [third, fourth].concat()
        }),
        ("a flipped bit in the tag", |mut third, fourth| {
            *third.last_mut().unwrap() ^= 0x80;
            [third, fourth].concat()
        }),
        ("a frame twice", |third, _| [third.clone(), third].concat()),
        ("frames in another order", |third, fourth| [fourth, third].concat()),
        ("a frame left out", |_, fourth| fourth),
        ("a shorter frame", |third, fourth| {
            let length = (third.len() - LENGTH - 1) as u64;
            [&length.to_be_bytes(), &third[LENGTH..third.len() - 1], &fourth].concat()
        }),
        ("a frame shorter than a tag", |_, fourth| {
            [&(TAG as u64 - 1).to_be_bytes(), &[0; TAG - 1][..], &fourth].concat()
        }),
    ];
    run(async move {
        for (what, tamper) in tampers {
            let (_, ended) = received_through(tampering(tamper)).await;
            let error = ended.unwrap_or_else(|| panic!("{what} is no error"));
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{what}: {error}");
            assert!(error.to_string().contains("altered"), "{what}: {error}");
        }
    });
}

#[test]
fn a_frame_whose_length_was_altered_ends_the_link() {
    run(async {
        for bit in [0_u8, 7, 17, 40, 63] {
            let tamper = move |third: Vec<u8>, fourth: Vec<u8>| {
                let length = u64::from_be_bytes(third[..LENGTH].try_into().unwrap()) ^ (1 << bit);
                // More bytes, in case the altered length is larger.
                [&length.to_be_bytes()[..], &third[LENGTH..], &fourth, &vec![0; 1 << 19]].concat()
            };
            let (whole, _) = received_through(tampering(tamper)).await;
            assert_eq!(whole, 2, "bit {bit}");
        }
    });
}

#[test]
fn a_stream_that_is_cut_ends_the_link_and_half_a_frame_is_dropped() {
    run(async {
        let cut = |mut near: TcpStream, mut far: TcpStream| {
            let passed = (|| {
                pass_exchange(&mut near, &mut far)?;
                for _ in 0..2 {
                    far.write_all(&read_frame(&mut near)?)?;
                }
                let third = read_frame(&mut near)?;
                far.write_all(&third[..third.len() - 1])
            })();
            drop(passed);
            let _ = far.shutdown(Shutdown::Both);
        };
        let (whole, _) = received_through(cut).await;
        assert_eq!(whole, 2);
    });
}

#[test]
fn a_replayed_connection_is_refused() {
    run(async {
        let (key, mut listener) = listener();
        let address = socket_address(&*listener);
        let (record, recorded) = std::sync::mpsc::channel();
        let proxy = proxy_to(address.clone(), move |mut near, mut far| {
            let exchange = pass_exchange(&mut near, &mut far).unwrap();
            let frame = read_frame(&mut near).unwrap();
            far.write_all(&frame).unwrap();
            record.send([exchange, frame].concat()).unwrap();
            let _ = read_to_end(&mut near);
        });
        let (mut acceptor, connector) =
            tokio::join!(next_peer(&mut *listener), connect(&proxy, &key));
        let connector = connector.unwrap();
        connector.link.send(Message::new(b"an order".to_vec())).unwrap();
        assert_eq!(acceptor.next().await.unwrap().unwrap(), "an order");
        let recorded = recorded.recv().unwrap();
        let answer = nothing_is_accepted(&mut *listener, move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&recorded).unwrap();
            read_to_end(&mut stream)
        });
        // A new point and its proof, which are useless to an attacker, and then the end.
        assert!(answer.await.len() <= 64);
    });
}

/// An attacker can replay the first message of a connection. The answer is the acceptor's part of a
/// new exchange, from new random numbers, and is useful only with the key.
#[test]
fn the_answer_to_a_replayed_first_message_is_a_new_point_and_its_proof() {
    run(async {
        let (key, mut listener) = listener();
        let address = socket_address(&*listener);
        let (record, recorded) = std::sync::mpsc::channel();
        let proxy = proxy_to(address.clone(), move |mut near, mut far| {
            let exchange = pass_exchange(&mut near, &mut far).unwrap();
            record.send(exchange[..HELLO + CONFIRMATION].to_vec()).unwrap();
            let _ = read_to_end(&mut near);
        });
        let (acceptor, connector) = tokio::join!(next_peer(&mut *listener), connect(&proxy, &key));
        let recorded = recorded.recv().unwrap();
        let mut answers = Vec::new();
        for with_the_old_confirmation in [false, true, false, true] {
            let address = address.clone();
            let words = if with_the_old_confirmation {
                recorded.clone()
            } else {
                recorded[..HELLO].to_vec()
            };
            let answer = nothing_is_accepted(&mut *listener, move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(&words).unwrap();
                let _ = stream.shutdown(Shutdown::Write);
                read_to_end(&mut stream)
            });
            answers.push(answer.await);
        }
        let hello: [u8; 32] = recorded[16..48].try_into().unwrap();
        for (index, answer) in answers.iter().enumerate() {
            let (point, proof) = answer.split_at(32);
            assert!(
                key.proves("accept", &[&hello, point], proof.try_into().unwrap()),
                "the answer is a point and its proof"
            );
            let others = answers[..index].iter();
            assert!(
                others.clone().all(|other| other[..32] != *point && other[32..] != *proof),
                "the answer is new each time"
            );
        }
        drop((acceptor, connector));
    });
}

#[test]
fn a_peer_without_the_key_gets_no_answer() {
    run(async {
        let (_, mut listener) = listener();
        let hello = |key: &SessionKey| {
            let proof = key.proof("connect", &[b"fiber\0\0\x02", &[0; 8], &[7; 32]]);
            [&b"fiber\0\0\x02"[..], &[0; 8], &[7; 32], &proof].concat()
        };
        let junk =
            [hello(&SessionKey::random()), b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0xff; 100_000]];
        for junk in junk {
            let address = socket_address(&*listener);
            let answer = nothing_is_accepted(&mut *listener, move || {
                let mut stream = TcpStream::connect(address).unwrap();
                let _ = stream.write_all(&junk);
                read_to_end(&mut stream)
            });
            assert_eq!(answer.await, b"");
        }
    });
}

#[test]
fn a_listener_without_the_key_is_refused() {
    run(async {
        for answer in [&b""[..], &[0; 64], &[0xff; 5000]] {
            let impostor = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = format!("nng:tcp://{}", impostor.local_addr().unwrap());
            thread::spawn(move || {
                let mut stream = impostor.accept().unwrap().0;
                read_bytes(&mut stream, HELLO).unwrap();
                let _ = stream.write_all(answer);
                let _ = stream.shutdown(Shutdown::Write);
                read_to_end(&mut stream)
            });
            let error = connect(&address, &SessionKey::random()).await.unwrap_err();
            assert!(error.to_string().contains("key"), "{error}");
        }
    });
}

#[test]
fn an_attempt_to_connect_can_be_cancelled() {
    run(async {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("nng:tcp://{}", silent.local_addr().unwrap());
        let attempt =
            tokio::task::spawn_local(async move { connect(&address, &SessionKey::random()).await });
        // The attempt is connected, and gets no answer.
        let mut peer =
            tokio::task::spawn_blocking(move || silent.accept().unwrap().0).await.unwrap();
        attempt.abort();
        assert!(attempt.await.unwrap_err().is_cancelled());
        tokio::task::spawn_blocking(move || read_to_end(&mut peer)).await.unwrap();
    });
}

#[test]
fn a_listener_that_never_answers_is_named_with_what_may_deny_it() {
    run(async {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("nng:tcp://{}", silent.local_addr().unwrap());
        let error = connect(&address, &SessionKey::random()).await.unwrap_err().to_string();
        let own = address.trim_start_matches("nng:");
        assert!(
            error.starts_with(own) && error.contains("(a firewall, a NetworkPolicy)"),
            "{error}"
        );
    });
}

#[test]
fn a_silent_or_slow_peer_is_refused_after_a_time_limit() {
    run(async {
        let (_, mut listener) = listener();
        let address = socket_address(&*listener);
        nothing_is_accepted(&mut *listener, move || {
            let mut silent = TcpStream::connect(&address).unwrap();
            let mut slow = TcpStream::connect(&address).unwrap();
            let dripping = {
                let mut slow = slow.try_clone().unwrap();
                thread::spawn(move || {
                    for byte in b"fiber\0\0\x02".iter().chain(&[0; 64]) {
                        if slow.write_all(&[*byte]).is_err() {
                            return;
                        }
                        thread::sleep(Duration::from_secs(1));
                    }
                    panic!("the listener read everything");
                })
            };
            assert_eq!(read_to_end(&mut silent), b"");
            assert_eq!(read_to_end(&mut slow), b"");
            dripping.join().unwrap();
        })
        .await;
    });
}

const CROWD: usize = 10_000;

/// The connecting peers are a process of their own, because this one counts its descriptors and its
/// memory.
#[test]
fn ten_thousand_connections_at_once_take_few_resources_and_keep_no_peer_out() {
    run(besieged());
}

#[test]
fn child_process() {
    let Some((_, arguments)) = support::child() else { return };
    run(async move { crowd(&arguments[0]).await });
}

async fn crowd(address: &str) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut crowd = tokio::task::JoinSet::new();
    for index in 0..CROWD {
        let address = address.to_owned();
        crowd.spawn_local(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else { return };
            // Some send a little.
            let _ = stream.write_all(&b"fiber\0\0\x02..."[..index % 12]).await;
            let _ = stream.read(&mut [0]).await;
        });
    }
    while crowd.join_next().await.is_some() {}
}

async fn besieged() {
    let (key, mut listener) = listener();
    let address = listener.address();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (before, memory) = (descriptors(), support::resident_memory());
    let mut crowd = support::spawn_child("crowd", &[socket_address(&*listener)]);
    let (mut most, mut honest) = (0, 0);
    let mut entering = tokio::task::JoinSet::new();
    let enter = |entering: &mut tokio::task::JoinSet<Bytes>, index: usize| {
        let (address, key) = (address.clone(), key.clone());
        entering.spawn_local(async move {
            let mut connection = loop {
                match connect(&address, &key).await {
                    Ok(connection) => break connection,
                    // The machine may be slow, because the connecting process runs on it too.
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}"),
                }
            };
            connection.link.send(Message::with_body(Vec::new(), filler(index, 1000))).unwrap();
            connection.next().await.unwrap().unwrap().bytes
        });
    };
    // Not before the connections are there.
    let mut besieged = false;
    while honest < 20 {
        tokio::select! {
            biased;
            Some(answer) = entering.join_next() => {
                assert!(answer.unwrap() == filler(honest, 1000));
                honest += 1;
                enter(&mut entering, honest);
            }
            mut peer = next_peer(&mut *listener) => {
                tokio::task::spawn_local(async move {
                    while let Some(Ok(body)) = peer.next().await {
                        let _ = peer.link.send(Message::with_body(Vec::new(), body.bytes));
                    }
                });
            }
            // For inspection of a failure.
            () = tokio::task::yield_now() => {}
        }
        most = most.max(descriptors());
        if !besieged && most > before + 500 {
            besieged = true;
            enter(&mut entering, honest);
        }
    }
    let grown = support::resident_memory().saturating_sub(memory);
    assert!(most < before + 1024 + 200, "{} descriptors", most - before);
    assert!(grown < 32 << 20, "{grown} bytes");
    crowd.kill().unwrap();
    crowd.wait().unwrap();
    within(async {
        while descriptors() > before + 100 {
            tokio::select! {
                _ = next_peer(&mut *listener) => {}
                () = tokio::task::yield_now() => {}
            }
        }
    })
    .await;
}

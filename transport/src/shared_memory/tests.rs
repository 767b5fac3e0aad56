use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::thread;
use std::time::Duration;

use fiber_core::SessionKey;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::*;

/// The time limit of each step.
const LONG: Duration = Duration::from_secs(120);

/// Runs a listener until it has accepted one writer. `connect` runs on another thread, with its
/// address and the key.
fn accept_one<T: Send + 'static>(
    connect: impl FnOnce(&str, &SessionKey) -> T + Send + 'static,
) -> ((Vec<u8>, Reader), T) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let key = SessionKey::random();
        let mut listener = StreamListener::bind().unwrap();
        let (address, other) = (listener.address().to_string(), key.clone());
        let connecting = thread::spawn(move || connect(&address, &other));
        let accepted = timeout(LONG, listener.accept(&key)).await.expect("in time").unwrap();
        (accepted, connecting.join().unwrap())
    })
}

fn pair(capacity: usize) -> (Writer, Reader) {
    let ((greeting, reader), writer) =
        accept_one(move |address, key| open_stream(address, key, b"me", capacity).unwrap());
    assert_eq!(greeting, b"me");
    (writer, reader)
}

fn sleep(fd: impl AsFd) {
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
}

#[test]
fn all_bytes_arrive_in_order_and_a_sleeping_side_is_woken() {
    let (mut writer, mut reader) = pair(4096);
    let total = 1_000_003_usize;
    let pattern = |at: usize| (at % 251) as u8;
    let writing = thread::spawn(move || {
        let bytes: Vec<u8> = (0..total).map(pattern).collect();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let written = writer.write(&rest[..rest.len().min(777)]);
            rest = &rest[written..];
            if written == 0 && writer.arm() == Armed::Asleep {
                sleep(&writer);
                writer.woken().unwrap();
            }
        }
        writer
    });
    let mut at = 0;
    while at < total {
        let piece = reader.peek();
        let length = piece.len();
        assert!(piece.iter().enumerate().all(|(i, byte)| *byte == pattern(at + i)));
        reader.consume(length);
        at += length;
        if length == 0 && reader.arm() == Armed::Asleep {
            sleep(&reader);
            reader.woken().unwrap();
        }
    }
    assert_eq!(at, total);
    drop(writing.join().unwrap());
}

#[test]
fn what_was_written_before_the_writer_ended_can_be_read() {
    let (mut writer, mut reader) = pair(64);
    assert_eq!(writer.write(&[7; 100]), 64);
    drop(writer);
    sleep(&reader);
    assert_eq!(reader.woken(), Err(StreamClosed));
    assert_eq!(reader.peek(), [7; 64]);
    reader.consume(64);
    assert!(reader.peek().is_empty());
}

#[test]
fn a_writer_without_the_key_is_turned_away() {
    let ((greeting, _reader), (stranger, known)) = accept_one(|address, key| {
        let stranger = open_stream(address, &SessionKey::random(), b"", 64);
        (stranger.map(drop), open_stream(address, key, b"known", 64))
    });
    assert_eq!(greeting, b"known");
    assert_eq!(stranger.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    drop(known.unwrap());
}

#[test]
fn silent_strangers_delay_no_writer() {
    let ((greeting, _reader), (strangers, known)) = accept_one(|address, key| {
        let address_of_socket = SocketAddr::from_abstract_name(address).unwrap();
        let connect = |()| UnixStream::connect_addr(&address_of_socket).unwrap();
        let strangers = [(); 20].map(connect);
        (strangers, open_stream(address, key, b"known", 64))
    });
    assert_eq!(greeting, b"known");
    drop(known.expect("the listener answers before the writer gives up"));
    drop(strangers);
}

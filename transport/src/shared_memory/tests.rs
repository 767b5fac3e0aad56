use std::thread;

use fiber_core::SessionKey;
use rustix::event::{PollFd, PollFlags, poll};

use super::*;

fn pair(capacity: usize) -> (Writer, Reader) {
    let key = SessionKey::random();
    let listener = StreamListener::bind().unwrap();
    let (address, other) = (listener.address().to_string(), key.clone());
    let writer = thread::spawn(move || open_stream(&address, &other, b"me", capacity).unwrap());
    let (greeting, reader) = listener.accept(&key).unwrap();
    assert_eq!(greeting, b"me");
    (writer.join().unwrap(), reader)
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
    let listener = StreamListener::bind().unwrap();
    let (key, address) = (SessionKey::random(), listener.address().to_string());
    let other = key.clone();
    let knocking = thread::spawn(move || {
        let stranger = open_stream(&address, &SessionKey::random(), b"", 64);
        (stranger.map(drop), open_stream(&address, &other, b"known", 64))
    });
    let (greeting, _reader) = listener.accept(&key).unwrap();
    assert_eq!(greeting, b"known");
    let (stranger, known) = knocking.join().unwrap();
    assert_eq!(stranger.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    drop(known.unwrap());
}

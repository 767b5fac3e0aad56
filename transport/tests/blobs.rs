//! Blobs over links: lent in shared memory within one host, else sent.

mod support;

use std::fs::File;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{LinkKind, SessionKey};
use fiber_transport::{Connection, ListenAt, Message, connect, listen};
use fiber_values::blob::{Blob, Blobs, arena};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use support::{alone, child, connected_child, next_peer, pair, run, spawn_child};

const LARGE: usize = 1 << 20;
const LIMIT: usize = 8 * LARGE;

fn message(blobs: Vec<Blob>) -> Message {
    Message { head: vec![1], body: Bytes::from_static(b"body"), blobs: Blobs::from(blobs) }
}

fn shared(value: u8) -> Blob {
    arena::enable(true);
    arena::copy_of(&vec![value; LARGE]).expect("there is room")
}

#[test]
fn a_lent_blob_is_read_in_place_and_given_back() {
    alone(async {
        let (mut near, mut far) = pair(LinkKind::Unix, LIMIT).await;
        let blob = shared(7);
        let place = blob.as_ptr();
        let private = Blob::private(vec![8; 100].into());
        near.link.send(message(vec![blob, private])).unwrap();
        let received = far.next().await.unwrap().unwrap();
        assert_eq!(received.bytes, &b"\x01body"[..]);
        assert_eq!(received.blobs[0].as_ptr(), place, "it is the same memory");
        assert_eq!(*received.blobs[1], [8; 100]);
        // Memory in use is not written over.
        let other = shared(9);
        assert_ne!(other.as_ptr(), place);
        assert!(received.blobs[0].iter().all(|byte| *byte == 7));
        // Passing it on lends the borrowed memory.
        far.link.send(message(received.blobs.to_vec())).unwrap();
        drop(received);
        let back = near.next().await.unwrap().unwrap();
        assert_eq!(back.blobs[0].as_ptr(), place);
        drop(back);
        // Each end gives it back before it sends this.
        near.link.send(Message::new(vec![2])).unwrap();
        assert_eq!(far.next().await.unwrap().unwrap(), &[2][..]);
        far.link.send(Message::new(vec![3])).unwrap();
        assert_eq!(near.next().await.unwrap().unwrap(), &[3][..]);
        assert_eq!(shared(1).as_ptr(), place, "it is free again");
    });
}

#[test]
fn over_nng_the_bytes_are_sent() {
    alone(async {
        let (near, mut far) = pair(LinkKind::Nng, LIMIT).await;
        near.link.send(message(vec![shared(7), Blob::private(vec![8; 40_000].into())])).unwrap();
        near.link.send(Message::new(vec![9])).unwrap();
        let received = far.next().await.unwrap().unwrap();
        assert_eq!(received.bytes, &b"\x01body"[..]);
        assert!(received.blobs[0].iter().all(|byte| *byte == 7));
        assert!(received.blobs[0].as_shared().is_none());
        assert!(received.blobs.iter().all(|blob| blob.as_ptr().align_offset(16) == 0));
        assert_eq!((received.blobs[0].len(), received.blobs[1].len()), (LARGE, 40_000));
        assert_eq!(far.next().await.unwrap().unwrap(), &[9][..]);
    });
}

#[test]
fn a_lender_keeps_what_a_living_borrower_may_read_after_the_end_of_the_link() {
    alone(async {
        let (near, mut far) = pair(LinkKind::Unix, LIMIT).await;
        let blob = shared(5);
        let place = blob.as_ptr();
        near.link.send(message(vec![blob])).unwrap();
        let received = far.next().await.unwrap().unwrap();
        near.link.close();
        drop(near);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_ne!(shared(6).as_ptr(), place);
        assert!(received.blobs[0].iter().all(|byte| *byte == 5));
    });
}

#[test]
fn what_a_killed_process_had_borrowed_is_free_when_it_has_ended() {
    alone(async {
        let (mut borrower, mut link) = connected_child("borrow", LARGE).await;
        let blob = shared(3);
        let place = blob.as_ptr();
        link.link.send(message(vec![blob])).unwrap();
        // The borrower has read it in its own mapping of the memory, and keeps it.
        assert_eq!(link.next().await.unwrap().unwrap(), &[3][..]);
        assert_ne!(shared(4).as_ptr(), place, "it is lent");
        borrower.kill().unwrap();
        while link.next().await.is_some_and(|message| message.is_ok()) {}
        drop(link);
        assert_ne!(shared(5).as_ptr(), place, "its process is not reaped");
        borrower.wait().unwrap();
        while shared(6).as_ptr() != place {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn what_a_killed_process_has_passed_on_stays_as_it_is() {
    alone(async {
        let key = SessionKey::random();
        let mut listener = listen(LinkKind::Unix, &key, &ListenAt::default()).unwrap();
        let address = listener.address();
        let mut reader = spawn_child("read", &[address.clone(), key.reveal()]);
        let mut to_reader = next_peer(&mut *listener, LARGE).await;
        let reader_address = to_reader.next().await.unwrap().unwrap();
        let reader_address = String::from_utf8(reader_address.to_vec()).unwrap();
        let mut middle = spawn_child("pass on", &[address, key.reveal(), reader_address]);
        let mut to_middle = next_peer(&mut *listener, LARGE).await;
        let (blob, kept) = (shared(7), shared(8));
        let (place, kept_place) = (blob.as_ptr(), kept.as_ptr());
        to_middle.link.send(message(vec![blob, kept])).unwrap();
        assert_eq!(to_reader.next().await.unwrap().unwrap(), &[7][..], "it has the blob");
        middle.kill().unwrap();
        middle.wait().unwrap();
        while to_middle.next().await.is_some_and(|message| message.is_ok()) {}
        drop(to_middle);
        // Memory that the killed process has not passed on is free again.
        loop {
            let next = shared(10).as_ptr();
            assert_ne!(next, place, "the reader has it");
            if next == kept_place {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        to_reader.link.send(Message::new(vec![1])).unwrap();
        assert_eq!(to_reader.next().await.unwrap().unwrap(), &[7, 7][..]);
        to_reader.link.send(Message::new(vec![2])).unwrap();
        while shared(20).as_ptr() != place {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        reader.kill().unwrap();
        reader.wait().unwrap();
    });
}

#[test]
fn what_a_killed_process_has_returned_to_its_lender_arrives() {
    alone(async {
        for writes_meanwhile in [false, true] {
            let (mut borrower, mut link) = connected_child("return", LARGE).await;
            let blob = shared(3);
            let place = blob.as_ptr();
            link.link.send(message(vec![blob])).unwrap();
            borrower.wait().unwrap();
            if writes_meanwhile {
                // The write fails, and ends the link for both directions.
                let _ = link.link.send(Message::new(vec![1]));
                tokio::task::yield_now().await;
            }
            let received = link.next().await.unwrap().unwrap();
            assert_eq!((received.blobs[0].as_ptr(), received.blobs[0][LARGE - 1]), (place, 3));
            drop(link);
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_ne!(shared(4).as_ptr(), place, "it is in use");
            drop(received);
            while shared(5).as_ptr() != place {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
}

#[test]
fn child_process() {
    let Some((role, arguments)) = child() else { return };
    run(async move {
        let key = arguments[1].parse().unwrap();
        let mut connection = connect(&arguments[0], &key).await.unwrap();
        connection.incoming.set_limit(LARGE);
        match &*role {
            "borrow" => borrow(connection).await,
            "return" => {
                let received = connection.next().await.unwrap().unwrap();
                connection.link.send(message(received.blobs.to_vec())).unwrap();
                std::process::abort();
            }
            "pass on" => {
                let reader = connect(&arguments[2], &key).await.unwrap();
                let received = connection.next().await.unwrap().unwrap();
                reader.link.send(message(vec![received.blobs[0].clone()])).unwrap();
                std::future::pending::<()>().await;
            }
            "read" => read(connection, &key).await,
            other => panic!("there is no role `{other}`"),
        }
    });
}

async fn borrow(mut connection: Connection) {
    let received = connection.next().await.unwrap().unwrap();
    let [blob] = &received.blobs[..] else { panic!("one blob was lent") };
    assert!(blob.as_shared().is_some());
    connection.link.send(Message::new(vec![blob[LARGE - 1]])).unwrap();
    std::future::pending::<()>().await;
}

/// Gets a blob from a process in between. Tells its parent the first byte, the first and the last
/// one when it is asked, and then drops the blob.
async fn read(mut parent: Connection, key: &SessionKey) {
    let mut listener = listen(LinkKind::Unix, key, &ListenAt::default()).unwrap();
    parent.link.send(Message::new(listener.address().into_bytes())).unwrap();
    let mut lender = next_peer(&mut *listener, LARGE).await;
    let received = lender.next().await.unwrap().unwrap();
    let blob = received.blobs[0].clone();
    assert!(blob.as_shared().is_some());
    drop(received);
    parent.link.send(Message::new(vec![blob[0]])).unwrap();
    parent.next().await.unwrap().unwrap();
    parent.link.send(Message::new(vec![blob[0], blob[LARGE - 1]])).unwrap();
    parent.next().await.unwrap().unwrap();
    drop(blob);
    std::future::pending::<()>().await;
}

/// A bare socket, which writes frames about blobs.
struct Liar(UnixStream);

impl Liar {
    fn write(&mut self, frame: &[u8]) {
        self.0.write_all(&with_header(frame)).unwrap();
    }

    fn write_with_file(&mut self, frame: &[u8], file: &File) {
        let files = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let bytes = with_header(frame);
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
    }
}

fn with_header(frame: &[u8]) -> Vec<u8> {
    [&u32::MAX.to_le_bytes()[..], &(frame.len() as u64).to_le_bytes(), frame].concat()
}

/// A connection, and its other end.
async fn with_liar() -> (Connection, Liar) {
    let key = SessionKey::random();
    let mut listener = listen(LinkKind::Unix, &key, &ListenAt::default()).unwrap();
    let address = listener.address();
    let name = address.strip_prefix("unix:").unwrap();
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let liar = UnixStream::connect_addr(&address).unwrap();
    let connection = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
    (connection, Liar(liar))
}

/// The frame of a message with one blob in shared memory.
fn lent(mapping: u128, offset: u64, len: u64, loan: u64) -> Vec<u8> {
    let mut frame = [&[0][..], &1u32.to_le_bytes(), &[1], &len.to_le_bytes()].concat();
    frame.extend_from_slice(&mapping.to_le_bytes());
    frame.extend_from_slice(&offset.to_le_bytes());
    frame.extend_from_slice(&loan.to_le_bytes());
    frame
}

#[test]
fn a_stranger_can_send_no_blob() {
    alone(async {
        let (mut connection, mut liar) = with_liar().await;
        liar.write(&[0, 0, 0, 0, 0, 1]);
        let error = connection.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("before it has proven itself"), "{error}");
    });
}

#[test]
fn lies_about_blobs_are_refused() {
    alone(async {
        let inline = [&[0][..], &1u32.to_le_bytes(), &[0], &u64::MAX.to_le_bytes()].concat();
        let many = [&[0][..], &u32::MAX.to_le_bytes()].concat();
        let lies: [&[u8]; 8] = [&[], &[9], &[0, 1], &[1, 2, 3], &[2, 1], &[3; 4], &inline, &many];
        for lie in lies {
            let (mut connection, mut liar) = with_liar().await;
            connection.incoming.set_limit(LARGE);
            liar.write(lie);
            let error = connection.next().await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{lie:?}");
        }
        // Returns and answers for loans that do not exist change nothing.
        let (mut connection, mut liar) = with_liar().await;
        connection.incoming.set_limit(LARGE);
        for kind in [2, 3, 4] {
            liar.write(&[&[kind][..], &77u64.to_le_bytes()].concat());
        }
        liar.write(&[0, 0, 0, 0, 0, 42]);
        assert_eq!(connection.next().await.unwrap().unwrap(), &[42][..]);
    });
}

#[test]
fn memory_of_this_process_that_no_peer_has_borrowed_is_refused() {
    alone(async {
        let blob = shared(7);
        let place = blob.as_shared().unwrap();
        let (own, end) = (place.mapping().id().0, (place.offset() + place.len()) as u64);
        let used = (end - 3, 3, true);
        for (offset, len, accepted) in [used, (end - 3, 4, false), (end + 4096, 8, false)] {
            let (mut connection, mut liar) = with_liar().await;
            connection.incoming.set_limit(LARGE);
            // The liar claims to pass this process's own memory on. The file is not looked at.
            connection.link.send(message(vec![blob.clone()])).unwrap();
            let file = File::open("/dev/null").unwrap();
            liar.write_with_file(&[&[1][..], &own.to_le_bytes(), &[0]].concat(), &file);
            liar.write(&lent(own, offset, len, 1));
            let received = connection.next().await.unwrap();
            assert_eq!(received.is_ok(), accepted, "{offset}, {len}");
        }
    });
}

#[test]
fn a_blob_whose_memory_did_not_arrive_is_asked_for() {
    alone(async {
        let (mut connection, mut liar) = with_liar().await;
        connection.incoming.set_limit(LARGE);
        // The descriptor of the mapping is missing, as if this process had had no room for it.
        liar.write(&[&[1][..], &5u128.to_le_bytes(), &[0]].concat());
        liar.write(&[&lent(5, 0, 3, 1)[..], &[10]].concat());
        liar.write(&[0, 0, 0, 0, 0, 11]);
        liar.write(&[&[4][..], &1u64.to_le_bytes(), b"abc"].concat());
        let first = connection.next().await.unwrap().unwrap();
        assert_eq!((&first.bytes[..], &first.blobs[0][..]), (&[10][..], &b"abc"[..]));
        assert_eq!(connection.next().await.unwrap().unwrap(), &[11][..], "in their order");
    });
}

//! Blobs in a file, because memory has no room for them: near processes map the file.

mod support;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::LinkKind;
use fiber_core::value_memory::value_memory;
use fiber_transport::{Connection, Message, connect};
use fiber_values::blob::{Blob, Blobs, Mapping, MappingId, arena};
use fiber_values::spill;
use rustix::fs::{Mode, OFlags};
use support::{alone, child, connected_child, pair, run};

const LARGE: usize = 1 << 20;

fn in_a_file(value: u8) -> Blob {
    arena::enable(true);
    let private = Blobs::from(vec![Blob::private(vec![value; LARGE].into())]);
    let (_, blobs) = spill::spill(&Bytes::new(), &private).expect("the disk has room");
    blobs[0].clone()
}

fn message(blob: &Blob) -> Message {
    Message { head: vec![1], body: Bytes::new(), blobs: vec![blob.clone()].into() }
}

/// Waits until no value is in a file.
async fn until_all_are_gone() {
    while value_memory().spilled > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn it_is_read_where_it_is_until_it_is_given_back() {
    alone(async {
        let (mut borrower, mut link) = connected_child("borrow", LARGE).await;
        for value in [3, 4] {
            link.link.send(message(&in_a_file(value))).unwrap();
            assert_eq!(link.next().await.unwrap().unwrap(), &[value, value][..]);
            assert_eq!(value_memory().spilled, LARGE as u64, "the borrower has it");
            let other = in_a_file(9);
            link.link.send(Message::new(vec![0])).unwrap();
            assert_eq!(
                link.next().await.unwrap().unwrap(),
                &[value, value][..],
                "it stays as it is"
            );
            drop(other);
            link.link.send(Message::new(vec![0])).unwrap();
            assert_eq!(link.next().await.unwrap().unwrap(), &[0][..], "it has dropped it");
            assert_eq!(value_memory().spilled, 0);
        }
        let blob = in_a_file(5);
        link.link.send(message(&blob)).unwrap();
        drop(blob);
        assert_eq!(link.next().await.unwrap().unwrap(), &[5, 5][..]);
        borrower.kill().unwrap();
        borrower.wait().unwrap();
        while link.next().await.is_some_and(|message| message.is_ok()) {}
        drop(link);
        until_all_are_gone().await;
    });
}

#[test]
fn it_stays_when_its_process_is_killed() {
    alone(async {
        let (mut lender, mut link) = connected_child("lend", LARGE).await;
        let received = link.next().await.unwrap().unwrap();
        lender.kill().unwrap();
        lender.wait().unwrap();
        while link.next().await.is_some_and(|message| message.is_ok()) {}
        let blob = &received.blobs[0];
        assert!(blob.as_shared().is_some_and(|shared| !shared.mapping().is_own()));
        assert_eq!((blob.len(), blob.iter().all(|byte| *byte == 7)), (LARGE, true));
    });
}

#[test]
fn over_nng_its_bytes_are_sent() {
    alone(async {
        let (near, mut far) = pair(LinkKind::Nng, 2 * LARGE).await;
        near.link.send(message(&in_a_file(7))).unwrap();
        let received = far.next().await.unwrap().unwrap();
        assert!(received.blobs[0].as_shared().is_none());
        assert_eq!(*received.blobs[0], [7; LARGE]);
    });
}

/// A file without a name.
fn unnamed() -> File {
    let flags = OFlags::RDWR | OFlags::TMPFILE;
    rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR).unwrap().into()
}

#[test]
fn files_that_others_could_shorten_are_refused() {
    let adopt = |file: OwnedFd| {
        let id = MappingId(u128::from_le_bytes(fiber_core::random()));
        Mapping::adopt(id, file).is_ok()
    };
    let writable = unnamed();
    writable.set_len(4096).unwrap();
    let path = format!("/proc/self/fd/{}", writable.as_raw_fd());
    let read_only = File::open(path).unwrap();
    let empty = unnamed();
    assert!(!adopt(writable.into()), "its descriptor can shorten it");
    assert!(!adopt(empty.into()));
    assert!(!adopt(File::open(std::env::current_exe().unwrap()).unwrap().into()), "it has a name");
    assert!(!adopt(File::open("/dev/null").unwrap().into()));
    assert!(adopt(read_only.into()));
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
            "lend" => {
                connection.link.send(message(&in_a_file(7))).unwrap();
                std::future::pending::<()>().await;
            }
            other => panic!("there is no role `{other}`"),
        }
    });
}

/// Sends the first and the last byte of each blob, once more when it is asked, and then drops it.
async fn borrow(mut connection: Connection) {
    loop {
        let received = connection.next().await.unwrap().unwrap();
        let blob = received.blobs[0].clone();
        assert!(blob.as_shared().is_some());
        drop(received);
        for _ in 0..2 {
            connection.link.send(Message::new(vec![blob[0], blob[LARGE - 1]])).unwrap();
            connection.next().await.unwrap().unwrap();
        }
        drop(blob);
        connection.link.send(Message::new(vec![0])).unwrap();
    }
}

//! Frames about blobs from a peer that lies. It may lend bytes of memory that it has sent, of
//! memory that this process has lent to it, or of any other; give back or ask for what it never
//! had; and send other files in place of memory. Each lie is an error of the link, or changes
//! nothing. All blobs that arrive can be read, and this process's own never change.

#![no_main]

use std::cell::OnceCell;
use std::fs::File;
use std::future::poll_fn;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use fiber_core::{LinkKind, SessionKey};
use fiber_transport::{Connection, ListenAt, Message, listen};
use fiber_values::blob::{Blob, arena};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

/// Bytes of the peer's memory, and of this process's blob.
const LEN: usize = 64 << 10;
/// The limit of a message.
const LIMIT: usize = 1 << 20;

#[derive(Arbitrary, Debug)]
enum Lie {
    Message { blobs: Vec<Place>, count: Option<u32>, rest: Vec<u8> },
    Mapping { memory: Memory, is_own: bool, file: Option<FileKind> },
    Return(Vec<u8>),
    Request(Vec<u8>),
    Data { loan: u8, bytes: Vec<u8> },
    Raw(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
enum Place {
    Inline(u64),
    Shared { memory: Memory, from_end: bool, offset: u32, len: u32, loan: u8 },
    Anywhere { mapping: u128, offset: u64, len: u64, loan: u64 },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Memory {
    /// The peer's.
    Theirs,
    /// The arena of this process, which has lent a blob in it.
    Own,
    Unknown,
}

#[derive(Arbitrary, Debug)]
enum FileKind {
    Sealed,
    /// Memory that could shrink.
    Unsealed,
    Device,
}

thread_local! {
    static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
}

fuzz_target!(|lies: Vec<Lie>| {
    RUNTIME.with(|runtime| {
        let runtime = runtime.get_or_init(|| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("the system has room for a runtime")
        });
        LocalSet::new().block_on(runtime, hear(&lies));
    });
});

async fn hear(lies: &[Lie]) {
    arena::enable(true);
    let own = arena::copy_of(&[7; LEN]).expect("there is room");
    let (mut connection, liar) = connected().await;
    let message = Message { head: vec![1], blobs: vec![own.clone()].into(), ..Message::default() };
    connection.link.send(message).expect("the link is open");
    for lie in lies {
        tell(&liar, &own, lie);
    }
    let place = own.as_shared().expect("it is in the arena");
    let (id, start) = (place.mapping().id(), place.offset());
    rustix::net::shutdown(&liar, Shutdown::Write).expect("the socket is open");
    while let Some(Ok(received)) = connection.next().await {
        for blob in received.blobs.iter() {
            // The kernel ends the process if a page is not there.
            std::hint::black_box(
                blob.iter().step_by(512).map(|byte| u64::from(*byte)).sum::<u64>(),
            );
            if let Some(place) = blob.as_shared().filter(|place| place.mapping().id() == id) {
                let range = place.offset()..place.offset() + place.len();
                assert!(start <= range.start && range.end <= start + LEN, "{range:?} is free");
            }
        }
    }
    assert!(own.iter().all(|byte| *byte == 7), "a lie has changed this process's blob");
}

fn arena_len(own: &Blob) -> usize {
    own.as_shared().expect("it is in the arena").mapping().len()
}

/// A connection whose peer has proven itself, and its other end.
async fn connected() -> (Connection, UnixStream) {
    let key = SessionKey::random();
    let mut listener =
        listen(LinkKind::Unix, &key, &ListenAt::default()).expect("the system has room for it");
    let address = listener.address();
    let name = address.strip_prefix("unix:").expect("it is a Unix address");
    let address = SocketAddr::from_abstract_name(name).expect("it is a name");
    let liar = UnixStream::connect_addr(&address).expect("there is a listener");
    liar.set_nonblocking(true).expect("it is a socket");
    let accepted = poll_fn(|context| listener.poll_accept(context)).await;
    let mut connection = accepted.expect("the liar has connected");
    connection.incoming.set_limit(LIMIT);
    (connection, liar)
}

fn tell(liar: &UnixStream, own: &Blob, lie: &Lie) {
    let number = |memory: Memory| match memory {
        Memory::Theirs => 5,
        Memory::Own => own.as_shared().expect("it is in the arena").mapping().id().0,
        Memory::Unknown => 6,
    };
    let loans = |kind: u8, loans: &[u8]| {
        let loans = loans.iter().flat_map(|loan| u64::from(*loan).to_le_bytes());
        [kind].into_iter().chain(loans).collect()
    };
    let (frame, file): (Vec<u8>, Option<OwnedFd>) = match lie {
        Lie::Message { blobs, count, rest } => {
            let count = count.unwrap_or(blobs.len() as u32);
            let mut frame = [&[0][..], &count.to_le_bytes()].concat();
            for place in blobs {
                let (mapping, offset, len, loan) = match *place {
                    Place::Inline(len) => {
                        frame.push(0);
                        frame.extend_from_slice(&len.to_le_bytes());
                        continue;
                    }
                    Place::Shared { memory, from_end, offset, len, loan } => {
                        let end = match memory {
                            Memory::Own => arena_len(own),
                            _ => LEN,
                        };
                        let offset = u64::from(offset);
                        let offset =
                            if from_end { (end as u64).wrapping_sub(offset) } else { offset };
                        (number(memory), offset, len.into(), loan.into())
                    }
                    Place::Anywhere { mapping, offset, len, loan } => (mapping, offset, len, loan),
                };
                frame.push(1);
                frame.extend_from_slice(&len.to_le_bytes());
                frame.extend_from_slice(&mapping.to_le_bytes());
                frame.extend_from_slice(&offset.to_le_bytes());
                frame.extend_from_slice(&loan.to_le_bytes());
            }
            frame.extend_from_slice(rest);
            (frame, None)
        }
        Lie::Mapping { memory, is_own, file } => {
            let frame = [&[1][..], &number(*memory).to_le_bytes(), &[u8::from(!is_own)]].concat();
            (frame, file.as_ref().map(open))
        }
        Lie::Return(list) => (loans(2, list), None),
        Lie::Request(list) => (loans(3, list), None),
        Lie::Data { loan, bytes } => {
            let mut frame: Vec<u8> = loans(4, &[*loan]);
            frame.extend_from_slice(bytes);
            (frame, None)
        }
        Lie::Raw(frame) => (frame.clone(), None),
    };
    send(liar, &frame, file);
}

fn open(kind: &FileKind) -> OwnedFd {
    let memory = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("fiber-fuzz", flags).expect("there is room");
        rustix::fs::ftruncate(&file, LEN as u64).expect("there is room");
        file
    };
    match kind {
        FileKind::Sealed => {
            let file = memory();
            let seals = SealFlags::SHRINK | SealFlags::GROW;
            rustix::fs::fcntl_add_seals(&file, seals).expect("it allows seals");
            file
        }
        FileKind::Unsealed => memory(),
        FileKind::Device => File::open("/dev/null").expect("every system has it").into(),
    }
}

/// Sends an extended frame, as far as the socket has room.
fn send(liar: &UnixStream, frame: &[u8], file: Option<OwnedFd>) {
    let header = [&u32::MAX.to_le_bytes()[..], &(frame.len() as u64).to_le_bytes()].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let bytes = [IoSlice::new(&header), IoSlice::new(frame)];
    let _ = sendmsg(liar, &bytes, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

//! The messages between a parent and a host.
//!
//! The first byte after the channel says what a message is: [`RELAYED`] for a message of a hosted
//! process or to one, behind the number of the process; [`WITH_BLOBS`] for one behind the number
//! and how its blobs travel; [`SHARED`] for one that the host keeps for others, behind the number
//! and the key; [`BLOB`] for a blob that the parent has asked for; or [`COMMAND`] for an encoded
//! [`ToHost`] or [`FromHost`]. A relayed message for [`EACH`] of several processes begins with the
//! [`heads`] for them.

use bytes::{Buf, BufMut, Bytes};
use fiber_backends::{JobPlace, Room};
use fiber_core::{Exit, Meta, OutputMode, ProcessId};
use fiber_transport::{Message, PeerInfo, Received};
use fiber_values::blob::Blob;
use fiber_values::codec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::kept_blobs::{BlobKey, Travels};
use super::shared::Key;
use super::stays::{CopiedBlob, Door};
use crate::endpoint::{CONTROL, MAIN};
use crate::json;

const RELAYED: u8 = 0;
const COMMAND: u8 = 1;
const SHARED: u8 = 2;
const WITH_BLOBS: u8 = 3;
const BLOB: u8 = 4;

/// The number of a hosted process. Its parent chooses it.
pub(super) type Number = u64;

/// The number of all processes that the message names.
pub(super) const EACH: Number = Number::MAX;

/// The bytes before a head of a message for several processes.
pub(super) const EACH_HEAD: usize = size_of::<Number>() + size_of::<u32>();

/// The bytes before a relayed message.
pub(super) const RELAY_HEAD: usize = 1 + 1 + size_of::<Number>();

/// From the parent to the host.
#[derive(Serialize, Deserialize)]
pub(super) enum ToHost {
    /// Start a process.
    Start(Box<HostedProcess>),
    /// Send SIGTERM to it.
    Terminate(Number),
    /// Kill it.
    Kill(Number),
    /// Close its link.
    Close(Number),
    /// Send it a message that the host keeps.
    SendKept { number: Number, key: Key },
    /// Keep these messages no longer.
    DropKept(Vec<Key>),
    /// Keep this blob no longer.
    DropBlob(BlobKey),
    /// Send this blob, which the parent does not have.
    FetchBlob(BlobKey),
    /// Get blobs from another host, and keep them.
    CopyBlobs { door: Door, blobs: Vec<CopiedBlob> },
}

/// A process to start in the host.
#[derive(Serialize, Deserialize)]
pub(super) struct HostedProcess {
    pub(super) number: Number,
    pub(super) id: ProcessId,
    pub(super) parent: ProcessId,
    pub(super) name: String,
    pub(super) restarts: u64,
    pub(super) retry_creation: bool,
    pub(super) meta: Meta,
    pub(super) output: OutputMode,
}

/// From the host to the parent.
#[derive(Serialize, Deserialize)]
pub(super) enum FromHost {
    /// The resources that the machine offers.
    Room(Room),
    /// Other hosts get blobs here.
    Door(Door),
    /// Whether each of these blobs of another host is kept, or could not be had.
    Copied(Vec<(BlobKey, bool)>),
    /// SIGTERM asks the host to end: it starts no more processes.
    Terminating,
    /// A process runs.
    Running {
        number: Number,
        #[serde(with = "json")]
        place: JobPlace,
    },
    /// A process has connected, or could not because of this problem.
    Connected { number: Number, peer: Result<PeerInfo, String> },
    /// The link of a process has ended, in order or with an error.
    Closed { number: Number, problem: Option<String> },
    /// A process has ended.
    Ended { number: Number, exit: Exit },
}

/// A message that has arrived.
pub(super) enum Arrived<C> {
    Relayed(Number, Received),
    WithBlobs {
        number: Number,
        travels: Vec<Travels>,
        message: Received,
    },
    Shared {
        number: Number,
        key: Key,
        message: Received,
    },
    /// A blob that the parent has asked for, if the host has it.
    Blob(BlobKey, Option<Blob>),
    Command(C),
}

/// Makes the message for a command.
pub(super) fn command(command: &impl Serialize) -> Message {
    let mut head = vec![MAIN, COMMAND];
    codec::append(&mut head, command).expect("commands of hosts serialize");
    Message::new(head)
}

/// Returns the head of a relayed message, with room for `more` bytes.
pub(super) fn relay_head(number: Number, more: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(RELAY_HEAD + more);
    head.extend_from_slice(&[MAIN, RELAYED]);
    head.put_u64_le(number);
    head
}

/// Returns the head of a relayed message whose blobs travel in these ways, with room for `more`
/// bytes.
pub(super) fn blobs_head(number: Number, travels: &[Travels], more: usize) -> Vec<u8> {
    let mut head = relay_head(number, more);
    head[1] = WITH_BLOBS;
    let travels = codec::encode(travels).expect("numbers serialize");
    head.put_u32_le(travels.len() as u32);
    head.extend_from_slice(&travels);
    head
}

/// Returns the head of a message that the host keeps, with the message's own.
pub(super) fn shared_head(number: Number, key: Key, message: &[u8]) -> Vec<u8> {
    let mut head = relay_head(number, size_of::<Key>() + message.len());
    head[1] = SHARED;
    head.put_u64_le(key);
    head.extend_from_slice(message);
    head
}

/// Returns what a message for several processes begins with: their numbers, and the head for each.
pub(super) fn heads(of: &[(Number, Vec<u8>)]) -> Vec<u8> {
    let mut all = Vec::new();
    all.put_u32_le(of.len() as u32);
    for (number, head) in of {
        all.put_u64_le(*number);
        all.put_u32_le(head.len() as u32);
        all.extend_from_slice(head);
    }
    all
}

/// Takes what [`heads`] wrote off a message; `None` if it is malformed.
pub(super) fn take_heads(message: &mut Bytes) -> Option<Vec<(Number, Bytes)>> {
    let count = message.try_get_u32_le().ok()?;
    let mut take = || {
        let number = message.try_get_u64_le().ok()?;
        let len = message.try_get_u32_le().ok()? as usize;
        if len <= message.len() { Some((number, message.split_to(len))) } else { None }
    };
    (0..count).map(|_| take()).collect()
}

/// Makes the message with a blob that the parent has asked for.
pub(super) fn blob(key: BlobKey, blob: Option<Blob>) -> Message {
    let mut head = vec![MAIN, BLOB];
    head.put_u64_le(key);
    Message { blobs: Vec::from_iter(blob).into(), ..Message::new(head) }
}

/// Returns whether a message of a host, with the byte of its channel, is a control message of a
/// process in it, such as a heartbeat.
pub(in crate::runtime) fn is_relayed_control(message: &[u8]) -> bool {
    message.starts_with(&[MAIN, RELAYED]) && message.get(RELAY_HEAD) == Some(&CONTROL)
}

/// Reads a message behind the byte of its channel; `None` if it is malformed.
pub(super) fn read<C: DeserializeOwned>(mut message: Received) -> Option<Arrived<C>> {
    match message.bytes.try_get_u8().ok()? {
        RELAYED => {
            let number = message.bytes.try_get_u64_le().ok()?;
            Some(Arrived::Relayed(number, message))
        }
        WITH_BLOBS => {
            let number = message.bytes.try_get_u64_le().ok()?;
            let len = message.bytes.try_get_u32_le().ok()? as usize;
            let travels = (len <= message.bytes.len()).then(|| message.bytes.split_to(len))?;
            let travels = codec::decode(&travels).ok()?;
            Some(Arrived::WithBlobs { number, travels, message })
        }
        SHARED => {
            let number = message.bytes.try_get_u64_le().ok()?;
            let key = message.bytes.try_get_u64_le().ok()?;
            Some(Arrived::Shared { number, key, message })
        }
        BLOB => {
            let key = message.bytes.try_get_u64_le().ok()?;
            Some(Arrived::Blob(key, message.blobs.first().cloned()))
        }
        COMMAND => codec::decode(&message.bytes).ok().map(Arrived::Command),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(message: Message) -> Received {
        let mut bytes = Bytes::from([&message.head[..], &message.body].concat());
        bytes.advance(1);
        bytes.into()
    }

    #[test]
    fn heartbeats_of_processes_are_known_as_such() {
        let relayed = |channel| [relay_head(7, 1), vec![channel]].concat();
        assert!(is_relayed_control(&relayed(CONTROL)));
        assert!(!is_relayed_control(&relayed(MAIN)));
        assert!(!is_relayed_control(&relay_head(7, 0)));
        assert!(!is_relayed_control(&command(&ToHost::Kill(8)).head));
    }

    #[test]
    fn messages_survive_the_wire() {
        let relayed = Message::with_body(relay_head(7, 0), Bytes::from_static(b"words"));
        assert_eq!(relayed.head.len(), RELAY_HEAD);
        match read::<ToHost>(arrived(relayed)) {
            Some(Arrived::Relayed(7, message)) => assert_eq!(message.bytes, "words"),
            _ => panic!("not relayed"),
        }
        let kill = read(arrived(command(&ToHost::Kill(8))));
        assert!(matches!(kill, Some(Arrived::Command(ToHost::Kill(8)))));
        let all =
            [Travels::AsBytes, Travels::Kept(7), Travels::AsNumber(5), Travels::Stays(9, 1 << 40)];
        let with_blobs = Message::with_body(blobs_head(7, &all, 0), Bytes::from_static(b"words"));
        match read::<ToHost>(arrived(with_blobs)) {
            Some(Arrived::WithBlobs { number: 7, travels, message }) => {
                assert_eq!((message.bytes, &travels[..]), ("words".into(), &all[..]));
            }
            _ => panic!("it has no blobs"),
        }
        let of = [(7, b"one".to_vec()), (8, Vec::new())];
        let mut each = Bytes::from([&heads(&of)[..], b"words"].concat());
        let mut cut = each.slice(..each.len() - 9);
        let taken = take_heads(&mut each).unwrap();
        assert_eq!(taken, of.map(|(number, head)| (number, Bytes::from(head))));
        assert_eq!((each, take_heads(&mut cut)), ("words".into(), None));
        let too_many = [&[WITH_BLOBS][..], &[0; 8], &[255; 4], &[0; 40]].concat();
        let unknown = [&[WITH_BLOBS][..], &[0; 8], &[1, 0, 0, 0], &[9; 9]].concat();
        for malformed in
            [&b""[..], &[RELAYED, 1], &[SHARED, 1], &[COMMAND], &[9, 9], &too_many, &unknown]
        {
            assert!(read::<ToHost>(Bytes::copy_from_slice(malformed).into()).is_none());
        }
    }
}

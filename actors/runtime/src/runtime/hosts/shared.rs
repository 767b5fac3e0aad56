//! Messages that several processes of a host get, such as broadcast values: they cross the wire to
//! the host once.
//!
//! The parent knows which processes of a host were sent which message. The host keeps a message
//! until each of them has ended or needs it no more. It keeps none that is sent to all of them at
//! the same time, such as a call of many actors.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use fiber_transport::{Closed, Link, Message, Received, Wire};
use fiber_values::blob::{Blob, Blobs};
use parking_lot::Mutex;

use super::HostNumber;
use super::kept_blobs::BlobKey;
use super::stays::{Stays, TravelTime};
use super::wire::{self, Number, ToHost};

/// The key of a shared message: see [`Link::send_shared`].
pub(super) type Key = u64;

/// Longer bytes beside blobs are kept where they have arrived.
const SHORT: usize = 4 << 10;

/// The most bytes of heads in one message for several processes, unless one alone has more: the
/// limit of a message leaves little room beside it.
const MAX_HEADS: usize = 32 << 10;

/// The wire to a host, as the links of all its processes use it.
#[derive(Debug)]
pub(super) struct HostWire {
    pub(super) link: Arc<dyn Link>,
    /// Set when the host is being lost.
    pub(super) is_failing: Arc<AtomicBool>,
    /// The messages that the host keeps, with the processes for which it does.
    kept: Mutex<HashMap<Key, HashSet<Number>>>,
    /// The host, as a place of blobs.
    pub(super) place: HostNumber,
    /// The number of the last blob that the host was sent to keep.
    pub(super) last_blob: Mutex<BlobKey>,
    pub(super) stays: Stays,
    pub(super) travel_time: Arc<TravelTime>,
}

impl HostWire {
    pub(super) fn new(
        link: Arc<dyn Link>,
        is_failing: Arc<AtomicBool>,
        place: HostNumber,
        travel_time: Arc<TravelTime>,
    ) -> HostWire {
        let (kept, last_blob, stays) = Default::default();
        HostWire { link, is_failing, kept, place, last_blob, stays, travel_time }
    }

    /// Queues a message to a process. Only the first process of the host gets it over the wire.
    pub(super) fn send_shared(&self, to: Number, key: Key, message: Message) -> Result<(), Closed> {
        // Queueing under the lock, so that the message is there before it is referred to.
        let mut kept = self.kept.lock();
        match kept.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(HashSet::from([to]));
                let head = wire::shared_head(to, key, &message.head);
                self.link.send_later(Message { head, ..message })
            }
            Entry::Occupied(mut entry) => {
                entry.get_mut().insert(to);
                self.link.send_later(wire::command(&ToHost::SendKept { number: to, key }))
            }
        }
    }

    /// Notes that a process needs a message no more.
    pub(super) fn drop_shared(&self, of: Number, key: Key) {
        let mut kept = self.kept.lock();
        if let Entry::Occupied(mut entry) = kept.entry(key)
            && entry.get_mut().remove(&of)
            && entry.get().is_empty()
        {
            entry.remove();
            let _ = self.link.send(wire::command(&ToHost::DropKept(vec![key])));
        }
    }

    /// Notes that a process needs no message any more.
    pub(super) fn drop_all_shared(&self, of: Number) {
        let mut kept = self.kept.lock();
        let mut unused = Vec::new();
        kept.retain(|key, processes| {
            let is_last = processes.remove(&of) && processes.is_empty();
            if is_last {
                unused.push(*key);
            }
            !is_last
        });
        if !unused.is_empty() {
            let _ = self.link.send(wire::command(&ToHost::DropKept(unused)));
        }
    }
}

impl Wire for HostWire {
    fn send_to_each(self: Arc<HostWire>, mut heads: &[(Number, Vec<u8>)], message: Message) {
        while !heads.is_empty() {
            let mut len = 0;
            let have_room = heads.iter().take_while(|(_, head)| {
                len += wire::EACH_HEAD + head.len();
                len <= MAX_HEADS
            });
            let (first, others) = heads.split_at(have_room.count().max(1));
            let message = Message { head: wire::heads(first), ..message.clone() };
            // If the wire is closed, the host has ended, and so have its processes.
            let _ = self.relay(wire::EACH, message, |relayed| self.link.send(relayed));
            heads = others;
        }
    }
}

/// Returns a message as a host keeps it, with its blobs where all processes of the host can map
/// them.
pub(super) fn to_keep(message: Received) -> Received {
    let blobs = into_shared(&message.blobs);
    // Short bytes would keep the frame, with the blobs that came in it.
    let bytes = match message.bytes {
        bytes if bytes.len() < SHORT => Bytes::copy_from_slice(&bytes),
        bytes => bytes,
    };
    Received { bytes, blobs }
}

/// Returns blobs where all processes of this host can map them, as far as there is room.
pub(super) fn into_shared(blobs: &Blobs) -> Blobs {
    if blobs.private_len() == 0 {
        return blobs.clone();
    }
    Blobs::from(blobs.iter().cloned().map(Blob::into_shared).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Buf;

    use super::super::hosted_link::HostedLink;
    use super::super::wire::Arrived;
    use super::*;
    use crate::mesh::FanOut;

    /// A link whose other end is a host.
    #[derive(Debug, Default)]
    struct ToKept(Mutex<(HashMap<Key, Received>, Vec<String>)>);

    impl Link for ToKept {
        fn send(&self, message: Message) -> Result<(), Closed> {
            let mut bytes = Bytes::from([&message.head[..], &message.body].concat());
            bytes.advance(1);
            let (kept, seen) = &mut *self.0.lock();
            seen.push(match wire::read(bytes.into()).unwrap() {
                Arrived::Shared { number, key, message } => {
                    kept.insert(key, to_keep(message));
                    format!("{key} to {number}")
                }
                Arrived::Command(ToHost::SendKept { number, key }) => {
                    assert_eq!(kept[&key], &b"words"[..]);
                    format!("{key} again to {number}")
                }
                Arrived::Command(ToHost::DropKept(keys)) => {
                    keys.iter().for_each(|key| drop(kept.remove(key)));
                    format!("drop {keys:?}")
                }
                Arrived::Relayed(wire::EACH, Received { mut bytes, .. }) => {
                    let heads = wire::take_heads(&mut bytes).unwrap();
                    let lens = heads.iter().map(|(number, head)| (*number, head.len()));
                    format!("{bytes:?} to {:?}", lens.collect::<Vec<_>>())
                }
                Arrived::Relayed(number, Received { bytes, .. }) => {
                    format!("{bytes:?} to {number} alone")
                }
                Arrived::Command(ToHost::Close(number)) => format!("close {number}"),
                _ => panic!("it is no shared message"),
            });
            Ok(())
        }

        fn close(&self) {}

        fn set_peer_timeout(&self, _: Duration) {}
    }

    #[test]
    fn a_message_crosses_the_wire_once_and_is_kept_while_a_process_needs_it() {
        let link = Arc::new(ToKept::default());
        let wire =
            HostWire::new(Arc::clone(&link) as Arc<dyn Link>, Arc::default(), 1, Arc::default());
        let seen = || std::mem::take(&mut link.0.lock().1);
        let message = || Message::with_body(b"wor".to_vec(), Bytes::from_static(b"ds"));
        for (number, key) in [(1, 7), (2, 7), (2, 8)] {
            wire.send_shared(number, key, message()).unwrap();
        }
        assert_eq!(seen(), ["7 to 1", "7 again to 2", "8 to 2"]);
        wire.drop_shared(1, 7);
        wire.drop_shared(1, 8);
        wire.send_shared(3, 7, message()).unwrap();
        wire.drop_all_shared(2);
        assert_eq!(seen(), ["7 again to 3", "drop [8]"]);
        wire.drop_shared(3, 7);
        wire.drop_all_shared(3);
        assert_eq!(seen(), ["drop [7]"]);
        assert!(link.0.lock().0.is_empty());
        // It is sent as a whole again.
        wire.send_shared(4, 7, message()).unwrap();
        assert_eq!(seen(), ["7 to 4"]);
    }

    #[test]
    fn a_message_to_many_processes_is_one_frame_for_each_host_in_its_order() {
        let hosts = [1, 2].map(|number| {
            let link = Arc::new(ToKept::default());
            let to_host = Arc::clone(&link) as Arc<dyn Link>;
            (link, Arc::new(HostWire::new(to_host, Arc::default(), number, Arc::default())))
        });
        let seen = |host: usize| std::mem::take(&mut hosts[host].0.0.lock().1);
        let connections = [(0, 1), (0, 2), (1, 3), (0, 4), (1, 5)]
            .map(|(host, number)| HostedLink::connect(number, Arc::clone(&hosts[host].1)).1);
        let links = connections.each_ref().map(|connection| &connection.link);
        let message = |head: usize, body: &Bytes| Message::with_body(vec![0; head], body.clone());
        let (body, other) = (Bytes::from_static(b"words"), Bytes::from_static(b"other"));
        let fan_out = FanOut::default();

        links[0].send(message(0, &other)).unwrap();
        links[1].close();
        (0..5).for_each(|place| fan_out.send(links[place], message(place, &body)));
        assert_eq!(seen(0), [r#"b"other" to 1 alone"#, "close 2"]);
        // A message with another body comes behind it.
        fan_out.send(links[3], message(1, &other));
        assert_eq!(seen(0), [r#"b"words" to [(1, 0), (4, 3)]"#]);
        assert_eq!(seen(1), [r#"b"words" to [(3, 2), (5, 4)]"#]);
        fan_out.finish();
        links[3].send(message(0, &body)).unwrap();
        fan_out.send(links[0], message(2, &body));
        let alone = [r#"b"words" to 4 alone"#, r#"b"\0\0words" to 1 alone"#];
        assert_eq!(seen(0), [r#"b"other" to [(4, 1)]"#, alone[0], alone[1]]);

        // The limit of a message leaves room for so many heads.
        let fan_out = FanOut::default();
        for place in [0, 3, 0] {
            fan_out.send(links[place], message(MAX_HEADS / 2, &body));
        }
        fan_out.finish();
        let frame = |of: &str| format!(r#"b"words" to [{of}]"#);
        let each = [1, 4, 1].map(|number| frame(&format!("({number}, {})", MAX_HEADS / 2)));
        assert_eq!(seen(0), each);
        assert!(seen(1).is_empty());
    }
}

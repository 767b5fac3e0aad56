//! A listener on the wires of `srun` and of nng, while a real session works.

use fiber_core::{ProcessId, SessionKey};
use fiber_test_support::trial;
use rustix::io::Errno;

use crate::batch::Batch;
use crate::scenarios::TEXT;
use crate::wire::{Direction, Recording, Stream, Wire};

/// The first bytes of a connection over nng.
const MAGIC: &[u8; 8] = b"fiber\0\0\x02";

/// The recorded connection of a host to the head.
struct Host<'a> {
    ticket: SessionKey,
    to_head: &'a Stream,
    from_head: &'a Stream,
}

/// Returns the connections that began with the proof of a ticket of this session.
fn hosts<'a>(wire: &'a Wire, key: &SessionKey) -> Vec<Host<'a>> {
    let host = |(&(own, head), to_head): (&Direction, &'a Stream)| {
        let hello = to_head.bytes.strip_prefix(MAGIC)?;
        let (child, hello) = hello.split_first_chunk::<8>()?;
        let (point, hello) = hello.split_first_chunk::<32>()?;
        let ticket = key.ticket(ProcessId(u64::from_le_bytes(*child)));
        let is_own = ticket.proves("connect", &[MAGIC, child, point], hello.first_chunk()?);
        let from_head = wire.streams.get(&(head, own))?;
        is_own.then_some(Host { ticket, to_head, from_head })
    };
    wire.streams.iter().filter_map(host).collect()
}

fn bytes(key: &SessionKey) -> Vec<u8> {
    let digits = key.reveal();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("it is hexadecimal");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// A ticket opens no recorded frame either: see `transport/src/nng/key_exchange.rs`, where the keys
/// of a connection can be tried.
#[trial]
fn a_listener_gets_tickets_and_neither_the_key_nor_values() {
    let recording = match Recording::start() {
        Err(Errno::PERM) => return eprintln!("skipped: only root can record what others send"),
        started => started.expect("this system has such sockets"),
    };
    let out = Batch::run("overheard").succeeds();
    let wire = recording.end();
    let printed = |name: &str| -> String {
        let secret =
            out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" backwards: "));
        secret.unwrap_or_else(|| panic!("no {name}: {out}")).chars().rev().collect()
    };
    let key: SessionKey = printed("key").parse().expect("it is one");

    // It did hear both wires, or it would prove nothing.
    let hosts = hosts(&wire, &key);
    assert!(!hosts.is_empty(), "no host's connection to the head was recorded");
    assert!(hosts.iter().all(|host| host.to_head.is_whole && host.from_head.is_whole));
    let is_large = |stream: &Stream| stream.bytes.len() > TEXT;
    let carried = hosts.iter().any(|host| is_large(host.to_head) && is_large(host.from_head));
    assert!(carried, "no host's connection carried the argument and the result");
    let is_heard = |host: &Host<'_>| wire.carries(&bytes(&host.ticket));
    assert!(hosts.iter().any(is_heard), "`srun` carried no host's ticket");

    assert!(!wire.carries(&bytes(&key)), "the session's key was sent");
    for name in ["argument", "result"] {
        assert!(!wire.carries(printed(name).as_bytes()), "the {name} was sent in the clear");
    }
}

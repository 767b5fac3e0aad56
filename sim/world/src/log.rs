//! The history of a world, in memory of its own.
//!
//! Noting something allocates nothing on the heap, whose addresses have a part in the order of
//! threads: a world has the same history whether it is kept or not. The memory is shared with
//! processes that this one forks, so that the parent has the history of a child that has crashed.

// It writes to mapped memory.
#![allow(unsafe_code)]

use std::fmt::{self, Write};
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A process starts. In a log, the text is its name.
    Start,
    /// A process ends.
    End,
    /// A thread starts or ends.
    Thread,
    /// A fault hits something.
    Fault,
    /// Something unusual happens.
    Unusual,
    /// A note of the program.
    Note,
    /// A thread gets its turn.
    Turn,
    /// Why the world has failed.
    Failure,
    /// The world's program has ended without a failure.
    Success,
}

const KINDS: [Kind; 9] = [
    Kind::Start,
    Kind::End,
    Kind::Thread,
    Kind::Fault,
    Kind::Unusual,
    Kind::Note,
    Kind::Turn,
    Kind::Failure,
    Kind::Success,
];

/// A line of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time since the beginning of the world, in nanoseconds.
    pub nanos: u64,
    /// The number of its process, in the order of their starts. The head is 0.
    pub process: usize,
    /// The name of its process.
    pub name: String,
    /// See [`Kind`].
    pub kind: Kind,
    /// The words for the event.
    pub text: String,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = Duration::from_nanos(self.nanos).as_secs_f64();
        write!(f, "{seconds:>14.9} s  {:<18} {}", self.name, self.text)
    }
}

/// The size of the address range. Memory is taken as it is written.
const SIZE: usize = 256 << 20;
/// The time, the process, the length of the text and the kind.
const HEADER: usize = 8 + 4 + 4 + 1;
/// The longest text of an event.
const LONGEST: usize = 64 << 10;

/// Events of a world, in the order in which they happen.
#[derive(Debug)]
pub struct Log {
    /// The number of bytes that are written, and the bytes.
    start: *mut u8,
}

// SAFETY: one thread at a time writes, the one with the baton, and reading copies.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

impl Log {
    /// Makes an empty one.
    ///
    /// # Errors
    /// The system's error if it has no room for the address range.
    pub fn new() -> io::Result<Log> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the address is the system's choice.
        let start = unsafe { mmap_anonymous(null_mut(), SIZE, protection, flags)? };
        Ok(Log { start: start.cast() })
    }

    fn written(&self) -> &AtomicUsize {
        // SAFETY: the mapping begins with it, is aligned to a page and lives as long as this.
        unsafe { &*self.start.cast() }
    }

    /// Forgets all events.
    pub fn clear(&self) {
        self.written().store(0, Ordering::SeqCst);
    }

    /// Adds an event, unless the log is full.
    pub fn add(&self, nanos: u64, process: usize, kind: Kind, text: fmt::Arguments<'_>) {
        let at = self.written().load(Ordering::SeqCst);
        if at + HEADER + LONGEST > SIZE - size_of::<usize>() {
            return;
        }
        // SAFETY: it is within the mapping, and its bytes are not written yet.
        let room = unsafe {
            let start = self.start.add(size_of::<usize>() + at);
            std::slice::from_raw_parts_mut(start, HEADER + LONGEST)
        };
        let (header, text_room) = room.split_at_mut(HEADER);
        let mut buffer = Buffer { room: text_room, len: 0 };
        // It is cut if it is too long.
        let _ = buffer.write_fmt(text);
        let len = buffer.len;
        header[..8].copy_from_slice(&nanos.to_le_bytes());
        header[8..12].copy_from_slice(&(process as u32).to_le_bytes());
        header[12..16].copy_from_slice(&(len as u32).to_le_bytes());
        header[16] = kind as u8;
        self.written().store(at + HEADER + len, Ordering::SeqCst);
    }

    /// Returns the bytes of all events, in a form of its own.
    pub fn bytes(&self) -> &[u8] {
        let len = self.written().load(Ordering::SeqCst);
        // SAFETY: they are written, and nobody changes them until they are cleared.
        unsafe { std::slice::from_raw_parts(self.start.add(size_of::<usize>()), len) }
    }

    /// Returns all events.
    pub fn events(&self) -> Vec<Event> {
        parse(self.bytes())
    }

    /// Returns the time of the last event.
    pub fn nanos(&self) -> u64 {
        records(self.bytes()).last().map_or(0, |record| record.0)
    }

    /// Returns whether there is an event of this kind.
    pub fn has(&self, kind: Kind) -> bool {
        records(self.bytes()).any(|record| record.2 == kind)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // SAFETY: no reference outlives this.
        let _ = unsafe { munmap(self.start.cast(), SIZE) };
    }
}

/// Returns the events in the bytes of a log.
pub(crate) fn parse(bytes: &[u8]) -> Vec<Event> {
    let mut names = vec!["head".to_string()];
    let event = |(nanos, process, kind, text): (u64, usize, Kind, &[u8])| {
        let mut text = String::from_utf8_lossy(text).into_owned();
        if kind == Kind::Start {
            names.push(std::mem::replace(&mut text, "starts".into()));
        }
        let name = names.get(process).cloned().unwrap_or_default();
        Event { nanos, process, name, kind, text }
    };
    records(bytes).map(event).collect()
}

fn records(mut bytes: &[u8]) -> impl Iterator<Item = (u64, usize, Kind, &[u8])> {
    std::iter::from_fn(move || {
        let (header, rest) = bytes.split_at_checked(HEADER)?;
        let number =
            |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("it has 4 bytes"));
        let nanos = u64::from(number(4)) << 32 | u64::from(number(0));
        let (text, rest) = rest.split_at_checked(number(12) as usize)?;
        bytes = rest;
        Some((nanos, number(8) as usize, *KINDS.get(usize::from(header[16]))?, text))
    })
}

struct Buffer<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl Write for Buffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.room.len() - self.len;
        let mut cut = text.len().min(room);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        self.room[self.len..][..cut].copy_from_slice(&text.as_bytes()[..cut]);
        self.len += cut;
        if cut == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_as_they_were_added() {
        let log = Log::new().unwrap();
        let add = |nanos, kind, text: &str| log.add(nanos, 1, kind, format_args!("{text}"));
        let event = |nanos, kind, text: &str| {
            let name = "worker-1".into();
            Event { nanos, process: 1, name, kind, text: text.into() }
        };
        add(u64::MAX - 1, Kind::Start, "worker-1");
        add(7, Kind::Note, "");
        assert!(log.has(Kind::Note) && !log.has(Kind::Failure));
        let expected = [event(u64::MAX - 1, Kind::Start, "starts"), event(7, Kind::Note, "")];
        assert_eq!(parse(log.bytes()), expected);
        assert_eq!(parse(&log.bytes()[..log.bytes().len() - 1]), expected[..1]);
        log.clear();
        assert_eq!(parse(log.bytes()), []);
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_letters() {
        let log = Log::new().unwrap();
        log.add(0, 0, Kind::Note, format_args!("x{}", "ä".repeat(LONGEST)));
        let events = parse(log.bytes());
        assert_eq!(events[0].text.len(), LONGEST - 1);
    }
}

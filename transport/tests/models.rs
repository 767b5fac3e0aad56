//! Models of code that two processes run at the same time, on loom: it tries all orders of their
//! steps, and of the values that they see.

use loom::sync::atomic::{AtomicU8, Ordering::Relaxed};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

#[path = "../src/shared_memory/positions.rs"]
mod positions;

use positions::{Positions, Side};

const CAPACITY: usize = 2;

/// A stream of two bytes, and for each side what its socket does: keeps wake-ups until they are
/// read.
struct Stream {
    positions: Positions,
    ring: [AtomicU8; CAPACITY],
    wakeups: [(Mutex<u32>, Condvar); 2],
}

impl Stream {
    fn new() -> Arc<Stream> {
        let ring = std::array::from_fn(|_| AtomicU8::new(0));
        let wakeups = std::array::from_fn(|_| (Mutex::new(0), Condvar::new()));
        Arc::new(Stream { positions: Positions::default(), ring, wakeups })
    }

    fn filled(&self, side: Side, position: u64) -> usize {
        self.positions.filled(side, position, CAPACITY)
    }

    fn cell(&self, position: u64) -> &AtomicU8 {
        &self.ring[position as usize % CAPACITY]
    }

    fn publish(&self, side: Side, position: u64) {
        if self.positions.publish(side, position, CAPACITY) {
            let (wakeups, woken) = &self.wakeups[usize::from(side == Side::Writer)];
            *wakeups.lock().unwrap() += 1;
            woken.notify_one();
        }
    }

    /// Sleeps until the other side wakes this one, unless `ready`.
    fn sleep_unless(&self, side: Side, ready: impl Fn() -> bool) {
        self.positions.set_asleep(side);
        if !ready() {
            let (wakeups, woken) = &self.wakeups[usize::from(side == Side::Reader)];
            let mut wakeups = wakeups.lock().unwrap();
            while *wakeups == 0 {
                wakeups = woken.wait(wakeups).unwrap();
            }
            *wakeups = 0;
        }
        self.positions.set_awake(side);
    }
}

/// Sends the bytes from 1 to `count`. A byte that is read too early or overwritten too early is a
/// wrong one, since the ring's own accesses are relaxed. Loom reports a side that sleeps for ever.
fn send(count: u8) {
    let stream = Stream::new();
    let writer = {
        let stream = Arc::clone(&stream);
        thread::spawn(move || {
            for byte in 0..count {
                let position = byte.into();
                let has_room = || stream.filled(Side::Writer, position) < CAPACITY;
                while !has_room() {
                    stream.sleep_unless(Side::Writer, has_room);
                }
                stream.cell(position).store(byte + 1, Relaxed);
                stream.publish(Side::Writer, position + 1);
            }
        })
    };
    for byte in 0..count {
        let position = byte.into();
        let has_byte = || stream.filled(Side::Reader, position) > 0;
        while !has_byte() {
            stream.sleep_unless(Side::Reader, has_byte);
        }
        assert_eq!(stream.cell(position).load(Relaxed), byte + 1);
        stream.publish(Side::Reader, position + 1);
    }
    writer.join().unwrap();
}

#[test]
fn a_sleeping_reader_is_woken_and_reads_each_byte_after_it_was_written() {
    loom::model(|| send(1));
}

#[test]
fn a_sleeping_writer_is_woken_and_overwrites_no_byte_that_is_not_read() {
    let mut model = loom::model::Builder::new();
    // All orders would take hours. Mistakes of this kind show with two or three switches.
    model.preemption_bound = Some(3);
    model.check(|| send(3));
}

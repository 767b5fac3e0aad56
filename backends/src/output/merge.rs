//! Equal lines of several processes, which are printed as one.
//!
//! A line waits for equal ones of other processes. Lines are printed in the order in which the
//! first of each came, so no line is later than that wait. A process's line joins an equal one only
//! behind the process's own earlier lines, so these keep their order.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::printer::{self, OutputStream, PendingWrite};

/// How long a line waits for equal ones.
const WAIT: Duration = Duration::from_millis(100);
/// How many bytes of lines wait. The first ones of more are printed at once.
const ROOM: usize = 1 << 20;
/// What a process of a line takes beside the text, in bytes.
const PROCESS: usize = 64;

/// Prints lines of a process, once they have waited for equal ones.
pub(super) async fn print(stream: OutputStream, process: &Arc<str>, lines: &[u8]) {
    let _pending = PendingWrite::new();
    let mut held = held(stream).lock().await;
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        held.lines.add(process, line.strip_suffix(b"\n").unwrap_or(line), Instant::now());
    }
    held.print(stream).await;
    if held.lines.due().is_some() && held.unwritten.is_none() {
        held.unwritten = Some(PendingWrite::new());
        fiber_core::spawn_local(print_when_due(stream));
    }
}

/// Hands the lines that wait to the printer, as far as it has room.
pub(super) fn release() {
    for stream in [OutputStream::Stdout, OutputStream::Stderr] {
        if let Ok(mut held) = held(stream).try_lock()
            && held.lines.due().is_some()
            && printer::try_print(stream, || held.lines.take(Instant::now() + WAIT))
        {
            held.unwritten = None;
        }
    }
}

/// The lines of a stream that wait.
#[derive(Default)]
struct Held {
    lines: Lines,
    /// There is one as long as lines wait, and a future that prints them.
    unwritten: Option<PendingWrite>,
}

impl Held {
    /// Prints what is due. The lock of the lines keeps all others waiting, as the printer does.
    async fn print(&mut self, stream: OutputStream) {
        let lines = self.lines.take(Instant::now());
        if !lines.is_empty() {
            printer::print(stream, lines).await;
        }
    }
}

fn held(stream: OutputStream) -> &'static Mutex<Held> {
    static HELD: LazyLock<[Mutex<Held>; 2]> = LazyLock::new(Default::default);
    &HELD[stream as usize]
}

async fn print_when_due(stream: OutputStream) {
    loop {
        let mut held = held(stream).lock().await;
        held.print(stream).await;
        let Some(due) = held.lines.due() else {
            held.unwritten = None;
            return;
        };
        drop(held);
        tokio::time::sleep_until(due.into()).await;
    }
}

/// Lines that wait for equal ones.
#[derive(Default)]
struct Lines {
    /// In the order in which they are printed.
    waiting: VecDeque<Line>,
    /// How many lines have been printed, which is the number of the first that waits.
    printed: u64,
    /// The numbers of the lines of each text, in their order.
    numbers: HashMap<Arc<[u8]>, VecDeque<u64>>,
    /// The number of each process's last line.
    last: HashMap<Arc<str>, u64>,
    bytes: usize,
}

struct Line {
    text: Arc<[u8]>,
    /// The processes that have printed it, each once.
    processes: Vec<Arc<str>>,
    due: Instant,
}

impl Lines {
    /// Adds a line of a process.
    fn add(&mut self, process: &Arc<str>, text: &[u8], now: Instant) {
        self.bytes += PROCESS;
        let behind = self.last.get(process).map_or(0, |last| last + 1);
        let equal = self.numbers.get(text);
        let number = equal.and_then(|numbers| {
            numbers.get(numbers.partition_point(|number| *number < behind)).copied()
        });
        let number = number.unwrap_or_else(|| {
            self.bytes += text.len();
            let number = self.printed + self.waiting.len() as u64;
            let text: Arc<[u8]> = text.into();
            self.numbers.entry(Arc::clone(&text)).or_default().push_back(number);
            self.waiting.push_back(Line { text, processes: Vec::new(), due: now + WAIT });
            number
        });
        self.waiting[(number - self.printed) as usize].processes.push(Arc::clone(process));
        self.last.insert(Arc::clone(process), number);
    }

    /// Returns when the first line is due.
    fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|line| line.due)
    }

    /// Removes the lines that are due, or that have no room, and returns them as they are printed.
    fn take(&mut self, now: Instant) -> Vec<u8> {
        let mut printed = Vec::new();
        let is_due = |line: &Line, bytes| line.due <= now || bytes > ROOM;
        while self.waiting.front().is_some_and(|line| is_due(line, self.bytes))
            && let Some(line) = self.waiting.pop_front()
        {
            self.bytes -= line.text.len() + PROCESS * line.processes.len();
            if let Some(numbers) = self.numbers.get_mut(&line.text) {
                numbers.pop_front();
                if numbers.is_empty() {
                    self.numbers.remove(&line.text);
                }
            }
            for process in &line.processes {
                if self.last.get(process) == Some(&self.printed) {
                    self.last.remove(process);
                }
            }
            self.printed += 1;
            line.append(&mut printed);
        }
        printed
    }
}

impl Line {
    fn append(&self, printed: &mut Vec<u8>) {
        let are = |kind| {
            let is = |name: &Arc<str>| name.rsplit('/').next().is_some_and(|n| n.starts_with(kind));
            self.processes.iter().all(is)
        };
        let label = match &*self.processes {
            [process] => process.to_string(),
            processes if are("worker-") => format!("{} workers", processes.len()),
            processes if are("rank-") => format!("{} ranks", processes.len()),
            processes => format!("{} processes", processes.len()),
        };
        for part in [&b"["[..], label.as_bytes(), b"] ", &self.text, b"\n"] {
            printed.extend_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that come at times of a test, in milliseconds.
    struct Times {
        start: Instant,
        lines: Lines,
    }

    impl Times {
        fn new() -> Times {
            Times { start: Instant::now(), lines: Lines::default() }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn add(&mut self, ms: u64, process: &str, text: &str) {
            let now = self.at(ms);
            self.lines.add(&process.into(), text.as_bytes(), now);
        }

        fn take(&mut self, ms: u64) -> Vec<String> {
            let printed = self.lines.take(self.at(ms));
            String::from_utf8(printed).unwrap().lines().map(String::from).collect()
        }
    }

    #[test]
    fn equal_lines_of_many_processes_become_one_and_no_line_is_late() {
        let mut times = Times::new();
        for number in 0..32 {
            times.add(number, &format!("pool-1/worker-{number}"), "ready");
        }
        times.add(40, "pool-1/worker-3", "alone");
        assert_eq!(times.lines.due(), Some(times.at(100)));
        assert!(times.take(99).is_empty());
        assert_eq!(times.take(100), ["[32 workers] ready"]);
        assert_eq!(times.lines.due(), Some(times.at(140)));
        // One that comes later is another line.
        times.add(120, "pool-1/worker-0", "ready");
        assert_eq!(times.take(140), ["[pool-1/worker-3] alone"]);
        assert_eq!(times.take(220), ["[pool-1/worker-0] ready"]);
        assert_eq!(times.lines.due(), None);
        let Lines { waiting, numbers, last, bytes, .. } = &times.lines;
        assert!(waiting.is_empty() && numbers.is_empty() && last.is_empty() && *bytes == 0);
    }

    #[test]
    fn lines_of_a_process_keep_their_order_and_their_number() {
        let mut times = Times::new();
        for line in ["x", "a", "x"] {
            times.add(0, "p", line);
        }
        // Its first line is not printed before the one that it comes behind.
        for line in ["a", "x", "x"] {
            times.add(1, "q", line);
        }
        let printed = times.take(200);
        assert_eq!(printed, ["[p] x", "[2 processes] a", "[2 processes] x", "[q] x"]);

        // The earliest one is joined.
        for process in ["worker-1", "worker-2"] {
            (0..3).for_each(|_| times.add(300, process, "again"));
        }
        assert_eq!(times.take(400), ["[2 workers] again"; 3]);
    }

    #[test]
    fn each_process_finds_its_lines_in_their_order() {
        let mut times = Times::new();
        let (mut expected, mut printed) = (vec![Vec::new(); 5], Vec::new());
        let mut number: u64 = 1;
        for ms in 0..2000 {
            // A generator by D. H. Lehmer.
            number = number * 48271 % 0x7fff_ffff;
            let (process, text) = (number as usize % 5, number / 5 % 7);
            times.add(ms, &format!("process-{process}"), &text.to_string());
            expected[process].push(text.to_string());
            printed.extend(times.take(ms));
        }
        printed.extend(times.take(3000));
        let count = |line: &String| match line.split_once(" processes] ") {
            Some((count, _)) => count[1..].parse().unwrap(),
            None => 1,
        };
        assert_eq!(printed.iter().map(count).sum::<usize>(), 2000);
        assert!(printed.len() < 1300, "{} lines", printed.len());
        for lines in expected {
            let mut texts = printed.iter().map(|line| line.split_once("] ").unwrap().1);
            assert!(lines.iter().all(|line| texts.any(|text| text == line)));
        }
    }

    #[test]
    fn lines_without_room_are_printed_at_once() {
        let mut times = Times::new();
        let long = "x".repeat(ROOM / 2);
        times.add(0, "p", &long);
        assert!(times.take(1).is_empty());
        times.add(1, "p", &long);
        assert_eq!(times.take(1).len(), 1);
        assert_eq!(times.take(101).len(), 1);
    }

    #[test]
    fn the_kind_of_processes_is_named() {
        let label = |names: [&str; 2]| {
            let mut times = Times::new();
            for name in names {
                times.add(0, name, "");
            }
            times.take(100)
        };
        assert_eq!(label(["a/worker-1", "worker-2"]), ["[2 workers] "]);
        assert_eq!(label(["ring-1/rank-0", "ring-1/rank-1"]), ["[2 ranks] "]);
        assert_eq!(label(["a/worker-1", "talker"]), ["[2 processes] "]);
    }
}

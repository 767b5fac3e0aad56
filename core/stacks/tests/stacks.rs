//! Stacks of this process's threads, in all states that a thread can be in.

#![cfg(feature = "stacks")]
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fiber_core::stacks::{
    ProcessStack, Profile, ProgramNames, ThreadStack, ThreadState, Unnamed, thread_id,
};
use fiber_stacks::{capture, profile, program_names};

/// Names the functions on stacks. This process may read its own debug information, once for each
/// offset.
fn named<T: Unnamed>(mut stacks: T) -> T {
    static KNOWN: Mutex<ProgramNames> = Mutex::new(ProgramNames::new());
    let offsets = stacks.unnamed();
    let mut known = KNOWN.lock().unwrap();
    let new: BTreeSet<u64> =
        offsets.into_iter().filter(|offset| !known.contains_key(offset)).collect();
    if !new.is_empty() {
        known.extend(program_names(&new).unwrap());
    }
    stacks.set_names(&known);
    stacks
}

fn capture_thread(tid: u32, limit: Duration) -> fiber_core::Result<ThreadStack> {
    fiber_stacks::capture_thread(tid, limit).map(named)
}

const LIMIT: Duration = Duration::from_secs(60);

/// A thread that runs until it is told to end.
struct Subject {
    tid: u32,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Subject {
    /// Starts a thread in `body`, which returns once its argument is true.
    fn start(body: fn(&AtomicBool)) -> Subject {
        let (report, reported) = mpsc::channel();
        let end = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&end);
        let thread = thread::Builder::new().name("subject".into());
        let thread = thread.spawn(move || {
            report.send(thread_id()).unwrap();
            body(&seen);
        });
        Subject { tid: reported.recv().unwrap(), end, thread: Some(thread.unwrap()) }
    }

    /// Captures the thread's stack until it is as `expected`.
    fn stack(&self, expected: impl Fn(&ThreadStack) -> bool) -> ThreadStack {
        loop {
            let stack = capture_thread(self.tid, LIMIT).unwrap();
            if expected(&stack) {
                return stack;
            }
            thread::yield_now();
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let thread = self.thread.take().unwrap();
        thread.thread().unpark();
        // A failed assertion has its own message.
        let _ = thread.join();
    }
}

fn position(stack: &ThreadStack, function: &str) -> Option<usize> {
    stack.frames.iter().position(|frame| {
        frame.function.as_ref().is_some_and(|name| name.ends_with(&format!("::{function}")))
    })
}

fn has(stack: &ThreadStack, function: &str) -> bool {
    position(stack, function).is_some()
}

#[inline(never)]
fn park_until(end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        thread::park();
    }
    black_box(());
}

#[inline(never)]
fn spin_until(end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {}
    black_box(());
}

#[test]
fn a_thread_that_sleeps_shows_its_function_file_and_line_and_the_system_call() {
    let subject = Subject::start(park_until);
    let stack = subject.stack(|stack| {
        stack.state == ThreadState::Sleeping && has(stack, "park_until") && has(stack, "park")
    });
    assert_eq!((stack.tid, &*stack.name), (subject.tid, "subject"));
    assert_eq!(stack.waits_in.as_deref(), Some("futex"), "{stack}");
    assert!(!stack.truncated && stack.problem.is_none(), "{stack:#}");
    let frame = &stack.frames[position(&stack, "park_until").unwrap()];
    assert!(frame.file.as_ref().is_some_and(|file| file.ends_with("core/stacks/tests/stacks.rs")));
    assert!(frame.line.is_some() && !frame.inlined && frame.module.starts_with("stacks-"));
    // The outermost frames are the start of the thread.
    let last = stack.frames.last().unwrap();
    assert!(last.module.starts_with("libc"), "{stack:#}");

    let text = stack.to_string();
    assert!(text.contains("`subject`: sleeps in futex") && text.contains("park_until ("), "{text}");
    assert!(text.contains("core/stacks/tests/stacks.rs:"), "{text}");
    assert!(!text.contains("__rust_begin_short_backtrace"), "{text}");
    assert!(format!("{stack:#}").contains("__rust_begin_short_backtrace"));
}

#[test]
fn a_loop_without_calls_is_seen() {
    let subject = Subject::start(spin_until);
    let stack = subject.stack(|stack| has(stack, "spin_until"));
    assert_eq!((stack.state, stack.waits_in), (ThreadState::Running, None));
    subject.stack(|stack| stack.cpu > Duration::from_millis(1));
}

#[test]
fn all_threads_are_listed_and_the_one_that_asks_says_so() {
    let subjects = [Subject::start(park_until), Subject::start(spin_until)];
    for subject in &subjects {
        subject.stack(|stack| has(stack, "park_until") || has(stack, "spin_until"));
    }
    let stack = capture(LIMIT).unwrap();
    assert_eq!(stack.pid, std::process::id());
    for subject in &subjects {
        let found = stack.threads.iter().find(|thread| thread.tid == subject.tid).unwrap();
        assert!(!found.frames.is_empty(), "{found}");
    }
    assert!(!stack.to_string().contains("park_until"), "this process does not name its functions");
    let stack = named(stack);
    assert!(stack.to_string().contains("park_until"), "{stack}");
    let own = stack.threads.iter().find(|thread| thread.tid == thread_id()).unwrap();
    assert_eq!((own.frames.len(), own.problem.as_deref()), (0, Some("it takes the stacks")));

    let text = serde_json::to_string(&stack).unwrap();
    assert_eq!(serde_json::from_str::<ProcessStack>(&text).unwrap(), stack);
}

#[test]
fn a_thread_that_allocates_does_not_hold_up_the_capture() {
    #[inline(never)]
    fn allocate(end: &AtomicBool) {
        while !end.load(Ordering::Relaxed) {
            for size in [16, 4096, 1 << 20] {
                black_box(vec![1_u8; size]);
            }
        }
    }
    let subject = Subject::start(allocate);
    let mut inside = 0;
    // Most stacks are inside of an allocation, a few hundred in the C library with its lock held.
    while inside < 100 {
        let stack = subject.stack(|stack| has(stack, "allocate"));
        inside += u32::from(stack.frames[0].module.starts_with("libc"));
    }
}

fn block_all_signals() {
    // SAFETY: `sigfillset` fills the set before it is read.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

#[test]
fn a_thread_that_blocks_the_signal_shows_its_state_and_the_reason() {
    fn block_all(end: &AtomicBool) {
        block_all_signals();
        park_until(end);
    }
    let subject = Subject::start(block_all);
    let stack = subject.stack(|stack| stack.problem.is_some() && stack.waits_in.is_some());
    assert!(stack.frames.is_empty() && stack.state == ThreadState::Sleeping, "{stack}");
    assert!(stack.to_string().contains("no stack: it blocks signal"), "{stack}");
}

#[test]
fn a_thread_that_blocks_the_signal_and_runs_is_not_waited_for_when_it_sleeps() {
    static IS_ASKED: AtomicBool = AtomicBool::new(false);
    fn run_then_sleep(end: &AtomicBool) {
        block_all_signals();
        let mut pending = 0;
        while pending == 0 && !end.load(Ordering::Relaxed) {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let bits = status.lines().find_map(|line| line.strip_prefix("SigPnd:")).unwrap();
            pending = u64::from_str_radix(bits.trim(), 16).unwrap();
        }
        IS_ASKED.store(true, Ordering::Relaxed);
        park_until(end);
    }
    let subject = Subject::start(run_then_sleep);
    // A thread that sleeps when it is looked at is not asked.
    let stack = subject.stack(|_| IS_ASKED.load(Ordering::Relaxed));
    assert!(stack.to_string().contains("no stack: it blocks signal"), "{stack}");
}

#[test]
fn a_stack_that_is_too_deep_is_shown_from_its_inner_end_and_says_so() {
    #[inline(never)]
    fn recurse(depth: u64, end: &AtomicBool) -> u64 {
        let local = black_box([depth; 16]);
        if depth == 0 {
            park_until(end);
            return 0;
        }
        recurse(depth - 1, end) + local[1]
    }
    #[inline(never)]
    fn large(end: &AtomicBool) {
        let local = black_box([1_u8; 400 << 10]);
        park_until(end);
        black_box(&local);
    }
    let deep = Subject::start(|end| {
        recurse(2000, end);
    });
    let stack = deep.stack(|stack| has(stack, "park_until"));
    assert!(stack.truncated && stack.frames.len() >= 256, "{}", stack.frames.len());
    assert!(position(&stack, "recurse") > position(&stack, "park_until"));
    assert!(stack.to_string().contains("frames are missing"), "{stack}");

    // The copy ends inside of the first large frame.
    let large = Subject::start(large);
    let stack = large.stack(|stack| has(stack, "park_until"));
    assert!(stack.truncated && stack.frames.len() < 20, "{stack}");
}

#[test]
fn the_stack_of_a_signal_handler_goes_on_in_what_it_interrupted() {
    static END: AtomicBool = AtomicBool::new(false);
    extern "C" fn handle(_: i32) {
        spin_until(&END);
        // Keeps its frame: this crate is optimized in debug builds, too.
        black_box(());
    }
    let subject = Subject::start(spin_until);
    subject.stack(|stack| has(stack, "spin_until"));
    // SAFETY: the handler is a static function that only reads an atomic variable.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        libc::syscall(libc::SYS_tgkill, libc::getpid(), subject.tid, libc::SIGUSR1);
    }
    let stack = subject.stack(|stack| has(stack, "handle"));
    END.store(true, Ordering::Relaxed);
    let handler = position(&stack, "handle").unwrap();
    let mut interrupted = stack.clone();
    interrupted.frames.drain(..=handler);
    assert!(has(&interrupted, "spin_until"), "{stack:#}");
    assert!(!stack.truncated, "{stack:#}");
}

#[test]
fn five_hundred_threads_answer() {
    let subjects: Vec<_> = (0..500).map(|_| Subject::start(park_until)).collect();
    let last = subjects.last().unwrap();
    last.stack(|stack| has(stack, "park_until"));
    let start = Instant::now();
    let stack = capture(LIMIT).unwrap();
    println!("{} threads in {:?}", stack.threads.len(), start.elapsed());
    for subject in &subjects {
        let found = stack.threads.iter().find(|thread| thread.tid == subject.tid).unwrap();
        assert!(found.problem.is_none() && !found.frames.is_empty(), "{found}");
    }
}

#[test]
fn threads_may_start_and_end_during_captures_and_captures_overlap() {
    let end = AtomicBool::new(false);
    let subject = Subject::start(spin_until);
    let start = Barrier::new(3);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                let threads: Vec<_> = (0..8).map(|_| thread::spawn(|| black_box(()))).collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            }
        });
        let capturing: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..30 {
                        let stack = capture(LIMIT).unwrap();
                        let found = stack.threads.iter().find(|thread| thread.tid == subject.tid);
                        let found = found.unwrap();
                        assert!(!found.frames.is_empty(), "{found}");
                    }
                })
            })
            .collect();
        let results: Vec<_> = capturing.into_iter().map(|thread| thread.join()).collect();
        end.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
}

#[test]
fn a_thread_that_has_ended_is_an_error() {
    let subject = Subject::start(park_until);
    let tid = subject.tid;
    drop(subject);
    // Joining a thread does not wait until the kernel has removed it.
    while std::path::Path::new(&format!("/proc/self/task/{tid}")).exists() {}
    let error = capture_thread(tid, LIMIT).unwrap_err().to_string();
    assert!(error.contains("no such thread"), "{error}");
}

#[test]
fn a_thread_that_is_asked_goes_on_with_its_system_call() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let (report, reported) = mpsc::channel();
    let thread = thread::spawn(move || {
        report.send(thread_id()).unwrap();
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        (byte[0], ASKED.load(Ordering::Relaxed))
    });
    let tid = reported.recv().unwrap();
    loop {
        let stack = capture_thread(tid, LIMIT).unwrap();
        if stack.waits_in.as_deref().is_some_and(|call| call.starts_with("read of pipe:")) {
            break;
        }
    }
    for _ in 0..100 {
        assert!(capture_thread(tid, LIMIT).unwrap().problem.is_none());
        ASKED.fetch_add(1, Ordering::Relaxed);
    }
    writer.write_all(&[7]).unwrap();
    assert_eq!(thread.join().unwrap(), (7, 100));
}

/// Takes a profile with names.
fn profiled(idle: bool) -> Profile {
    named(profile(Duration::from_millis(300), 99, idle).unwrap())
}

#[test]
fn a_profile_counts_what_runs_and_with_idle_what_waits() {
    #[inline(never)]
    fn busy(end: &AtomicBool) {
        spin_until(end);
        black_box(());
    }
    let _busy = Subject::start(busy);
    let waiting = Subject::start(park_until);
    waiting.stack(|stack| stack.state == ThreadState::Sleeping && has(stack, "park"));
    // Until there are samples: other tests may keep the cores busy.
    let (running, all) = loop {
        let (running, all) = (profiled(false), profiled(true));
        if running.folded(false).contains("busy") && all.folded(false).contains("park_until") {
            break (running, all);
        }
    };
    let folded = running.folded(false);
    let is_busy = |line: &&str| line.starts_with("subject;") && line.contains("busy;");
    let busy = folded.lines().find(is_busy).unwrap();
    assert!(busy.contains("::busy;stacks::spin_until"), "{busy}");
    assert!(!running.shows_waits(false) && !all.shows_waits(false));
    assert!(running.duration >= Duration::from_millis(300) - Duration::from_millis(11));
    assert!(running.cpu > Duration::ZERO && running.share(false) <= running.share(true));
    for line in folded.lines().chain(all.folded(true).lines()) {
        let (_, count) = line.rsplit_once(' ').unwrap();
        assert!(count.parse::<u64>().unwrap() > 0);
    }
    assert!(profile(Duration::ZERO, 99, false).is_err());
    let error = profile(LIMIT, 0, false).unwrap_err().to_string();
    assert!(error.contains("use 1 to 1000"), "{error}");
}

//! The signal by which stacks are taken. This is a process of its own, because its handlers are
//! changed, and because one of its threads does not answer.

#![cfg(feature = "stacks")]
#![allow(unsafe_code)]

use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fiber_core::stacks::thread_id;
use fiber_stacks::{capture, capture_thread};

const LIMIT: Duration = Duration::from_secs(60);

/// Returns whether this process has a handler for a signal.
fn is_handled(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

fn handled() -> Vec<i32> {
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(|signal| is_handled(*signal)).collect()
}

fn set_handler(signal: i32, handler: usize) {
    // SAFETY: the handlers of this test do nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

extern "C" fn ignore(_: i32) {}

#[test]
fn fiber_takes_a_signal_that_the_program_does_not_use_and_no_signal_before_the_first_request() {
    let used = ignore as extern "C" fn(i32) as usize;
    let last = libc::SIGRTMAX();
    assert_eq!(handled(), [0_i32; 0]);
    set_handler(last, used);
    set_handler(last - 1, libc::SIG_IGN);
    capture(LIMIT).unwrap();
    assert_eq!(handled(), [last - 2, last]);

    // The program takes the signal for itself: fiber takes another one.
    set_handler(last - 2, used);
    let stack = capture(LIMIT).unwrap();
    assert_eq!(handled(), [last - 3, last - 2, last]);
    let others = stack.threads.iter().filter(|thread| thread.tid != thread_id());
    assert!(others.clone().count() > 0 && others.clone().all(|thread| thread.problem.is_none()));

    // A program that it starts has no part in it.
    let child = Command::new("cat").arg("/proc/self/status").output().unwrap();
    let status = String::from_utf8(child.stdout).unwrap();
    assert!(status.contains("SigCgt:\t0000000000000000\n"), "{status}");

    for signal in libc::SIGRTMIN()..=last {
        set_handler(signal, used);
    }
    let error = capture(LIMIT).unwrap_err().to_string();
    assert!(error.contains("handles or ignores all realtime signals"), "{error}");
    set_handler(last - 4, libc::SIG_DFL);
    capture(LIMIT).unwrap();

    a_thread_that_does_not_answer_costs_no_more_than_the_limit_and_may_answer_later();
}

fn a_thread_that_does_not_answer_costs_no_more_than_the_limit_and_may_answer_later() {
    let (report, reported) = mpsc::channel();
    let waiting = thread::spawn(move || {
        report.send(thread_id()).unwrap();
        // The kernel holds this thread until its child ends. No signal shortens that.
        // SAFETY: the child, with a memory of its own, only calls `pause`.
        unsafe {
            let flags = libc::CLONE_VFORK | libc::SIGCHLD;
            let child = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) as i32;
            if child == 0 {
                loop {
                    libc::pause();
                }
            }
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        report.send(0).unwrap();
        thread::park();
    });
    let tid = reported.recv().unwrap();
    let children = format!("/proc/self/task/{tid}/children");
    let child = loop {
        if let Ok(child) = std::fs::read_to_string(&children).unwrap().trim().parse::<i32>() {
            break child;
        }
    };
    let start = Instant::now();
    let stack = capture_thread(tid, Duration::from_millis(20)).unwrap();
    assert_eq!(stack.problem.as_deref(), Some("it did not answer in time"), "{stack}");
    assert!(start.elapsed() < LIMIT);
    // The signal waits. A second one would wait with it.
    let stack = capture_thread(tid, LIMIT).unwrap();
    assert_eq!(stack.problem.as_deref(), Some("it has not answered an earlier request"));
    // SAFETY: the call only sends a signal.
    unsafe { libc::kill(child, libc::SIGKILL) };
    assert_eq!(reported.recv().unwrap(), 0);
    let stack = capture_thread(tid, LIMIT).unwrap();
    assert!(stack.problem.is_none() && !stack.frames.is_empty(), "{stack}");
    waiting.thread().unpark();
    waiting.join().unwrap();
}

//! The end of this process: exit hooks, and work that nothing may interrupt.

#![allow(unsafe_code)]

use std::io::Write;
use std::mem::MaybeUninit;
use std::ptr;

use parking_lot::Mutex;

pub(crate) fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// Writes out an unfinished line on standard output. The standard library keeps it until the line
/// ends, so it would be lost if the process were killed.
pub fn flush_output() {
    // Output that can't be written has no reader any more.
    let _ = crate::Patient(std::io::stdout()).flush();
}

/// Runs `work`, shielded from the outside, and exits. Signals are blocked except SIGKILL and
/// SIGSTOP, all descriptors except the standard ones are closed, and the working directory is `/`.
pub fn run_shielded(work: impl FnOnce()) -> ! {
    let mut all = MaybeUninit::uninit();
    // SAFETY: `sigfillset` fills the set before `sigprocmask` reads it, and the old set is not
    // asked for.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut());
    }
    if has_one_thread() {
        // SAFETY: no other thread uses a descriptor, and this one returns to no owner of one: it
        // ends below.
        unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    }
    let _ = std::env::set_current_dir("/");
    work();
    // SAFETY: it ends the process; nothing is left for exit hooks to do.
    unsafe { libc::_exit(0) }
}

/// Gets whether the exiting thread may wait for fiber's thread.
type Hook = Box<dyn FnOnce(bool) + Send>;

/// Registers a `hook` for the end of `main` and for `std::process::exit`. The hook registered last
/// runs first.
///
/// Hooks run on a thread of their own, because the exiting thread has lost its thread-locals by
/// then. Their argument says whether the exiting thread may wait for fiber's thread.
pub fn at_exit(hook: impl FnOnce(bool) + Send + 'static) {
    // The C library calls a function without arguments.
    static HOOKS: Mutex<Vec<Hook>> = Mutex::new(Vec::new());
    extern "C" fn run() {
        // A fork's parent goes on with its children.
        if crate::forks::is_any_fork() {
            return;
        }
        let waiting_allowed = crate::waiting_allowed();
        let hooks = move || {
            let next = || HOOKS.lock().pop();
            while let Some(hook) = next() {
                hook(waiting_allowed);
            }
        };
        // If no thread can be started, the kernel kills the children.
        if let Ok(thread) = std::thread::Builder::new().spawn(hooks) {
            let _ = thread.join();
        }
    }
    let mut hooks = HOOKS.lock();
    if hooks.is_empty() {
        // SAFETY: `run` is a function of the C calling convention that lives as long as the program
        // and does not unwind.
        unsafe { libc::atexit(run) };
    }
    hooks.push(Box::new(hook));
}

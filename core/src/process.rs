//! What this process was started as, and what is to happen when it exits.

#![allow(unsafe_code)]

use std::ffi::{CString, OsString};
use std::io::Write;
use std::mem::MaybeUninit;
use std::ptr;

use parking_lot::Mutex;

/// Takes two variables out of this process's environment, so that programs that it starts do not
/// inherit them. The value of `secret` is overwritten where it was, so that `/proc/self/environ`
/// does not show it any more.
///
/// `None`, when other threads run already: then the environment can't be changed safely.
pub fn take_env(plain: &str, secret: &str) -> Option<[Option<OsString>; 2]> {
    if !has_one_thread() {
        return None;
    }
    let values = [plain, secret].map(std::env::var_os);
    if let Ok(name) = CString::new(secret) {
        // SAFETY: this is the only thread (just counted), so nothing else reads the environment.
        // `getenv` returns a string of this process's environment, which is writable and which no
        // reference borrows: `var_os` has copied it.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            if !value.is_null() {
                ptr::write_bytes(value, b'-', libc::strlen(value));
            }
        }
    }
    // SAFETY: this is the only thread, and it starts none before this returns.
    [plain, secret].iter().for_each(|name| unsafe { std::env::remove_var(name) });
    Some(values)
}

fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// The value of a variable that was given to this process as a secret: what the variable holds, or,
/// if that is `-`, the next line of standard input. `None` if that is no text, or there is no such
/// line.
pub fn secret(value: OsString) -> Option<String> {
    let value = value.into_string().ok()?;
    if value != "-" {
        return Some(value);
    }
    let mut line = Vec::new();
    // Not a byte more: the rest is the program's.
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        if rustix::io::retry_on_intr(|| rustix::io::read(rustix::stdio::stdin(), &mut byte)).ok()?
            == 0
        {
            return None;
        }
        line.push(byte[0]);
    }
    line.pop();
    String::from_utf8(line).ok()
}

/// Makes standard input `/dev/null`, in place of what secrets came from.
pub fn close_input() {
    // Where there is no such device, standard input stays at its end, which reads the same.
    if let Ok(null) = std::fs::File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(null);
    }
}

/// Writes out what this process has printed without ending the line. The standard library keeps
/// that until the line ends, and it would be lost if the process were killed.
pub fn flush_output() {
    // An output that can't be written has no reader any more.
    let _ = std::io::stdout().flush();
}

/// Does `work` shielded from the outside, and exits: no signal but SIGKILL and SIGSTOP reaches this
/// process, it keeps no descriptor open beyond the standard ones, and no directory in use.
pub fn shielded(work: impl FnOnce()) -> ! {
    let mut all = MaybeUninit::uninit();
    // SAFETY: `sigfillset` fills the set before `sigprocmask` reads it, and no old set is asked
    // for.
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

/// Has the allocator keep large blocks of memory for the next message of that size, in place of
/// giving each back to the system and getting it again page by page.
///
/// glibc takes the size of a mapped block that is freed for one that is needed often: blocks up to
/// that size come from its heaps from then on, which keep twice as much at their ends
/// (`M_MMAP_THRESHOLD` in mallopt(3)). To other allocators it is a block like any other. No page of
/// it is touched. Where the address space is limited to less, large blocks are not kept.
pub fn keep_large_blocks() {
    const LARGE: usize = 16 << 20;
    let mut block = Vec::<u8>::new();
    if block.try_reserve_exact(LARGE).is_ok() {
        drop(std::hint::black_box(block));
    }
}

/// Has `hook` called when this process exits by itself: by the end of `main` or by
/// `std::process::exit`.
///
/// It runs on a thread of its own, because the exiting thread has lost its thread-locals by then,
/// and is told whether the exiting thread may wait for fiber's. Of several hooks the last comes
/// first.
pub fn at_exit(hook: fn(waiting_allowed: bool)) {
    static HOOKS: Mutex<Vec<fn(bool)>> = Mutex::new(Vec::new());
    extern "C" fn run() {
        let waiting_allowed = crate::waiting_allowed();
        let hooks = move || {
            let next = || HOOKS.lock().pop();
            while let Some(hook) = next() {
                hook(waiting_allowed);
            }
        };
        // Where there is no thread to be had, nor room to say so, the kernel ends the children.
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
    hooks.push(hook);
}

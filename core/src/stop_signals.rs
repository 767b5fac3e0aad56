//! The signals by which users and systems stop a program that may listen for them itself.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, transmute};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{sigaction, siginfo_t};
use rustix::event::{EventfdFlags, eventfd};
use tokio::io::unix::AsyncFd;

use crate::{Ignored, forks};

const NUMBERS: [c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The stream of the stop signals that only fiber handles: SIGINT, SIGTERM and SIGHUP. A signal
/// that this process ignores stays ignored. A signal for which the program itself has a handler,
/// from before or since, goes to that handler alone: the program ends itself.
#[derive(Debug)]
pub struct StopSignals {
    wakeup: AsyncFd<OwnedFd>,
}

/// The data of the signal handler. It exists before the handler is installed, and for good.
struct State {
    wakeup: OwnedFd,
    /// A bit for each signal that has come.
    arrived: AtomicU64,
    /// The actions that were in place before, in the order of [`NUMBERS`].
    previous: [sigaction; 3],
}

static STATE: OnceLock<State> = OnceLock::new();

impl StopSignals {
    /// Listens for the signals that this process did not ignore at an earlier moment. Needs a
    /// runtime of tokio.
    ///
    /// # Errors
    /// An error of the system.
    pub fn listen(ignored: Ignored) -> io::Result<StopSignals> {
        let wakeup = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let previous = [current(NUMBERS[0])?, current(NUMBERS[1])?, current(NUMBERS[2])?];
        let state = STATE.get_or_init(|| State { wakeup, arrived: AtomicU64::new(0), previous });
        for number in NUMBERS.into_iter().filter(|number| !ignored.contains(*number)) {
            install(number)?;
        }
        let wakeup = state.wakeup.try_clone()?;
        // SAFETY: the descriptor is moved there, and stays open until it is dropped.
        Ok(StopSignals { wakeup: unsafe { AsyncFd::register(wakeup) }? })
    }

    /// Waits for the next signal that the program does not handle, or that is fiber's all the same,
    /// and returns its number.
    pub async fn next(&mut self, is_ours: impl Fn(i32) -> bool) -> i32 {
        let state = STATE.get().expect("`listen` has made it");
        loop {
            let mut arrived = state.arrived.swap(0, Ordering::AcqRel);
            while arrived != 0 {
                let number = arrived.trailing_zeros().cast_signed();
                arrived &= arrived - 1;
                if is_ours(number) || !is_handled_by_the_program(number) {
                    state.arrived.fetch_or(arrived, Ordering::AcqRel);
                    return number;
                }
                tracing::debug!("signal {number} is left to the program, which handles it");
            }
            let Ok(mut ready) = self.wakeup.readable().await else {
                return std::future::pending().await;
            };
            let _ = rustix::io::read(&state.wakeup, &mut [0; 8]);
            ready.clear_ready();
        }
    }
}

fn current(number: c_int) -> io::Result<sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: without a new action, the call only writes the present one.
    match unsafe { libc::sigaction(number, ptr::null(), action.as_mut_ptr()) } {
        // SAFETY: the call has written it.
        0 => Ok(unsafe { action.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn install(number: c_int) -> io::Result<()> {
    // SAFETY: the handler does what signal handlers may do: it reads a constant, changes an atomic
    // number, and writes to a file. All fields of an action may be zero.
    let installed = unsafe {
        let mut action: sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(number, &action, ptr::null_mut())
    };
    if installed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns whether a handler of the program was in place before fiber's, or has replaced it.
fn is_handled_by_the_program(number: c_int) -> bool {
    let replaced =
        current(number).is_ok_and(|action| action.sa_sigaction != on_signal as *const () as usize);
    replaced || previous(number).is_some_and(is_a_handler)
}

fn previous(number: c_int) -> Option<&'static sigaction> {
    let index = NUMBERS.iter().position(|one| *one == number)?;
    Some(&STATE.get()?.previous[index])
}

fn is_a_handler(action: &sigaction) -> bool {
    !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
}

extern "C" fn on_signal(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: it is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    if let Some(action) = previous(number).filter(|action| is_a_handler(action)) {
        // SAFETY: it is the handler that the program has installed for this signal.
        unsafe {
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                    transmute(action.sa_sigaction);
                handler(number, info, context);
            } else {
                let handler: extern "C" fn(c_int) = transmute(action.sa_sigaction);
                handler(number);
            }
        }
    } else if forks::is_any_fork() {
        // Nothing in it waits for the signal, which ends it when this handler has returned. `raise`
        // would not know the thread of a fork that the C library has not made.
        // SAFETY: a signal handler may call these functions.
        unsafe {
            libc::signal(number, libc::SIG_DFL);
            libc::kill(libc::getpid(), number);
        }
        return;
    }
    if let Some(state) = STATE.get() {
        state.arrived.fetch_or(1 << number, Ordering::AcqRel);
        let one = 1_u64;
        // SAFETY: the pointer is to a number of eight bytes.
        unsafe { libc::write(state.wakeup.as_raw_fd(), (&raw const one).cast(), 8) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

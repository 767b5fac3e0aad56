//! The signal by which a thread copies its own registers and stack. This file has the `unsafe` code
//! of it.
//!
//! The requester writes the thread's id into a [`Slot`] and sends the signal to the thread. The
//! handler looks for the slot with its own thread's id, fills it and reports that it has. If the
//! thread does not answer in time, the requester takes the request back; then the handler, which
//! may run at any later time, finds no slot and returns. So a signal never needs to be taken back,
//! and it does not matter who sent it.
//!
//! The handler may interrupt any code, also an allocation or a part of this file. Therefore it only
//! uses atomic variables, static memory that the requester has handed over to it, and system calls.
//! It takes no lock, allocates nothing, calls nothing that may panic, and restores `errno`.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::Timespec;
use rustix::thread::futex;

/// How many threads are asked at the same time.
const SLOTS: usize = 16;
/// How many words of a thread's stack are copied: 256 KiB.
const WORDS: usize = 256 << 10 >> 3;
const WORD: usize = size_of::<u64>();
const PAGE: usize = 4096;
/// The copy touches one page more than its size if it does not begin with a page.
const PAGES: usize = WORDS * WORD / PAGE + 1;

// The states of a slot. The others are the ids of threads, which are below 2^22.
/// Nobody uses it.
const FREE: u32 = 0;
/// The handler fills it.
const FILLING: u32 = u32::MAX;
/// The handler has filled it. It belongs to the requester.
const FILLED: u32 = u32::MAX - 1;
/// The handler still fills it, and the requester no longer waits.
const ABANDONED: u32 = u32::MAX - 2;

/// The registers from which a stack is unwound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    pub(super) instruction: u64,
    pub(super) stack: u64,
    pub(super) frame: u64,
    /// The return address of a function that has not stored it.
    #[cfg(target_arch = "aarch64")]
    pub(super) link: u64,
}

struct Slot {
    state: AtomicU32,
    content: UnsafeCell<Content>,
}

struct Content {
    registers: Registers,
    /// The ranges to copy. Not on the handler's own stack, which may be small.
    pages: [libc::iovec; PAGES],
    /// How many words of `stack` are copied.
    words: usize,
    stack: [u64; WORDS],
}

const NO_PAGE: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

// SAFETY: `content` is accessed by one thread at a time, which the state names: by the thread whose
// handler changed the state from its id to `FILLING`, until it changes the state again; then, in
// `FILLED`, by the one requester, which has the only `Request` of the slot. Each change that hands
// the slot over is a release, and the one that takes it over is an acquire.
unsafe impl Sync for Slot {}

/// Zeros, so that they take no space in the program's file, and no memory before their first use.
static TABLE: [Slot; SLOTS] = [const {
    Slot {
        state: AtomicU32::new(FREE),
        content: UnsafeCell::new(Content {
            registers: Registers {
                instruction: 0,
                stack: 0,
                frame: 0,
                #[cfg(target_arch = "aarch64")]
                link: 0,
            },
            pages: [NO_PAGE; PAGES],
            words: 0,
            stack: [0; WORDS],
        }),
    }
}; SLOTS];

/// Changes with each answer. The requester sleeps on it.
static ANSWERS: AtomicU32 = AtomicU32::new(0);

/// A thread that was asked for its stack.
#[derive(Debug)]
pub(super) struct Request {
    slot: usize,
    tid: u32,
}

impl Request {
    /// Asks a thread, unless all slots are taken.
    ///
    /// # Errors
    /// The thread has ended, or the kernel queues no more signals.
    pub(super) fn send(signal: c_int, tid: u32) -> Option<io::Result<Request>> {
        let slot = TABLE.iter().position(|slot| {
            // Acquire: a handler may have filled the slot after its requester gave up.
            slot.state.compare_exchange(FREE, tid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })?;
        let request = Request { slot, tid };
        // Dropping the request frees the slot.
        Some(send(tid, signal).map(|()| request))
    }

    fn slot(&self) -> &'static Slot {
        &TABLE[self.slot]
    }

    pub(super) fn tid(&self) -> u32 {
        self.tid
    }

    /// Returns whether the thread has ended, so that it will not answer.
    pub(super) fn thread_has_ended(&self) -> bool {
        // Signal 0 is none.
        send(self.tid, 0).is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
    }

    /// Returns the registers and the stack, from the stack pointer on, if the thread has answered.
    pub(super) fn answer(&mut self) -> Option<(Registers, &[u64])> {
        if self.slot().state.load(Ordering::Acquire) != FILLED {
            return None;
        }
        // SAFETY: the slot is filled, so it belongs to this request. The reference borrows the
        // request, which gives the slot back when it is dropped.
        let content = unsafe { &*self.slot().content.get() };
        Some((content.registers, &content.stack[..content.words]))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let state = &self.slot().state;
        let give_up =
            |from, to| state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        // Between two of these steps, the handler can only go on to the next state.
        let _ = give_up(self.tid, FREE)
            .or_else(|_| give_up(FILLING, ABANDONED))
            .or_else(|_| give_up(FILLED, FREE));
    }
}

fn send(tid: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: the call only sends a signal, whose handler is installed, or none.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid as c_int, signal) };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Counts the answers so far, for [`wait_for_answer`].
pub(super) fn answers() -> u32 {
    ANSWERS.load(Ordering::Acquire)
}

/// Waits until there are more answers than `seen`, or until the deadline, but no longer than
/// `limit`. Returns whether there are more.
pub(super) fn wait_for_answer(seen: u32, deadline: Instant, limit: Duration) -> bool {
    let left = deadline.saturating_duration_since(Instant::now()).min(limit);
    if let Ok(left) = Timespec::try_from(left) {
        // An error means that there is another answer, that the time is over, or that a signal
        // came.
        let _ = futex::wait(&ANSWERS, futex::Flags::PRIVATE, seen, Some(&left));
    }
    answers() != seen
}

/// Installs the handler of a signal.
///
/// # Errors
/// An error of the system.
pub(super) fn install(signal: c_int) -> io::Result<()> {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
    // SAFETY: zeros are a valid `sigaction`. `sigfillset` and `sigaction` get pointers to it. The
    // handler has the signature that `SA_SIGINFO` asks for, is a static function, and does only
    // what a handler may do (see the top of this file).
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // The interrupted thread may be at the end of its stack. But an alternate stack often has
        // no more than 8 KiB, and on processors with large registers (AMX) the kernel needs them
        // all.
        if libc::getauxval(libc::AT_MINSIGSTKSZ) <= 4096 {
            action.sa_flags |= libc::SA_ONSTACK;
        }
        // No other handler comes on top of this one.
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(signal, &action, ptr::null_mut())
    };
    if installed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the address to which the handler returns, by which it is found on a stack, if the
/// handler of this signal is still that of this file. The address is 0 where the C library does not
/// tell it.
pub(super) fn installed(signal: c_int) -> Option<u64> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call writes the current action to `action`, of which zeros are a valid value.
    let action = unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
    let restorer = action.sa_restorer.map_or(0, |restorer| restorer as usize as u64);
    (action.sa_sigaction == handler as usize).then_some(restorer)
}

extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a handler with `SA_SIGINFO` the thread's `ucontext_t`. `errno` is a
    // variable of this thread.
    unsafe {
        let errno = *libc::__errno_location();
        answer(registers(&*context.cast::<libc::ucontext_t>()));
        *libc::__errno_location() = errno;
    }
}

/// Fills the slot that asks for this thread, if there is one.
fn answer(registers: Registers) {
    // SAFETY: the call has no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    for slot in &TABLE {
        let filling =
            slot.state.compare_exchange(tid, FILLING, Ordering::AcqRel, Ordering::Relaxed);
        if filling.is_err() {
            continue;
        }
        // SAFETY: this thread has just changed the state to `FILLING`, so the content is its own
        // until it changes the state below. The signal is blocked while its handler runs, so no
        // other handler of this thread is here.
        unsafe { fill(slot.content.get(), registers) };
        let filled =
            slot.state.compare_exchange(FILLING, FILLED, Ordering::AcqRel, Ordering::Relaxed);
        if filled.is_err() {
            slot.state.store(FREE, Ordering::Release);
        }
        ANSWERS.fetch_add(1, Ordering::Release);
        // SAFETY: the address is that of a static variable.
        unsafe {
            let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            libc::syscall(libc::SYS_futex, ANSWERS.as_ptr(), wake, 1);
        }
        return;
    }
}

/// Stores the registers and the stack from the stack pointer on.
///
/// The kernel copies the stack, page by page up to the first that it can't read. A plain copy would
/// fault at the end of the stack, which this thread does not know. If the system forbids that call,
/// no word is copied, and the stack has one frame.
///
/// # Safety
/// `content` is not accessed by anything else.
unsafe fn fill(content: *mut Content, registers: Registers) {
    let start = registers.stack as usize & !(WORD - 1);
    let end = start.saturating_add(WORDS * WORD);
    // SAFETY: the caller owns `content`. The kernel writes at most the size of its stack to it, and
    // checks the addresses that it reads.
    unsafe {
        let Content { registers: stored, pages, words, stack } = &mut *content;
        let mut count = 0;
        let mut address = start;
        for page in pages.iter_mut() {
            if address < end {
                let next = (address | (PAGE - 1)).saturating_add(1).min(end);
                *page = libc::iovec { iov_base: address as *mut c_void, iov_len: next - address };
                address = next;
                count += 1;
            }
        }
        let to = libc::iovec { iov_base: stack.as_mut_ptr().cast(), iov_len: WORDS * WORD };
        let (pid, pages) = (libc::getpid(), pages.as_ptr());
        let copied =
            libc::syscall(libc::SYS_process_vm_readv, pid, &to, 1_usize, pages, count, 0_usize);
        *words = if copied < 0 { 0 } else { copied as usize / WORD };
        *stored = registers;
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let register = |name: c_int| context.uc_mcontext.gregs[name as usize] as u64;
    Registers {
        instruction: register(libc::REG_RIP),
        stack: register(libc::REG_RSP),
        frame: register(libc::REG_RBP),
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers {
        instruction: machine.pc,
        stack: machine.sp,
        frame: machine.regs[29],
        link: machine.regs[30],
    }
}

/// Returns the registers in the `ucontext_t` at `address`, by which the kernel continues an
/// interrupted thread, read word by word with `read`.
pub(super) fn interrupted<E>(
    address: u64,
    mut read: impl FnMut(u64) -> Result<u64, E>,
) -> Result<Registers, E> {
    let mut field = |offset: usize| read(address.wrapping_add(offset as u64));
    #[cfg(target_arch = "x86_64")]
    {
        let registers = std::mem::offset_of!(libc::ucontext_t, uc_mcontext)
            + std::mem::offset_of!(libc::mcontext_t, gregs);
        let mut register = |name: c_int| field(registers + WORD * name as usize);
        Ok(Registers {
            instruction: register(libc::REG_RIP)?,
            stack: register(libc::REG_RSP)?,
            frame: register(libc::REG_RBP)?,
        })
    }
    #[cfg(target_arch = "aarch64")]
    {
        let machine = std::mem::offset_of!(libc::ucontext_t, uc_mcontext);
        let registers = machine + std::mem::offset_of!(libc::mcontext_t, regs);
        Ok(Registers {
            instruction: field(machine + std::mem::offset_of!(libc::mcontext_t, pc))?,
            stack: field(machine + std::mem::offset_of!(libc::mcontext_t, sp))?,
            frame: field(registers + 29 * WORD)?,
            link: field(registers + 30 * WORD)?,
        })
    }
}

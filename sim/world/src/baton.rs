//! The baton: the right to run, which one thread of a world has.
//!
//! A change of threads by the kernel takes 3 µs, and a world does little else. So one thread of the
//! kernel, the *carrier*, runs the threads of the world in turn: it goes on with the registers, the
//! stack and the thread-local values of the next one. That one's own thread of the kernel is
//! parked, on a small stack. It is needed again when its thread of the world ends: it then runs the
//! C library's last steps and leaves the system.
//!
//! Where a program can't set the register of thread-local values by itself (other processors than
//! x86-64, kernels before Linux 5.9), the kernel changes threads.

// It changes stacks.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ptr::{eq, null};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use rustix::thread::futex;

use self::context::Context;
use crate::calls::wait_until_gone;

/// The size of the stack of a parked thread, which does nothing but wait.
const PARKING: usize = 16 << 10;

/// Whether a thread can carry others. Not a lock: its waiters would be the kernel's, and the thread
/// that opens it one of a world, which wakes others of its world alone.
static CAN_CARRY: AtomicBool = AtomicBool::new(false);

/// Prepares this module, before the first world.
pub(crate) fn prepare() {
    CAN_CARRY.store(context::ask(), Ordering::Relaxed);
}

fn can_carry() -> bool {
    CAN_CARRY.load(Ordering::Relaxed)
}

/// A place from which a thread of the world runs.
pub(crate) struct Seat {
    /// 1 when the own thread of the kernel goes on.
    go: AtomicU32,
    /// 1 when the context is that of a thread without the baton, or that thread has the baton.
    has_context: AtomicU32,
    /// The own thread of the kernel.
    thread: AtomicI32,
    context: UnsafeCell<Context>,
    parking: Vec<u128>,
}

impl Seat {
    pub(crate) fn new() -> Box<Seat> {
        Box::new(Seat {
            go: AtomicU32::new(0),
            has_context: AtomicU32::new(0),
            thread: AtomicI32::new(0),
            context: UnsafeCell::new(Context::default()),
            parking: Vec::with_capacity(PARKING / size_of::<u128>()),
        })
    }

    /// Lets the own thread of the kernel go on.
    fn let_go(&self) {
        set(&self.go);
    }

    fn wait_until_let_go(&self) {
        wait_for(&self.go);
        self.go.store(0, Ordering::SeqCst);
    }

    fn parking_top(&self) -> *mut u8 {
        // SAFETY: this is the end of the vector's memory.
        unsafe { self.parking.as_ptr().cast_mut().byte_add(PARKING).cast() }
    }
}

/// The holder of a world's baton.
pub(crate) struct Baton {
    /// The seat whose thread of the kernel is the carrier.
    carrier: *const Seat,
    /// The seat of a thread that has just ended.
    ended: *const Seat,
}

impl Baton {
    /// Gives the baton of a new world to its first thread, which begins soon.
    pub(crate) fn new(first: &Seat) -> Baton {
        first.go.store(1, Ordering::SeqCst);
        Baton { carrier: first, ended: null() }
    }
}

/// Waits for the baton, which this thread has never had.
///
/// # Safety
/// The seat lives as long as this thread.
pub(crate) unsafe fn take_seat(seat: &Seat) {
    seat.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
    if seat.go.load(Ordering::SeqCst) == 0 && can_carry() {
        // SAFETY: the parking stack is this thread's, and has room for what runs there.
        unsafe { context::leave(seat.context.get(), seat.parking_top(), parked, seat) };
    } else {
        seat.wait_until_let_go();
        set(&seat.has_context);
    }
}

/// Waits on the parking stack, and goes on where the seat's thread of the world is.
extern "C" fn parked(seat: *const Seat) -> ! {
    // SAFETY: the seat lives as long as its thread.
    let seat = unsafe { &*seat };
    set(&seat.has_context);
    seat.wait_until_let_go();
    // SAFETY: the carrier has left this context.
    unsafe { context::resume(seat.context.get()) }
}

/// Lets the next thread go on, and returns when this one has the baton again, or is to leave the
/// system since it has ended. `over` is set if there is no next one.
///
/// # Safety
/// This thread has the baton. The pointers are those of one world, and all seats live as long as
/// their threads.
pub(crate) unsafe fn pass(
    baton: *mut Baton,
    own: &Seat,
    next: Option<&Seat>,
    over: &AtomicU32,
    has_ended: bool,
) {
    // SAFETY: this thread has the baton. It is not used after a change of threads, but by the one
    // that has it then.
    let place = unsafe { &mut *baton };
    let is_carrier = eq(place.carrier, own);
    if has_ended {
        place.ended = own;
    }
    let Some(next) = next else {
        let carrier = place.carrier;
        set(over);
        if !has_ended {
            loop {
                own.wait_until_let_go();
            }
        }
        if !is_carrier {
            // The own thread of the kernel needs this stack.
            // SAFETY: the carrier's thread has not ended, so its seat and parking stack are there.
            unsafe {
                let top = (*carrier).parking_top();
                context::leave(own.context.get(), top, stay, own);
            }
        }
        return;
    };
    if !can_carry() || (has_ended && is_carrier) {
        place.carrier = next;
        next.let_go();
        if has_ended {
            return;
        }
        own.wait_until_let_go();
    } else {
        wait_for(&next.has_context);
        // SAFETY: the next thread is parked, or has left its context when it passed the baton.
        unsafe { context::change(own.context.get(), next.context.get()) };
        if has_ended {
            return;
        }
    }
    // SAFETY: as above.
    unsafe { arrive(baton) };
}

/// Lets a thread that has just ended leave the system, before anything else happens: its last steps
/// give memory back, on which the addresses of later values depend.
///
/// # Safety
/// This thread has the baton.
pub(crate) unsafe fn arrive(baton: *mut Baton) {
    // SAFETY: this thread has the baton.
    let ended = unsafe { std::mem::replace(&mut (*baton).ended, null()) };
    // SAFETY: seats live as long as the world.
    if let Some(ended) = unsafe { ended.as_ref() } {
        let thread = ended.thread.load(Ordering::SeqCst);
        ended.let_go();
        wait_until_gone(thread);
    }
}

/// Lets the thread of the kernel of a seat go on, for the last time, and waits for ever.
extern "C" fn stay(seat: *const Seat) -> ! {
    // SAFETY: the seat's thread of the kernel waits there.
    unsafe { &*seat }.let_go();
    let never = AtomicU32::new(0);
    loop {
        wait_for(&never);
    }
}

/// Sets a flag, and wakes the one that waits for it.
pub(crate) fn set(flag: &AtomicU32) {
    flag.store(1, Ordering::SeqCst);
    let _ = futex::wake(flag, futex::Flags::PRIVATE, 1);
}

/// Waits until the flag is set.
pub(crate) fn wait_for(flag: &AtomicU32) {
    while flag.load(Ordering::SeqCst) == 0 {
        let _ = futex::wait(flag, futex::Flags::PRIVATE, 0, None);
    }
}

/// Registers, of which a call keeps those that are not its caller's, and the register of
/// thread-local values.
#[cfg(target_arch = "x86_64")]
mod context {
    use std::arch::naked_asm;

    /// Where a thread goes on. The registers are on its stack.
    #[derive(Default)]
    #[repr(C)]
    pub(super) struct Context {
        stack: usize,
        thread_local: usize,
    }

    /// Returns whether a thread can set its register of thread-local values.
    pub(super) fn ask() -> bool {
        /// The bit of the kernel's answer.
        const FSGSBASE: u64 = 1 << 1;
        // SAFETY: the call has no conditions.
        unsafe { libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 }
    }

    /// Leaves this context for another one.
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn change(own: *mut Context, next: *const Context) {
        naked_asm!(
            "push rbp; push rbx; push r12; push r13; push r14; push r15",
            "sub rsp, 8; stmxcsr [rsp]; fnstcw [rsp + 4]",
            "rdfsbase rax; mov [rdi], rsp; mov [rdi + 8], rax",
            "mov rdi, rsi; jmp {resume}",
            resume = sym resume,
        )
    }

    /// Goes on with a context that was left.
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn resume(context: *const Context) -> ! {
        naked_asm!(
            "mov rax, [rdi + 8]; wrfsbase rax; mov rsp, [rdi]",
            "ldmxcsr [rsp]; fldcw [rsp + 4]; add rsp, 8",
            "pop r15; pop r14; pop r13; pop r12; pop rbx; pop rbp",
            "ret",
        )
    }

    /// Leaves this context, and calls a function on another stack.
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn leave<T>(
        own: *mut Context,
        stack: *mut u8,
        function: extern "C" fn(*const T) -> !,
        argument: *const T,
    ) {
        naked_asm!(
            "push rbp; push rbx; push r12; push r13; push r14; push r15",
            "sub rsp, 8; stmxcsr [rsp]; fnstcw [rsp + 4]",
            "rdfsbase rax; mov [rdi], rsp; mov [rdi + 8], rax",
            "mov rsp, rsi; mov rdi, rcx; xor ebp, ebp; call rdx; ud2",
        )
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod context {
    #[derive(Default)]
    pub(super) struct Context;

    pub(super) fn ask() -> bool {
        false
    }

    pub(super) unsafe fn change(_: *mut Context, _: *const Context) {
        unreachable!("no thread can carry others")
    }

    pub(super) unsafe fn resume(_: *const Context) -> ! {
        unreachable!("no thread can carry others")
    }

    pub(super) unsafe fn leave<T>(
        _: *mut Context,
        _: *mut u8,
        _: extern "C" fn(*const T) -> !,
        _: *const T,
    ) {
        unreachable!("no thread can carry others")
    }
}

//! The calls of the C library by which a thread waits, reads the clock, draws random numbers or
//! starts another thread. For threads of a world, the world answers them; for all others, the C
//! library does.

// They replace functions of the C library, whose contracts they keep.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use libc::{clockid_t, pthread_attr_t, pthread_t, size_t, ssize_t, timespec};

use crate::baton;
use crate::world::{Me, Woken, me};

const SECOND: u64 = 1_000_000_000;

/// A function of the C library that one of this module replaces.
struct Original {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Original {
    const fn new(name: &'static CStr) -> Original {
        Original { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn address(&self) -> *mut c_void {
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            address = next_symbol(self.name);
            self.address.store(address, Ordering::Relaxed);
        }
        address
    }
}

/// Calls the C library's own function.
macro_rules! original {
    ($name:ident as $type:ty, $($argument:expr),*) => {{
        static ORIGINAL: Original =
            Original::new(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("it ends with a zero"),
            });
        // SAFETY: the C library's function has this type.
        let function = unsafe { std::mem::transmute::<*mut c_void, $type>(ORIGINAL.address()) };
        // SAFETY: the caller keeps the function's contract.
        unsafe { function($($argument),*) }
    }};
}

mod io;

/// The versions of `dlsym` of C libraries.
const DLSYM: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.17", c"GLIBC_2.2.5"];

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Returns the C library's own `dlsym`.
fn real_dlsym() -> Dlsym {
    static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut address = ADDRESS.load(Ordering::Relaxed);
    for version in DLSYM {
        if address.is_null() {
            // SAFETY: both end with a zero.
            address = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        }
    }
    assert!(!address.is_null(), "simulated worlds need the C library of GNU");
    ADDRESS.store(address, Ordering::Relaxed);
    // SAFETY: the function has this type.
    unsafe { std::mem::transmute::<*mut c_void, Dlsym>(address) }
}

/// Returns the C library's function of a name.
fn next_symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero.
    unsafe { real_dlsym()(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Finds functions by their names. The crate `getrandom` looks for its one in this way.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's name ends with a zero.
    if handle == libc::RTLD_DEFAULT && unsafe { CStr::from_ptr(name) } == c"getrandom" {
        return getrandom as Getrandom as *mut c_void;
    }
    // SAFETY: the caller keeps the contract.
    unsafe { real_dlsym()(handle, name) }
}

/// The key whose destructor runs when a thread of a world ends, after those of Rust's thread-local
/// values.
static KEY: AtomicUsize = AtomicUsize::new(0);

/// Prepares this module. It is linked into a program that calls this.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut key = 0;
        // SAFETY: the place is valid, and the destructor has the type of one.
        let code = unsafe { libc::pthread_key_create(&raw mut key, Some(end_thread)) };
        assert_eq!(code, 0, "the process has room for a key");
        KEY.store(key as usize, Ordering::Relaxed);
        baton::prepare();
    });
}

unsafe extern "C" fn end_thread(_: *mut c_void) {
    if let Some(me) = me() {
        me.end();
    }
}

fn fail(code: c_int) -> c_long {
    // SAFETY: the place of a thread's error code is valid.
    unsafe { *libc::__errno_location() = code };
    -1
}

fn nanos(time: &timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(SECOND).saturating_add(time.tv_nsec as u64)
}

type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    match me() {
        // SAFETY: the caller has passed the arguments of this call.
        Some(me) if number == libc::SYS_futex => unsafe {
            futex(me, a, b as c_int, c as u32, d, f)
        },
        _ => original!(syscall as Syscall, number, a, b, c, d, e, f),
    }
}

/// Waits until a thread of this process, which has no more to do in a world, is gone from the
/// system. Its last steps give memory back, of which the addresses of later values depend.
pub(crate) fn wait_until_gone(thread: i32) {
    let process = original!(getpid as Getpid,) as usize;
    let exists = || {
        // SAFETY: signal 0 is not sent.
        let code = unsafe { syscall(libc::SYS_tgkill, process, thread as usize, 0, 0, 0, 0) };
        code == 0
    };
    while exists() {
        let _ = original!(sched_yield as SchedYield,);
    }
}

/// Waits or wakes as the system call does.
unsafe fn futex(
    me: Me,
    address: usize,
    operation: c_int,
    value: u32,
    time: usize,
    bits: usize,
) -> c_long {
    let is_realtime = operation & libc::FUTEX_CLOCK_REALTIME != 0;
    match operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
        operation @ (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) => {
            // SAFETY: it is the address of a futex of the caller.
            if unsafe { &*(address as *const AtomicU32) }.load(Ordering::SeqCst) != value {
                return fail(libc::EAGAIN);
            }
            // SAFETY: it is null or the address of a time.
            let time = unsafe { (time as *const timespec).as_ref() };
            let limit = time.map(|time| match operation {
                libc::FUTEX_WAIT => nanos(time),
                // An absolute one.
                _ => nanos(time).saturating_sub(me.now(!is_realtime)),
            });
            debug_assert!(operation == libc::FUTEX_WAIT || bits as u32 == u32::MAX);
            match me.wait_at(address, limit) {
                Woken::ByThread => 0,
                Woken::ByTime => fail(libc::ETIMEDOUT),
            }
        }
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => c_long::from(me.wake(address, value)),
        other => panic!("a world has no futex operation {other}"),
    }
}

type ClockGettime = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let Some(me) = me() else { return original!(clock_gettime as ClockGettime, clock, time) };
    let is_realtime = matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE);
    let now = me.look_at_clock(!is_realtime);
    // SAFETY: the caller's place for the time is valid.
    unsafe {
        time.write(timespec { tv_sec: (now / SECOND) as i64, tv_nsec: (now % SECOND) as i64 })
    };
    0
}

type Nanosleep = unsafe extern "C" fn(*const timespec, *mut timespec) -> c_int;

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nanosleep(time: *const timespec, rest: *mut timespec) -> c_int {
    let Some(me) = me() else { return original!(nanosleep as Nanosleep, time, rest) };
    // SAFETY: the caller's time is valid.
    me.sleep(nanos(unsafe { &*time }));
    0
}

type ClockNanosleep =
    unsafe extern "C" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int;

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    rest: *mut timespec,
) -> c_int {
    let Some(me) = me() else {
        return original!(clock_nanosleep as ClockNanosleep, clock, flags, time, rest);
    };
    // SAFETY: the caller's time is valid.
    let time = nanos(unsafe { &*time });
    let is_absolute = flags & libc::TIMER_ABSTIME != 0;
    let now = me.now(clock != libc::CLOCK_REALTIME);
    me.sleep(if is_absolute { time.saturating_sub(now) } else { time });
    0
}

type SchedYield = unsafe extern "C" fn() -> c_int;

/// Lets others run.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sched_yield() -> c_int {
    let Some(me) = me() else { return original!(sched_yield as SchedYield,) };
    me.pause();
    0
}

type Getpid = unsafe extern "C" fn() -> libc::pid_t;

/// Returns the number of this process.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn getpid() -> libc::pid_t {
    let Some(me) = me() else { return original!(getpid as Getpid,) };
    me.process_id()
}

type Getrandom = unsafe extern "C" fn(*mut c_void, size_t, u32) -> ssize_t;

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrandom(bytes: *mut c_void, len: size_t, flags: u32) -> ssize_t {
    let Some(me) = me() else { return original!(getrandom as Getrandom, bytes, len, flags) };
    // SAFETY: the caller's place for the bytes is valid.
    me.fill(unsafe { std::slice::from_raw_parts_mut(bytes.cast(), len) });
    len as ssize_t
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type PthreadCreate =
    unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;

/// A thread of a world that is about to start.
struct Started {
    place: Me,
    start: Start,
    argument: *mut c_void,
}

extern "C" fn begin_thread(started: *mut c_void) -> *mut c_void {
    let started = started.cast::<Started>();
    // Nothing is allocated or freed before this thread has the baton: the addresses of memory
    // depend on the order in which threads do that.
    // SAFETY: `pthread_create` has passed it.
    let place = unsafe { (*started).place };
    // A value that is not null lets the destructor run.
    // SAFETY: the key is valid.
    unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed) as _, std::ptr::dangling()) };
    let _ = place.begin();
    // SAFETY: as above. Nobody else has the pointer.
    let Started { start, argument, .. } = *unsafe { Box::from_raw(started) };
    start(argument)
}

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_create(
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some(me) = me() else {
        return original!(pthread_create as PthreadCreate, handle, attributes, start, argument);
    };
    let place = me.add_thread();
    let started = Box::into_raw(Box::new(Started { place, start, argument }));
    let code = original!(
        pthread_create as PthreadCreate,
        handle,
        attributes,
        begin_thread,
        started.cast()
    );
    if code == 0 {
        // SAFETY: the C library has set it.
        me.set_handle(place, Some(unsafe { *handle }));
    } else {
        // SAFETY: no thread has got it.
        drop(unsafe { Box::from_raw(started) });
        me.set_handle(place, None);
    }
    code
}

type PthreadJoin = unsafe extern "C" fn(pthread_t, *mut *mut c_void) -> c_int;

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_join(handle: pthread_t, result: *mut *mut c_void) -> c_int {
    if let Some(me) = me() {
        me.join(handle);
    }
    original!(pthread_join as PthreadJoin, handle, result)
}

type PthreadSetname = unsafe extern "C" fn(pthread_t, *const c_char) -> c_int;

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_setname_np(
    handle: pthread_t,
    name: *const c_char,
) -> c_int {
    // SAFETY: the call has no conditions.
    let own = unsafe { libc::pthread_self() };
    if let Some(me) = me().filter(|_| handle == own) {
        // SAFETY: the caller's name ends with a zero.
        me.set_name(&unsafe { CStr::from_ptr(name) }.to_string_lossy());
    }
    original!(pthread_setname_np as PthreadSetname, handle, name)
}

//! Calls by which threads wait for descriptors: pipes and sockets between threads of one world, and
//! the polls and wakers of runtimes.
//!
//! A thread that would wait in the kernel waits in the world instead, until another thread has used
//! a descriptor, and then asks the kernel again. No thread of a world waits for another process.

use std::ffi::{c_int, c_void};

use libc::{epoll_event, iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t};

use super::{CStr, Original};
use crate::world::{IO, Me, Woken, me};

/// Waits until `is_ready` returns something other than 0, or the time is up.
fn wait_until(me: Me, millis: c_int, mut is_ready: impl FnMut() -> c_int) -> c_int {
    let until = (millis >= 0).then(|| me.now(true) + millis as u64 * 1_000_000);
    loop {
        let ready = is_ready();
        if ready != 0 {
            return ready;
        }
        let left = until.map(|until| until.saturating_sub(me.now(true)));
        if left == Some(0) {
            me.pause();
            return 0;
        }
        if me.wait_at(IO, left) == Woken::ByTime {
            return is_ready();
        }
    }
}

type EpollWait = unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_wait(
    poll: c_int,
    events: *mut epoll_event,
    most: c_int,
    millis: c_int,
) -> c_int {
    let ask = |millis| original!(epoll_wait as EpollWait, poll, events, most, millis);
    me().map_or_else(|| ask(millis), |me| wait_until(me, millis, || ask(0)))
}

type Poll = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int;

/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, millis: c_int) -> c_int {
    let ask = |millis| original!(poll as Poll, fds, count, millis);
    me().map_or_else(|| ask(millis), |me| wait_until(me, millis, || ask(0)))
}

/// Waits in the world until a call on this descriptor would not wait in the kernel.
fn wait_for(descriptor: c_int) {
    let Some(me) = me() else { return };
    // SAFETY: the call has no conditions.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    if flags >= 0 && flags & libc::O_NONBLOCK == 0 {
        let mut one = pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        wait_until(me, -1, || original!(poll as Poll, &raw mut one, 1, 0));
    }
}

/// Lets threads that wait for descriptors ask again.
fn let_others_ask() {
    if let Some(me) = me() {
        me.wake(IO, u32::MAX);
    }
}

/// Calls that wait before (`in`), or let others go on afterwards (`out`).
macro_rules! calls {
    ($($way:ident $name:ident($fd:ident $(, $argument:ident: $type:ty)*) -> $result:ty;)*) => {$(
        /// # Safety
        /// As in the C library.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($fd: c_int $(, $argument: $type)*) -> $result {
            calls!(@before $way $fd);
            type Function = unsafe extern "C" fn(c_int $(, $type)*) -> $result;
            let result = original!($name as Function, $fd $(, $argument)*);
            let_others_ask();
            result
        }
    )*};
    (@before in $fd:ident) => { wait_for($fd) };
    (@before out $fd:ident) => {};
}

calls! {
    in read(fd, bytes: *mut c_void, len: size_t) -> ssize_t;
    in readv(fd, parts: *const iovec, count: c_int) -> ssize_t;
    in recv(fd, bytes: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    in recvfrom(fd, bytes: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t) -> ssize_t;
    in recvmsg(fd, message: *mut msghdr, flags: c_int) -> ssize_t;
    in accept(fd, from: *mut sockaddr, from_len: *mut socklen_t) -> c_int;
    in accept4(fd, from: *mut sockaddr, from_len: *mut socklen_t, flags: c_int) -> c_int;
    out write(fd, bytes: *const c_void, len: size_t) -> ssize_t;
    out writev(fd, parts: *const iovec, count: c_int) -> ssize_t;
    out send(fd, bytes: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    out sendto(fd, bytes: *const c_void, len: size_t, flags: c_int, to: *const sockaddr,
        to_len: socklen_t) -> ssize_t;
    out sendmsg(fd, message: *const msghdr, flags: c_int) -> ssize_t;
    out connect(fd, to: *const sockaddr, to_len: socklen_t) -> c_int;
    out shutdown(fd, how: c_int) -> c_int;
    out close(fd) -> c_int;
}

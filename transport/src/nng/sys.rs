//! Functions of nng that its Rust bindings lack.

#![allow(unsafe_code)]

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use nng::{Listener, Socket};
use parking_lot::Mutex;

/// Sets the number of nng's threads. Call it before each attempt to start nng, because nng forgets
/// the number if that fails. Once nng has started, this does nothing.
pub(super) fn limit_threads() {
    use nng_sys::nng_init_parameter as Parameter;
    const THREADS: [(Parameter, u64); 4] = [
        // With fewer, a callback that starts an operation could wait for itself.
        (nng_sys::NNG_INIT_NUM_TASK_THREADS as Parameter, 2),
        (nng_sys::NNG_INIT_NUM_EXPIRE_THREADS as Parameter, 1),
        (nng_sys::NNG_INIT_NUM_POLLER_THREADS as Parameter, 1),
        (nng_sys::NNG_INIT_NUM_RESOLVER_THREADS as Parameter, 1),
    ];
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock();
    for (parameter, value) in THREADS {
        // SAFETY: it takes two numbers, knows these parameters, and the lock keeps threads apart.
        unsafe { nng_sys::nng_init_set_parameter(parameter, value) };
    }
}

/// Gives a connection to a socket, which closes the connection with itself. The caller must not
/// have read bytes that are meant for nng.
pub(super) fn adopt(socket: &Socket, connection: OwnedFd) -> io::Result<()> {
    let listener = Listener::new(socket, "socket://")?.nng_listener();
    let listener = nng_sys::nng_listener { _bindgen_opaque_blob: listener._bindgen_opaque_blob };
    let descriptor = connection.as_raw_fd();
    // SAFETY: the name is a C string, and nng looks the listener, a number, up under its own lock.
    let failed = unsafe {
        nng_sys::nng_listener_set_int(
            listener,
            nng_sys::NNG_OPT_SOCKET_FD.as_ptr().cast(),
            descriptor,
        )
    };
    if let Ok(code) = u32::try_from(failed)
        && let Some(code) = NonZeroU32::new(code)
    {
        return Err(nng::Error::from(code).into());
    }
    // nng owns the descriptor now.
    let _ = connection.into_raw_fd();
    Ok(())
}

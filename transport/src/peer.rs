//! The check of the process at the other end of a Unix socket.
//!
//! Names in the abstract namespace have no permissions, so each connection is checked.

#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Pid, geteuid};

/// Returns the process at the other end, which must run as this process's user.
///
/// # Errors
/// It runs as another user, or in a pid namespace that has no number for it here.
pub(crate) fn own_peer(socket: impl AsFd) -> io::Result<Pid> {
    let peer = credentials(socket)?;
    let own = geteuid().as_raw();
    let refused = |problem| io::Error::new(io::ErrorKind::PermissionDenied, problem);
    if peer.uid != own {
        let who = format!("runs as user {}, this process as {own}", peer.uid);
        return Err(refused(format!("the other end of the socket {who}")));
    }
    let stranger = "the other end of the socket is outside of this process's pid namespace";
    Pid::from_raw(peer.pid).ok_or_else(|| refused(stranger.into()))
}

/// Asks the kernel. The pid is 0 for a process outside of this pid namespace, which
/// `rustix::net::sockopt::socket_peercred` takes for one that can't be 0.
fn credentials(socket: impl AsFd) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes up to `size` bytes of integers to `peer`.
    let result = unsafe {
        let peer = (&raw mut peer).cast();
        libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, peer, &mut size)
    };
    if result == 0 { Ok(peer) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_is_known() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(own_peer(&one).unwrap(), rustix::process::getpid());
    }

    #[test]
    fn what_is_no_unix_socket_is_refused() {
        assert!(own_peer(std::net::TcpListener::bind("127.0.0.1:0").unwrap()).is_err());
    }
}

//! The signals by which users and systems stop a program, and those of its children.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The stream of this process's stop signals: SIGINT, SIGTERM and SIGHUP, or SIGTERM alone, except
/// those that it ignores, for example under `nohup` or in the background of a shell. While it
/// exists, these signals no longer end the process by themselves.
#[derive(Debug)]
pub struct Signals {
    handled: Vec<(i32, Signal)>,
    /// The SIGTERMs of a process of a simulated world.
    #[cfg(feature = "simulation")]
    simulated: Option<tokio::sync::watch::Receiver<()>>,
}

impl Signals {
    /// Listens for the signals that this process does not ignore. Needs a runtime of tokio.
    ///
    /// # Errors
    /// An error of the system.
    pub fn listen() -> io::Result<Signals> {
        Signals::of(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])
    }

    /// Listens for SIGTERM alone, unless this process ignores it. Needs a runtime of tokio.
    ///
    /// # Errors
    /// An error of the system.
    pub fn listen_for_sigterm() -> io::Result<Signals> {
        #[cfg(feature = "simulation")]
        if let Some(world) = crate::simulation::world() {
            return Ok(Signals { handled: Vec::new(), simulated: Some(world.sigterms()) });
        }
        Signals::of(&[SignalKind::terminate()])
    }

    fn of(kinds: &[SignalKind]) -> io::Result<Signals> {
        let ignored = Ignored::now()?;
        let handled = kinds.iter().filter(|kind| !ignored.contains(kind.as_raw_value()));
        let signals = handled.map(|kind| Ok((kind.as_raw_value(), signal(*kind)?)));
        Ok(Signals {
            handled: signals.collect::<io::Result<_>>()?,
            #[cfg(feature = "simulation")]
            simulated: None,
        })
    }

    /// Waits for the next signal, and returns its number.
    pub async fn next(&mut self) -> i32 {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &mut self.simulated {
            return match simulated.changed().await {
                Ok(()) => SignalKind::terminate().as_raw_value(),
                Err(_) => std::future::pending().await,
            };
        }
        poll_fn(|context| {
            for (number, signal) in &mut self.handled {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Changes the actions of signals with which this process was started, where they would keep from
/// it what it has to know.
///
/// With SIGCHLD ignored, the kernel says to no process how its children end. A write beyond the
/// limit of file sizes is to fail, and not to end this process by SIGXFSZ: with a handler it does,
/// and the programs that this process starts have the signal's default action.
pub fn adjust_inherited() {
    extern "C" fn handled(_: c_int) {}
    change_action(libc::SIGCHLD, |action| {
        action.sa_flags &= !libc::SA_NOCLDWAIT;
        if action.sa_sigaction == libc::SIG_IGN {
            action.sa_sigaction = libc::SIG_DFL;
        }
    });
    change_action(libc::SIGXFSZ, |action| {
        if action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = handled as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
        }
    });
}

fn change_action(signal: c_int, change: impl FnOnce(&mut libc::sigaction)) {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the kernel writes the whole action. What `change` sets is no handler, or one that
    // does nothing.
    unsafe {
        if libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0 {
            let mut action = action.assume_init();
            change(&mut action);
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

/// The set of signals that this process ignores.
#[derive(Clone, Copy, Debug)]
pub struct Ignored(u64);

impl Ignored {
    /// Reads the set from the system.
    ///
    /// # Errors
    /// An error of the system.
    pub fn now() -> io::Result<Ignored> {
        let status = crate::read_lossy("/proc/self/status")?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Ok(Ignored(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)))
    }

    /// Returns whether a signal is in the set.
    pub fn contains(self, number: i32) -> bool {
        self.0 >> (number - 1) & 1 == 1
    }
}

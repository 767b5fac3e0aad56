//! The signals by which users and systems stop a program.

use std::future::poll_fn;
use std::io;
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
        Signals::listen_except(Ignored::now()?)
    }

    /// Works as [`listen`](Signals::listen), with the ignored signals of an earlier moment.
    ///
    /// # Errors
    /// An error of the system.
    pub fn listen_except(Ignored(ignored): Ignored) -> io::Result<Signals> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Signals::of(&kinds, ignored)
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
        let Ignored(ignored) = Ignored::now()?;
        Signals::of(&[SignalKind::terminate()], ignored)
    }

    fn of(kinds: &[SignalKind], ignored: u64) -> io::Result<Signals> {
        let handled = kinds.iter().filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0);
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
}

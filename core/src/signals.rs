//! The signals by which people and systems end a program.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What asks this process to end: SIGINT, SIGTERM and SIGHUP, but for those that it was told to
/// ignore, as by `nohup`, or by a shell that runs it in the background. Once this exists, they do
/// not end it by themselves any more.
#[derive(Debug)]
pub struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Begins to listen, on a runtime of tokio.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn listen() -> io::Result<Signals> {
        Signals::listen_but_for(Ignored::now()?)
    }

    /// As [`listen`](Signals::listen), for a process of which it is known what it was told to
    /// ignore.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn listen_but_for(Ignored(ignored): Ignored) -> io::Result<Signals> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let heeded = kinds.into_iter().filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0);
        let signals = heeded.map(|kind| Ok((kind.as_raw_value(), signal(kind)?)));
        signals.collect::<io::Result<_>>().map(Signals)
    }

    /// The number of the next one.
    pub async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals that this process ignores, a bit for each.
#[derive(Clone, Copy, Debug)]
pub struct Ignored(u64);

impl Ignored {
    /// Asks the system.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn now() -> io::Result<Ignored> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Ok(Ignored(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)))
    }
}

//! Peers that have connected, but have not yet proven that they hold the session's key.
//!
//! Each costs a descriptor and a few kilobytes, for [`HANDSHAKE_TIMEOUT`] at most. At the limit,
//! the listener takes no more connections from the kernel's queue until there is room, and the
//! oldest pending peer is dropped once it has had [`MIN_STAY`]. A peer that holds the key needs a
//! round trip or two, so a crowd of silent connections delays it, but can't keep it out.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// The time limit for a peer to prove that it holds the key.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit of pending peers.
const MAX: usize = 1024;
/// Pending peers use at most 1/4 of the descriptors that this process may open.
const SHARE: u64 = 4;
/// How long each peer may stay although others wait for its place.
const MIN_STAY: Duration = Duration::from_millis(300);
/// The minimum time between two log lines about rejected peers.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The pending peers of one listener. A handshake that succeeds in time yields a `T`.
#[derive(Debug)]
pub struct PendingPeers<T> {
    tasks: JoinSet<Option<T>>,
    /// The tasks by age: all that run, and some that have ended.
    ages: VecDeque<(Instant, AbortHandle)>,
    timer: Option<Pin<Box<Sleep>>>,
    max: usize,
    rejections: Rejections,
}

impl<T: 'static> Default for PendingPeers<T> {
    fn default() -> PendingPeers<T> {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / SHARE;
        let max = usize::try_from(descriptors).unwrap_or(MAX).clamp(1, MAX);
        PendingPeers {
            tasks: JoinSet::new(),
            ages: VecDeque::new(),
            timer: None,
            max,
            rejections: Rejections::default(),
        }
    }
}

impl<T: 'static> PendingPeers<T> {
    /// Adds a peer until its `handshake` is done. Call it in a task of a `LocalSet`, on a runtime
    /// with timers.
    pub fn add(&mut self, handshake: impl Future<Output = T> + 'static) {
        let handle =
            self.tasks.spawn_local(async move { timeout(HANDSHAKE_TIMEOUT, handshake).await.ok() });
        // A handle keeps its task's memory, so handles of ended tasks go now and then.
        if self.ages.len() >= 2 * self.tasks.len() + 16 {
            self.ages.retain(|(_, peer)| !peer.is_finished());
        }
        self.ages.push_back((Instant::now(), handle));
    }

    /// Returns the result of the next handshake that is done. Pending also if there are no peers.
    pub fn poll_done(&mut self, context: &mut Context<'_>) -> Poll<T> {
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next(context) {
            match ended {
                Ok(Some(done)) => return Poll::Ready(done),
                Ok(None) => {
                    self.log_rejected("it did not prove in time that it holds this session's key")
                }
                Err(_) => self.log_rejected(
                    "too many peers connect, and it had not proven yet that it holds this \
                     session's key",
                ),
            }
        }
        Poll::Pending
    }

    /// Waits until there is room for one more peer.
    pub fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.tasks.len() >= self.max {
            while self.ages.front().is_some_and(|(_, peer)| peer.is_finished()) {
                self.ages.pop_front();
            }
            let Some((since, oldest)) = self.ages.front() else { break };
            let deadline = *since + MIN_STAY;
            if deadline <= Instant::now() {
                oldest.abort();
                self.ages.pop_front();
                // `poll_done` sees its end.
                return Poll::Pending;
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            timer.as_mut().reset(deadline);
            ready!(timer.as_mut().poll(context));
        }
        Poll::Ready(())
    }

    /// Logs that a peer was rejected, at most once a second.
    pub fn log_rejected(&mut self, reason: &str) {
        self.rejections.log(reason);
    }
}

/// Logs rejected peers, at most one a second: any user of the host may connect as often as he likes.
#[derive(Debug, Default)]
pub(crate) struct Rejections {
    last: Option<Instant>,
    /// Rejections since the last log line.
    unlogged: usize,
}

impl Rejections {
    pub(crate) fn log(&mut self, reason: &str) {
        if self.last.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
            self.unlogged += 1;
            return;
        }
        match std::mem::take(&mut self.unlogged) {
            0 => tracing::warn!("rejected a peer: {reason}"),
            more => tracing::warn!("rejected a peer: {reason} (and {more} more before)"),
        }
        self.last = Some(Instant::now());
    }
}

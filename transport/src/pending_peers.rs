//! Those who have connected and have not shown yet that they hold the key.
//!
//! Each costs a descriptor and a few kilobytes, for [`PATIENCE`] at most. When there are as many as
//! may be, nobody new is taken from the kernel's queue until there is room; and then the oldest
//! makes room, once it had [`MIN_STAY`]. A peer that holds the key needs a round trip or two, so a
//! crowd that says nothing delays it and does not keep it out.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// How long a peer may take to show that it holds the key.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The most strangers that there may be, and the share of this process's descriptors that they may
/// take.
const MAX: usize = 1024;
const SHARE: u64 = 4;
/// How long each may stay even if others want its place.
const MIN_STAY: Duration = Duration::from_millis(300);
/// The time between two lines in the log, however many are turned away.
const QUIET: Duration = Duration::from_secs(1);

/// The strangers at one listener. Each that shows in time that it holds the key comes out as a `T`.
#[derive(Debug)]
pub struct PendingPeers<T> {
    tasks: JoinSet<Option<T>>,
    /// All that have not ended, and some that have, in order of age.
    ages: VecDeque<(Instant, AbortHandle)>,
    timer: Option<Pin<Box<Sleep>>>,
    max: usize,
    refusals: Refusals,
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
            refusals: Refusals::default(),
        }
    }
}

impl<T: 'static> PendingPeers<T> {
    /// Takes one in, until `entry` is through. Has to be called in a task of a `LocalSet`, on a
    /// runtime with timers.
    pub fn add(&mut self, entry: impl Future<Output = T> + 'static) {
        let handle = self.tasks.spawn_local(async move { timeout(PATIENCE, entry).await.ok() });
        // Rarely enough to cost nothing, and often enough: a handle keeps its task's memory.
        if self.ages.len() >= 2 * self.tasks.len() + 16 {
            self.ages.retain(|(_, stranger)| !stranger.is_finished());
        }
        self.ages.push_back((Instant::now(), handle));
    }

    /// The next whose entry is through; pending also when there are none.
    pub fn poll_entered(&mut self, context: &mut Context<'_>) -> Poll<T> {
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next(context) {
            match ended {
                Ok(Some(entered)) => return Poll::Ready(entered),
                Ok(None) => self.refuse("it did not show in time that it holds this session's key"),
                Err(_) => self.refuse(
                    "others wanted the place of one that had not shown yet that it may connect",
                ),
            }
        }
        Poll::Pending
    }

    /// Waits until there is room for one more.
    pub fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.tasks.len() >= self.max {
            while self.ages.pop_front_if(|(_, stranger)| stranger.is_finished()).is_some() {}
            let Some((since, oldest)) = self.ages.front() else { break };
            let leaves = *since + MIN_STAY;
            if leaves <= Instant::now() {
                oldest.abort();
                self.ages.pop_front();
                // `poll_entered` sees its end.
                return Poll::Pending;
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(leaves)));
            timer.as_mut().reset(leaves);
            ready!(timer.as_mut().poll(context));
        }
        Poll::Ready(())
    }

    /// Logs that one was turned away, without letting a crowd fill the log.
    pub fn refuse(&mut self, reason: &str) {
        self.refusals.note(reason);
    }
}

#[derive(Debug, Default)]
struct Refusals {
    last: Option<Instant>,
    unsaid: usize,
}

impl Refusals {
    fn note(&mut self, reason: &str) {
        if self.last.is_some_and(|last| last.elapsed() < QUIET) {
            self.unsaid += 1;
            return;
        }
        match std::mem::take(&mut self.unsaid) {
            0 => tracing::warn!("turned a peer away: {reason}"),
            more => tracing::warn!("turned a peer away: {reason} (and {more} more before)"),
        }
        self.last = Some(Instant::now());
    }
}

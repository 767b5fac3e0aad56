//! Those who have connected and have not shown yet that they hold the key.
//!
//! Each costs a descriptor and a kilobyte or so, for [`PATIENCE`] at most. When there are as many as may be, nobody new
//! is taken from the kernel's queue until there is room; and then the oldest makes room, once it had [`MIN_STAY`]. A
//! peer that holds the key needs one round trip, so a crowd that says nothing delays it and does not keep it out.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::PATIENCE;
use crate::Connection;

/// The most that there may be, and the share of this process's descriptors that they may take.
const MAX: usize = 1024;
const SHARE: u64 = 4;
/// How long each may stay even if others want its place.
const MIN_STAY: Duration = Duration::from_millis(300);
/// The time between two lines in the log, however many are turned away.
const QUIET: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Strangers {
    tasks: JoinSet<(SocketAddr, io::Result<Connection>)>,
    /// All that have not ended, and some that have, in order of age.
    ages: VecDeque<(Instant, AbortHandle)>,
    timer: Option<Pin<Box<Sleep>>>,
    max: usize,
    refusals: Refusals,
}

impl Strangers {
    pub(super) fn new() -> Strangers {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / SHARE;
        let max = usize::try_from(descriptors).unwrap_or(MAX).clamp(1, MAX);
        Strangers { tasks: JoinSet::new(), ages: VecDeque::new(), timer: None, max, refusals: Refusals::default() }
    }

    /// Takes one in, who becomes a connection when `entry` is through.
    pub(super) fn add(&mut self, peer: SocketAddr, entry: impl Future<Output = io::Result<Connection>> + 'static) {
        let handle = self.tasks.spawn_local(async move {
            let entered = timeout(PATIENCE, entry).await;
            (peer, entered.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, TOO_SLOW))))
        });
        if self.ages.len() >= 2 * self.max {
            self.ages.retain(|(_, stranger)| !stranger.is_finished());
        }
        self.ages.push_back((Instant::now(), handle));
    }

    /// The next that has shown it; pending also when there are none.
    pub(super) fn poll_entered(&mut self, context: &mut Context<'_>) -> Poll<Connection> {
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next(context) {
            match ended {
                Ok((_, Ok(connection))) => return Poll::Ready(connection),
                Ok((peer, Err(error))) => self.refusals.note(&format!("{peer}: {error}")),
                Err(_) => {
                    self.refusals.note("others wanted the place of one that had not shown yet that it may connect")
                }
            }
        }
        Poll::Pending
    }

    /// Waits until there is room for one more.
    pub(super) fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
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
            std::task::ready!(timer.as_mut().poll(context));
        }
        Poll::Ready(())
    }
}

const TOO_SLOW: &str = "it did not show in time that it holds this session's key";

/// Says who was turned away, without letting strangers fill the log.
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
            0 => tracing::warn!("turned an nng peer away: {reason}"),
            more => tracing::warn!("turned an nng peer away: {reason} (and {more} more before)"),
        }
        self.last = Some(Instant::now());
    }
}

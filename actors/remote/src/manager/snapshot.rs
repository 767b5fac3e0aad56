//! Snapshots: the state of an actor that outlives its process.

use std::time::Duration;

use actix::Actor;
use fiber_core::Result;
use fiber_values::codec::EncodedValue;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An actor whose state the manager keeps, so that it continues from there after a restart.
///
/// The process takes a snapshot when [`Snapshots`] says so, and sends it to the process that owns
/// the manager. After a restart the factory makes the actor again, and
/// [`restore`](Snapshot::restore) gets the last snapshot. The effects of later messages are lost.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::manager::{Snapshot, Snapshots};
/// use fiber::prelude::*;
///
/// struct Counter(u64);
///
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
///
/// impl Snapshot for Counter {
///     type State = u64;
///
///     fn snapshot(&self) -> u64 {
///         self.0
///     }
///
///     fn restore(&mut self, state: u64) {
///         self.0 = state;
///     }
/// }
///
/// #[fiber::message(u64)]
/// struct Add(u64);
///
/// #[fiber::handlers]
/// impl Counter {
///     fn add(&mut self, add: Add) -> u64 {
///         self.0 += add.0;
///         self.0
///     }
/// }
///
/// let builder = AsyncManager::builder().snapshots(Snapshots::every_messages(1));
/// let counter = builder.start(Counter, 0).wait()?;
/// counter.send(Add(5)).wait()?;
/// counter.send(Add(0)).wait()?; // its answer follows the snapshot of the message before
/// counter.kill_process();
/// assert_eq!(counter.addr().resend().send(Add(1)).wait()?, 6);
/// # Ok::<(), fiber::Error>(())
/// ```
pub trait Snapshot: Actor {
    /// The type of the state.
    type State: Serialize + DeserializeOwned;

    /// Returns the current state. It runs on the actor's thread, between two messages.
    fn snapshot(&self) -> Self::State;

    /// Sets the state to that of a snapshot. It runs after the factory, before the actor starts.
    fn restore(&mut self, state: Self::State);
}

/// When a managed actor's snapshots are taken. Two conditions count independently.
///
/// [`Snapshot`] has an example of an actor with snapshots.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use fiber::manager::Snapshots;
///
/// let often = Snapshots::every_messages(1);
/// let by_time = Snapshots::every(Duration::from_secs(10));
/// let either = Snapshots::every_messages(100).or_every(Duration::from_secs(10));
/// let for_accounts = Snapshots::before_answers();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Snapshots(SnapshotInterval);

impl Snapshots {
    /// Takes a snapshot after each `count` messages. A count of 0 counts as 1. [`Snapshots`] has an
    /// example.
    pub fn every_messages(count: u64) -> Snapshots {
        Snapshots(SnapshotInterval { messages: Some(count.max(1)), ..SnapshotInterval::default() })
    }

    /// Takes a snapshot before each answer, which leaves when the owner keeps the snapshot, on the
    /// disk if the actor is durable: no answered message is lost. [`Snapshots`] has an example.
    ///
    /// One snapshot is on its way at a time, and is for all messages that were handled meanwhile.
    pub fn before_answers() -> Snapshots {
        Snapshots(SnapshotInterval { before_answers: true, ..SnapshotInterval::default() })
    }

    /// Takes a snapshot at this interval, of 1 ms or more, also when nothing has changed.
    /// [`Snapshots`] has an example.
    pub fn every(time: Duration) -> Snapshots {
        Snapshots(SnapshotInterval::default()).or_every(time)
    }

    /// Takes a snapshot at this interval, of 1 ms or more, too. [`Snapshots`] has an example.
    #[must_use]
    pub fn or_every(self, time: Duration) -> Snapshots {
        // Without a pause, an actor would do nothing else.
        let time = Some(time.max(Duration::from_millis(1)));
        Snapshots(SnapshotInterval { time, ..self.0 })
    }
}

impl From<Snapshots> for SnapshotInterval {
    fn from(snapshots: Snapshots) -> SnapshotInterval {
        snapshots.0
    }
}

/// The policy of a manager that takes no snapshots.
#[derive(Clone, Copy, Debug)]
pub struct NoSnapshots;

/// When snapshots are taken, in the form in which it travels.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SnapshotInterval {
    pub(crate) messages: Option<u64>,
    pub(crate) time: Option<Duration>,
    /// Whether answers wait for snapshots.
    pub(crate) before_answers: bool,
}

/// Whether a manager takes snapshots of an actor of type `A`: [`NoSnapshots`] for any actor,
/// [`Snapshots`] for those that implement [`Snapshot`].
pub trait SnapshotPolicy<A>: Clone + 'static {
    /// Returns the encoded state, if snapshots are taken.
    #[doc(hidden)]
    fn take(actor: &A) -> Result<Option<EncodedValue>>;

    /// Restores an encoded state.
    #[doc(hidden)]
    fn restore(actor: &mut A, state: &EncodedValue) -> Result<()>;
}

impl<A> SnapshotPolicy<A> for NoSnapshots {
    fn take(_: &A) -> Result<Option<EncodedValue>> {
        Ok(None)
    }

    fn restore(_: &mut A, _: &EncodedValue) -> Result<()> {
        Ok(())
    }
}

impl<A: Snapshot> SnapshotPolicy<A> for Snapshots {
    fn take(actor: &A) -> Result<Option<EncodedValue>> {
        EncodedValue::new(&actor.snapshot()).map(Some)
    }

    fn restore(actor: &mut A, state: &EncodedValue) -> Result<()> {
        actor.restore(state.decode()?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_snapshots_leaves_time_for_messages() {
        let least = Some(Duration::from_millis(1));
        assert_eq!(Snapshots::every(Duration::ZERO).0.time, least);
        let often = Snapshots::every_messages(0).or_every(Duration::from_nanos(1)).0;
        assert_eq!((often.messages, often.time), (Some(1), least));
        assert_eq!(Snapshots::every(Duration::MAX).0.time, Some(Duration::MAX));
    }
}

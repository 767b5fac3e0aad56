//! State of an actor that outlives its process.

use std::time::Duration;

use actix::Actor;
use fiber_core::{Result, codec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An actor whose state can be kept elsewhere, to go on from after a restart.
///
/// The state is taken when [`Snapshots`] says so, and kept by the manager's owner. A restarted
/// actor is made by its factory, and then given the last state that its owner has. What it handled
/// after that is lost.
pub trait Snapshot: Actor {
    /// What is kept.
    type State: Serialize + DeserializeOwned;

    /// The state as it is now.
    fn snapshot(&self) -> Self::State;

    /// Goes on from an earlier state.
    fn restore(&mut self, state: Self::State);
}

/// When an actor's state is taken. Each choice counts by itself.
#[derive(Clone, Copy, Debug)]
pub struct Snapshots(Every);

impl Snapshots {
    /// After each `count` messages.
    pub fn every_messages(count: u64) -> Snapshots {
        Snapshots(Every { messages: Some(count.max(1)), time: None })
    }

    /// Whenever `time` has passed.
    pub fn every(time: Duration) -> Snapshots {
        Snapshots(Every { messages: None, time: Some(time) })
    }

    /// Also whenever `time` has passed.
    #[must_use]
    pub fn or_every(self, time: Duration) -> Snapshots {
        Snapshots(Every { time: Some(time), ..self.0 })
    }
}

impl From<Snapshots> for Every {
    fn from(snapshots: Snapshots) -> Every {
        snapshots.0
    }
}

/// No snapshots are taken.
#[derive(Clone, Copy, Debug)]
pub struct NoSnapshots;

/// As it travels.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Every {
    pub(super) messages: Option<u64>,
    pub(super) time: Option<Duration>,
}

/// Whether an actor's state is kept: [`NoSnapshots`] for any, [`Snapshots`] for those that
/// implement [`Snapshot`].
pub trait SnapshotPolicy<A>: 'static {
    /// The state, encoded.
    #[doc(hidden)]
    fn take(actor: &A) -> Result<Option<Vec<u8>>>;

    /// Goes on from it.
    #[doc(hidden)]
    fn restore(actor: &mut A, state: &[u8]) -> Result<()>;
}

impl<A> SnapshotPolicy<A> for NoSnapshots {
    fn take(_: &A) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn restore(_: &mut A, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

impl<A: Snapshot> SnapshotPolicy<A> for Snapshots {
    fn take(actor: &A) -> Result<Option<Vec<u8>>> {
        codec::encode(&actor.snapshot()).map(Some)
    }

    fn restore(actor: &mut A, state: &[u8]) -> Result<()> {
        actor.restore(codec::decode(state)?);
        Ok(())
    }
}

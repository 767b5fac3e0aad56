//! The messages between the coordinator of entities and the processes that keep them.

use actix::Message;
use fiber_core::{Error, ExitReason, Failure, FailureKind};
use fiber_runtime::mesh::CallFailure;
use fiber_values::codec::EncodedValue;
use serde::{Deserialize, Serialize};

use crate::keys::{hash_of, weight};
use crate::remote::UntypedAddr;

/// The number of a process that keeps entities. It is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct KeeperId(pub(super) u32);

/// Which processes keep the keys.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Table {
    /// Counts the tables.
    pub(super) epoch: u64,
    pub(super) keepers: Vec<(KeeperId, UntypedAddr)>,
    /// Why there are no processes any more.
    pub(super) end: Option<ExitReason>,
}

impl Table {
    /// Returns which process keeps a key, by rendezvous hashing: a process that comes takes keys
    /// from the others, and one that goes leaves its keys to them. No other key moves.
    pub(super) fn keeper_of(&self, key: &str) -> Option<KeeperId> {
        let hash = hash_of(key);
        self.keepers.iter().map(|(id, _)| *id).max_by_key(|id| weight(hash, id.0.into()))
    }

    /// Returns the address of a process.
    pub(super) fn addr(&self, id: KeeperId) -> Option<&UntypedAddr> {
        self.keepers.iter().find(|(known, _)| *known == id).map(|(_, addr)| addr)
    }
}

/// Asks for the table after one, as soon as there is one.
#[derive(Serialize, Deserialize)]
pub(super) struct AskTable {
    pub(super) after: u64,
}

impl Message for AskTable {
    type Result = Table;
}

/// A process, and the number that it has got: a process that was replaced has an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    pub(super) keeper: KeeperId,
    pub(super) number: u64,
}

/// From a process that has just started.
#[derive(Serialize, Deserialize)]
pub(super) struct Hello(pub(super) KeeperId);

impl Message for Hello {
    type Result = Welcome;
}

/// From a process that has got SIGTERM: others are to have its keys.
#[derive(Serialize, Deserialize)]
pub(super) struct Leaving(pub(super) KeeperId);

impl Message for Leaving {
    type Result = ();
}

/// It knows of the keys in all `Arrived` changes whose number is smaller than its token's.
#[derive(Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) token: Token,
    pub(super) table: Table,
    /// The keys of the process that another one has not saved yet.
    pub(super) expected: Vec<String>,
}

/// Asks for the record of a key.
#[derive(Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) token: Token,
    pub(super) key: String,
}

impl Message for Load {
    type Result = Result<Record, CallFailure>;
}

/// The recorded state of an entity: its last snapshot, and the events since.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The number of the last event before the snapshot, and the snapshot.
    pub(super) snapshot: Option<(u64, EncodedValue)>,
    /// In ascending order.
    pub(super) events: Vec<(u64, EncodedValue)>,
}

impl Record {
    /// Returns the number of the last event.
    pub(super) fn last(&self) -> u64 {
        let snapshot = self.snapshot.as_ref().map_or(0, |(number, _)| *number);
        self.events.last().map_or(snapshot, |(number, _)| *number)
    }
}

/// Changes of records, in their order. The answer follows when they count.
#[derive(Serialize, Deserialize)]
pub(super) struct Write {
    pub(super) token: Token,
    pub(super) changes: Vec<RecordChange>,
}

impl Message for Write {
    type Result = Result<(), CallFailure>;
}

#[derive(Serialize, Deserialize)]
pub(super) enum RecordChange {
    /// Adds an event to a key, under its number. Most changes are events: names of fields would be
    /// a third of their bytes.
    Event(String, u64, EncodedValue),
    /// Replaces the last snapshot, and the events up to `number`, of which the first is `from`.
    Snapshot { key: String, from: u64, number: u64, state: EncodedValue },
}

/// From a process whose entities of these keys are saved, after it had named them as busy.
#[derive(Serialize, Deserialize)]
pub(super) struct Released {
    pub(super) token: Token,
    pub(super) keys: Vec<String>,
}

impl Message for Released {
    type Result = ();
}

/// From the coordinator: which process keeps which key changes.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Change {
    /// The next table. The process takes no more messages for keys that it then has no more, and
    /// saves the entities of these keys that do nothing. The answer names the others.
    Prepare(Table),
    /// From now on this table counts. Other processes have not saved the expected keys yet.
    Commit { table: Table, expected: Vec<String> },
    /// Expected keys are saved. A [`Welcome`] with a smaller number may arrive later.
    Arrived { keys: Vec<String>, number: u64 },
}

impl Message for Change {
    type Result = Vec<String>;
}

/// Sets or removes a reminder.
#[derive(Serialize, Deserialize)]
pub(super) struct Remind {
    pub(super) key: String,
    pub(super) name: String,
    /// `None` removes the reminder.
    pub(super) when: Option<When>,
}

impl Message for Remind {
    type Result = Result<(), RemindFailure>;
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct When {
    /// In milliseconds from now.
    pub(super) after: u64,
    /// The time from one to the next in milliseconds, if it comes again.
    pub(super) every: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum RemindFailure {
    /// The entities have no reminders.
    None,
    Journal(CallFailure),
}

/// Returns the failure of messages whose entity can't be made.
pub(super) fn failure(error: &Error) -> CallFailure {
    match error {
        Error::Journal { journal, cause } => {
            CallFailure::Journal { journal: journal.clone().into(), cause: cause.to_string() }
        }
        Error::ActorStopped { reason, .. } => CallFailure::Stopped(reason.clone()),
        error => CallFailure::Failed(Failure::new(FailureKind::Result, error)),
    }
}

/// Returns the reason of messages to a process that was replaced.
pub(super) fn replaced() -> ExitReason {
    ExitReason::LinkLost("another process has its keys".into())
}

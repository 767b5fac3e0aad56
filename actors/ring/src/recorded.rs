//! A ring's run in a journal: its checkpoints and results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Buf;
use fiber_core::Result;
use fiber_values::codec::{self, EncodedValue};
use fiber_values::transfer;
use serde::{Deserialize, Serialize};

use fiber_runtime::durable::{Change, DurableState, ObjectKind};

/// The slot of the [`Identity`].
const IDENTITY: u64 = 0;

/// The properties of a run that have to be the same when it is continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) function: String,
    pub(super) size: u64,
    /// The hash of the encoded arguments.
    pub(super) arguments: [u8; 32],
}

impl Identity {
    /// Returns the identity of a run with arguments that were [encoded](Identity::encode) for it.
    pub(super) fn new(function: &str, size: usize, arguments: &EncodedValue) -> Identity {
        let mut hash = blake3::Hasher::new();
        let blobs = arguments.blobs.iter().map(|blob| &**blob);
        for part in std::iter::once(&arguments.bytes[..]).chain(blobs) {
            hash.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        let arguments = *hash.finalize().as_bytes();
        Identity { function: function.to_string(), size: size as u64, arguments }
    }

    /// Encodes the arguments of a run so that equal ones have equal bytes in all runs of a program.
    ///
    /// # Errors
    /// [`Error::Invalid`](fiber_core::Error::Invalid) if there is a handle in them;
    /// [`Error::Encode`](fiber_core::Error::Encode).
    pub(super) fn encode<A: Serialize>(arguments: &A) -> Result<EncodedValue> {
        let mut bytes = Vec::new();
        let encode = || transfer::repeatable(|| codec::append_alone(&mut bytes, arguments));
        let ((blobs, _), has_handles) = transfer::finding_handles(encode);
        let blobs = blobs?;
        if has_handles {
            return Err(ObjectKind::Ring.refused(
                "the arguments contain a handle, which names an object of this run of the \
                 program: make the object anew in each run, and reach it in another way",
            ));
        }
        Ok(EncodedValue { bytes: bytes.into(), blobs })
    }

    /// Returns how a run that is to be continued differs from the recorded one.
    fn difference(&self, recorded: &Identity) -> Option<String> {
        let (own, theirs) = (self, recorded);
        if own.function != theirs.function {
            Some(format!("of `{}`, not of `{}`", theirs.function, own.function))
        } else if own.size != theirs.size {
            Some(format!("of {} ranks, not of {}", theirs.size, own.size))
        } else if own.arguments != theirs.arguments {
            Some("with other arguments".into())
        } else {
            None
        }
    }
}

/// A run in its journal. It counts attempts from 1 through all runs of the program.
pub(super) struct RecordedRun {
    state: DurableState,
    identity: EncodedValue,
    has_identity: AtomicBool,
    run: Arc<str>,
    results: Arc<str>,
    ranks: Vec<Arc<str>>,
    /// The last attempt of earlier runs of the program.
    earlier_attempts: u64,
}

/// How far a run came in earlier runs of the program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    #[default]
    None,
    /// Has the last complete checkpoint: its number, and the states by rank.
    Checkpoint(u64, Vec<EncodedValue>),
    /// Has the values that the function has returned, by rank.
    Finished(Vec<EncodedValue>),
}

/// The recorded checkpoints of one rank in the order of their numbers.
type RankCheckpoints = Vec<RecordedCheckpoint>;

struct RecordedCheckpoint {
    number: u64,
    /// The attempt that took it.
    attempt: u64,
    state: EncodedValue,
}

impl RecordedRun {
    /// Opens a run, and returns how far it came.
    ///
    /// # Errors
    /// [`Error::Invalid`](fiber_core::Error::Invalid) if another run is recorded;
    /// [`Error::Journal`](fiber_core::Error::Journal).
    pub(super) fn open(
        state: DurableState,
        identity: &Identity,
    ) -> Result<(RecordedRun, Progress)> {
        let run = state.slots();
        let recorded = state.read(&run)?.into_iter().find(|(slot, _)| *slot == IDENTITY);
        let has_identity = recorded.is_some();
        if let Some((_, recorded)) = recorded {
            let unreadable = |error| state.unusable(format!("it is unreadable: {error}"));
            let recorded = recorded.decode::<Identity>().map_err(unreadable)?;
            if let Some(difference) = identity.difference(&recorded) {
                return Err(ObjectKind::Ring.refused(format!(
                    "the journal has a run {difference}: to begin anew, give the ring another \
                     name, or the journal another version"
                )));
            }
        }
        let mut opened = RecordedRun {
            identity: EncodedValue::new(identity)?,
            has_identity: AtomicBool::new(has_identity),
            results: state.slots_of("results"),
            ranks: (0..identity.size).map(|rank| state.slots_of(rank)).collect(),
            earlier_attempts: 0,
            run,
            state,
        };
        let progress = opened.read_progress()?;
        Ok((opened, progress))
    }

    /// Returns the folder of the journal, for messages.
    pub(super) fn journal(&self) -> String {
        self.state.journal_name()
    }

    fn read_progress(&mut self) -> Result<Progress> {
        let results = self.state.read(&self.results)?;
        if results.len() == self.ranks.len() {
            return Ok(Progress::Finished(results.into_iter().map(|(_, value)| value).collect()));
        }
        let mut ranks = Vec::with_capacity(self.ranks.len());
        for slots in &self.ranks {
            let taken = self.state.read(slots)?.into_iter();
            ranks.push(taken.filter_map(RecordedCheckpoint::read).collect::<RankCheckpoints>());
        }
        let attempts = ranks.iter().flatten().map(|taken| taken.attempt);
        self.earlier_attempts = attempts.max().unwrap_or(0);
        let last = last_complete(&ranks);
        let mut stale = Vec::new();
        for (rank, taken) in ranks.iter().enumerate() {
            let numbers = taken.iter().map(|taken| taken.number);
            stale.extend(
                numbers.filter(|number| Some(*number) != last).map(|number| (rank, number)),
            );
        }
        if !stale.is_empty() {
            self.remove(stale, |_| {});
        }
        let Some(last) = last else { return Ok(Progress::None) };
        let of_last = ranks.into_iter().flatten().filter(|taken| taken.number == last);
        Ok(Progress::Checkpoint(last, of_last.map(|taken| taken.state).collect()))
    }

    /// Records a rank's state in a checkpoint. `then` gets the copy of it that this makes.
    pub(super) fn checkpoint(
        &self,
        attempt: u64,
        rank: usize,
        number: u64,
        state: EncodedValue,
        then: impl FnOnce(EncodedValue, Result<()>) + Send + 'static,
    ) {
        let attempt = self.earlier_attempts + attempt;
        let mut bytes = Vec::with_capacity(ATTEMPT + state.bytes.len());
        bytes.extend_from_slice(&attempt.to_le_bytes());
        bytes.extend_from_slice(&state.bytes);
        let value = EncodedValue { bytes: bytes.into(), blobs: state.blobs };
        let state =
            EncodedValue { bytes: value.bytes.slice(ATTEMPT..), blobs: value.blobs.clone() };
        let mut changes = self.identify();
        changes.push(Change::Put { slots: Arc::clone(&self.ranks[rank]), slot: number, value });
        self.state.record(changes, move |result| then(state, result));
    }

    /// Removes checkpoints of ranks, by their numbers.
    pub(super) fn remove(
        &self,
        checkpoints: Vec<(usize, u64)>,
        then: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        self.state.record(self.removal(checkpoints).collect(), then);
    }

    /// Records the values of all ranks, by which the run is over, and removes checkpoints.
    pub(super) fn finish(
        &self,
        values: &[EncodedValue],
        checkpoints: Vec<(usize, u64)>,
        then: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let mut changes = self.identify();
        changes.extend((0..).zip(values).map(|(slot, value)| Change::Put {
            slots: Arc::clone(&self.results),
            slot,
            value: value.clone(),
        }));
        changes.extend(self.removal(checkpoints));
        self.state.record(changes, then);
    }

    fn removal(&self, checkpoints: Vec<(usize, u64)>) -> impl Iterator<Item = Change> {
        checkpoints
            .into_iter()
            .map(|(rank, slot)| Change::Remove { slots: Arc::clone(&self.ranks[rank]), slot })
    }

    /// Returns the change that records the identity, with the first of the other records.
    fn identify(&self) -> Vec<Change> {
        if self.has_identity.swap(true, Ordering::Relaxed) {
            return Vec::new();
        }
        let (slots, value) = (Arc::clone(&self.run), self.identity.clone());
        vec![Change::Put { slots, slot: IDENTITY, value }]
    }
}

/// The length of the number of the attempt before a recorded state.
const ATTEMPT: usize = 8;

impl RecordedCheckpoint {
    /// Reads a recorded state, which begins with the number of its attempt.
    fn read((number, mut state): (u64, EncodedValue)) -> Option<RecordedCheckpoint> {
        let attempt = state.bytes.try_get_u64_le().ok()?;
        Some(RecordedCheckpoint { number, attempt, state })
    }
}

/// Returns the number of the last checkpoint that all ranks have recorded in the same attempt.
fn last_complete(ranks: &[RankCheckpoints]) -> Option<u64> {
    let (first, others) = ranks.split_first()?;
    let same = |one: &RecordedCheckpoint, other: &RecordedCheckpoint| {
        (one.number, one.attempt) == (other.number, other.attempt)
    };
    let is_complete = |one: &&RecordedCheckpoint| {
        others.iter().all(|taken| taken.iter().any(|other| same(one, other)))
    };
    first.iter().rev().find(is_complete).map(|taken| taken.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(checkpoints: &[(u64, u64)]) -> RankCheckpoints {
        let taken = checkpoints.iter().map(|&(number, attempt)| RecordedCheckpoint {
            number,
            attempt,
            state: EncodedValue::default(),
        });
        taken.collect()
    }

    #[test]
    fn a_checkpoint_is_complete_if_all_ranks_took_it_in_one_attempt() {
        let last = |ranks: [&[(u64, u64)]; 2]| last_complete(&ranks.map(taken));
        assert_eq!(last([&[(4, 1), (5, 1)], &[(4, 1)]]), Some(4));
        assert_eq!(last([&[(4, 1), (5, 2)], &[(4, 1), (5, 1)]]), Some(4), "the fifth is of two");
        assert_eq!(last([&[(5, 2)], &[(4, 1), (5, 2)]]), Some(5), "the fourth is being removed");
        assert_eq!(last([&[(5, 2)], &[]]), None);
    }

    #[test]
    fn arguments_have_one_encoding_for_an_identity() {
        let large = (vec![7_u8; 100_000], "text".repeat(50_000));
        let encoded = Identity::encode(&large).unwrap();
        assert!(encoded.blobs.is_empty(), "whether these have blobs depends on shared memory");
        assert_eq!(encoded, Identity::encode(&large).unwrap());
    }

    #[test]
    fn identities_differ_in_function_size_and_arguments() {
        let arguments = |n: u32| EncodedValue::new(&n).unwrap();
        let recorded = Identity::new("train", 4, &arguments(1));
        let difference = |other: Identity| other.difference(&recorded);
        assert_eq!(difference(Identity::new("train", 4, &arguments(1))), None);
        for (other, expected) in [
            (Identity::new("test", 4, &arguments(1)), "of `train`, not of `test`"),
            (Identity::new("train", 2, &arguments(1)), "of 4 ranks, not of 2"),
            (Identity::new("train", 4, &arguments(2)), "with other arguments"),
        ] {
            assert_eq!(difference(other).as_deref(), Some(expected));
        }
    }
}

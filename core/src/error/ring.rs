//! The problems that end the run of a ring without a death.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::exit::ExitReason;

/// Why the ranks of a ring could not continue together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingProblem {
    /// Two ranks make different calls.
    Mismatch {
        /// The rank that noticed it.
        rank: usize,
        /// The call of that rank.
        call: String,
        /// The other rank.
        other: usize,
        /// The call of the other rank.
        other_call: String,
    },
    /// A rank waited for others for longer than the ring's `timeout`.
    TimedOut {
        /// The rank that timed out first.
        rank: usize,
        /// The ring's `timeout`.
        limit: Duration,
        /// The activity of each rank, or `None` for a rank that does not answer.
        activities: Vec<Option<RankActivity>>,
    },
    /// A rank can't reach another one.
    Disconnected {
        /// The rank.
        rank: usize,
        /// The other rank.
        other: usize,
        /// The error of the connection.
        cause: String,
    },
    /// A rank can't accept the data of others, because it has too many open files.
    NotAccepted {
        /// The rank.
        rank: usize,
        /// The system's error, with the limit to raise.
        cause: String,
    },
    /// A rank waits for another one, whose function has returned.
    FunctionReturned {
        /// The rank that waits.
        rank: usize,
        /// The call of that rank.
        call: String,
        /// The rank whose function has returned.
        other: usize,
    },
    /// The ring was killed.
    Killed,
    /// The ring's handle was dropped.
    Dropped,
    /// The ring ended before all its nodes had started.
    NotStarted,
    /// The supervisor of the ranks ended.
    SupervisorEnded(ExitReason),
}

/// The activity of a rank at the moment of a timeout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RankActivity {
    /// The rank runs its function's own code.
    #[default]
    OwnCode,
    /// The rank is in this operation with other ranks.
    Operation(String),
    /// The rank's function has returned.
    Returned,
}

impl fmt::Display for RankActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RankActivity::OwnCode => f.write_str("in its own code"),
            RankActivity::Operation(operation) => write!(f, "in {operation}"),
            RankActivity::Returned => f.write_str("done with its function"),
        }
    }
}

impl fmt::Display for RingProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingProblem::Mismatch { rank, call, other, other_call } => write!(
                f,
                "its ranks make different calls: rank {rank} is in {call}, rank {other} in \
                 {other_call}. All ranks have to call the same collectives in the same order, with \
                 slices of the same length"
            ),
            RingProblem::TimedOut { rank, limit, activities } => {
                let operation = match activities.get(*rank) {
                    Some(Some(RankActivity::Operation(operation))) => operation,
                    _ => "an operation",
                };
                write!(
                    f,
                    "rank {rank} timed out after {limit:?} in {operation}: {}. All ranks have to \
                     join the operation within the ring's `timeout`",
                    Groups(activities)
                )
            }
            RingProblem::Disconnected { rank, other, cause } => {
                write!(f, "rank {rank} cannot reach rank {other}: {cause}")
            }
            RingProblem::NotAccepted { rank, cause } => {
                write!(f, "rank {rank} cannot accept a stream of another rank: {cause}")
            }
            RingProblem::FunctionReturned { rank, call, other } => write!(
                f,
                "rank {rank} waits for rank {other} in {call}, but the function of rank {other} \
                 has returned"
            ),
            RingProblem::Killed => f.write_str("it was killed"),
            RingProblem::Dropped => f.write_str("its handle was dropped"),
            RingProblem::NotStarted => f.write_str("it ended before all nodes started"),
            RingProblem::SupervisorEnded(reason) => write!(f, "its supervisor {reason}"),
        }
    }
}

/// Prints the ranks in groups of one activity.
struct Groups<'a>(&'a [Option<RankActivity>]);

impl fmt::Display for Groups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (rank, activity) in self.0.iter().enumerate() {
            let activity = activity.as_ref().map_or("silent".into(), RankActivity::to_string);
            groups.entry(activity).or_default().push(rank);
        }
        for (number, (activity, ranks)) in groups.iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{} {activity}", subject(ranks))?;
        }
        Ok(())
    }
}

/// Returns ranks as the subject of a sentence: `rank 1 is`, `ranks 0 and 2 are`.
fn subject(ranks: &[usize]) -> String {
    let words: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    match words.as_slice() {
        [one] => format!("rank {one} is"),
        [first @ .., last] => format!("ranks {} and {last} are", first.join(", ")),
        [] => "none is".into(),
    }
}

impl std::error::Error for RingProblem {}

//! The reasons that errors give for the end of pools, rings, queues and pipes.

use std::fmt;
use std::time::Duration;

/// Why a pool takes no more calls, or failed those that it had.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolEndReason {
    /// It was closed: it finishes the calls that it has.
    Closed,
    /// It was closed, has finished its calls and has ended its workers.
    Stopped,
    /// It was killed.
    Killed,
    /// Its last handle was dropped.
    Dropped,
    /// Its workers could not be started, or died too often before they had a task.
    Failed(String),
}

impl fmt::Display for PoolEndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolEndReason::Closed => f.write_str("is closed: it takes no more calls"),
            PoolEndReason::Stopped => f.write_str("has been closed and has ended"),
            PoolEndReason::Killed => f.write_str("was killed"),
            PoolEndReason::Dropped => {
                f.write_str("has ended, because its last handle was dropped: keep a clone of it")
            }
            PoolEndReason::Failed(problem) => write!(f, "failed: {problem}"),
        }
    }
}

/// Why nothing more comes out of a queue or a pipe, or goes into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// It was closed.
    Closed,
    /// The other end of the pipe is gone.
    OtherEndGone,
    /// Its owner lives, but stopped answering.
    NoAnswer,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CloseReason::Closed => "was closed, and nothing is left in it",
            CloseReason::OtherEndGone => "has ended: its other end is gone",
            CloseReason::NoAnswer => "stopped answering",
        })
    }
}

/// Why a ring did not recover from the death of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingEndReason {
    /// No rank had stored a checkpoint.
    NoCheckpoint,
    /// The ring had been restarted too often.
    IntensityReached {
        /// How many restarts were allowed.
        restarts: u32,
        /// Within which time.
        period: Duration,
    },
}

impl fmt::Display for RingEndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingEndReason::NoCheckpoint => f.write_str(
                "ended without a checkpoint to restart from (see `RingNode::checkpoint`)",
            ),
            RingEndReason::IntensityReached { restarts, period } => {
                write!(f, "gave up: it needed more than {restarts} restarts in {period:?}")
            }
        }
    }
}

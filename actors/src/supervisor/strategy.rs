//! Restart strategies.

use std::fmt;

use serde::Serialize;

/// Which children a supervisor restarts when one fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Strategy {
    /// Only the failed child.
    #[default]
    OneForOne,
    /// All children: the supervisor stops the others in reverse order, then starts all in order.
    OneForAll,
    /// The failed child and those that started after it.
    RestForOne,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strategy::OneForOne => "one for one",
            Strategy::OneForAll => "one for all",
            Strategy::RestForOne => "rest for one",
        })
    }
}

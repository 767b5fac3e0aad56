//! Which children are restarted together.

use std::fmt;

use serde::Serialize;

/// Which children are restarted when one has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Strategy {
    /// Only that one.
    #[default]
    OneForOne,
    /// All: the others are ended in reverse order, then all are started in order.
    OneForAll,
    /// That one and all that were started after it.
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

//! The options of `fiber run` that all batch systems have.

use crate::cluster::{BackendOption, OptionKind};

/// The option for the time limit.
pub const TIME: BackendOption = BackendOption::new(
    "time",
    OptionKind::Time,
    "TIME",
    "The time limit of the whole session: 30m, 2h, 1day [default: that of the partition or queue]",
);

/// The option that asks for the script alone.
pub const DRY_RUN: BackendOption = BackendOption {
    conflicts: &["attach", "json"],
    ..BackendOption::new(
        "dry-run",
        OptionKind::Flag,
        "",
        "Prints the batch script, and submits nothing",
    )
};

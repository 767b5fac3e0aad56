//! Rings: values, collectives, checkpoints, deaths and errors.

mod checkpoints;
mod collectives;
mod deaths;
mod disagreement;
mod frameworks;
mod runs;
mod values;

use std::path::Path;

use fiber_test_support::signals::die;

/// More elements than fit into a shared-memory stream or a message of nng.
const LONG: usize = 700_001;

/// Dies at the first call only. The file marks it.
fn die_once(file: &Path) {
    if std::fs::OpenOptions::new().write(true).create_new(true).open(file).is_ok() {
        die()
    }
}

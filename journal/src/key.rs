//! The identity of a task.

/// The hash of what identifies a task: its call and its encoded argument.
///
/// The call is its name or order, its function's path and the version. Equal tasks of a call have
/// equal keys; each takes a recorded outcome of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskKey(pub [u8; 16]);

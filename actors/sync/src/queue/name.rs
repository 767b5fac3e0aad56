//! Names of queues and pipes.

use std::panic::Location;

use fiber_core::short_file;

use fiber_runtime::objects::made_at;

/// The name of a queue or pipe.
pub(super) struct QueueName {
    /// The name in errors.
    pub(super) text: String,
    /// The name in statistics: the one that the program gave, else the place that made the queue.
    pub(super) label: String,
}

impl QueueName {
    /// Returns the name that the program gave to a queue.
    pub(super) fn given(name: &str) -> QueueName {
        QueueName { text: format!("the queue `{name}`"), label: name.to_string() }
    }

    /// Returns the name of an object without one.
    pub(super) fn made_at(object: &str, place: &Location<'_>) -> QueueName {
        let label = format!("{}:{}", short_file(place.file()), place.line());
        QueueName { text: made_at(object, place), label }
    }
}

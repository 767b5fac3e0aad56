//! Outages of engines, of which the log warns once.

use std::mem;

#[cfg(test)]
pub(crate) mod tests;

/// The current outage of an engine that a task asks again and again, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    is_logged: bool,
}

impl Outage {
    /// Logs a failure of the engine: as a warning only if the outage begins with it.
    pub(crate) fn log(&mut self, problem: &str) {
        match mem::replace(&mut self.is_logged, true) {
            false => tracing::warn!("{problem}"),
            true => tracing::debug!("{problem}"),
        }
    }

    /// Notes that the engine has answered.
    pub(crate) fn end(&mut self) {
        self.is_logged = false;
    }
}

//! The promises of all backends, as tests that each backend has to pass.
//!
//! [`ALL`] is for every backend, [`OF_LIMITS`] and [`OF_IMAGES`] for those that limit resources or
//! run images. The jobs of the tests are the test's own program, with a command in its arguments:
//! its `main` calls [`run_if_job`] first.
//!
//! # Examples
//! ```
//! use fiber_conformance as conformance;
//! use fiber_core::Config;
//!
//! fiber_backends::run_if_helper();
//! if let Some(code) = conformance::run_if_job() {
//!     std::process::exit(code);
//! }
//! let mut config = Config::default();
//! config.backend = "local".into();
//! for promise in conformance::ALL {
//!     promise.check(&config);
//! }
//! ```

mod job;
mod promises;
mod registry;

use fiber_core::Config;

pub use self::job::run_if_job;
pub use self::promises::{ALL, OF_IMAGES, OF_LIMITS};

/// A promise that backends keep.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    name: &'static str,
    keep: promises::Keep,
}

impl Promise {
    /// Returns its name, which states it: `exit_codes_are_reported`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Checks that the configured backend keeps it.
    ///
    /// # Panics
    /// If it does not.
    pub fn check(&self, config: &Config) {
        promises::check(config, None, self.keep);
    }

    /// Checks that the configured backend keeps it for jobs on one of its
    /// [machines](fiber_backends::Backend::machines).
    ///
    /// # Panics
    /// If it does not.
    pub fn check_on(&self, config: &Config, machine: impl Into<String>) {
        promises::check(config, Some(machine.into()), self.keep);
    }
}

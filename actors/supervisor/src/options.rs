//! Options that the builders of processes share: each is defined here once.

use std::collections::HashMap;

use fiber_backends::ChildOutput;
use fiber_core::{Config, Error, Meta, OutputMode, Result};
use parking_lot::Mutex;

use fiber_runtime::parts::Parts;

/// The options of every builder that starts processes.
#[derive(Clone, Debug, Default)]
pub struct ProcessOptions {
    /// The name of the pool, ring, actor or process. `None` numbers it by its kind.
    pub name: Option<String>,
    /// The resources that each process requests.
    pub meta: Meta,
    /// The destination of the processes' output. `None` takes that of the configuration.
    pub output: Option<OutputMode>,
    /// How many processes share a job, at least 1. `None` takes the number of the configuration.
    pub processes_per_job: Option<usize>,
}

impl ProcessOptions {
    /// Returns the name, or the next of this thread's session: `pool-1`, `pool-2` and so on.
    pub fn name_or_numbered(&self, prefix: &'static str) -> String {
        self.name.clone().unwrap_or_else(|| next_name(prefix))
    }

    /// Returns how many processes share a job.
    ///
    /// # Errors
    /// [`Error::Invalid`] for 0.
    pub fn processes_per_job(&self, config: &Config) -> Result<usize> {
        let count = self.processes_per_job.unwrap_or(config.processes_per_job);
        if count == 0 {
            let problem = "a job is for at least 1 process: set `processes_per_job` to 1 or more";
            return Err(Error::invalid("processes_per_job", problem));
        }
        Ok(count)
    }

    /// Returns where the output goes of processes that the current thread asks for.
    pub fn output(&self, config: &Config) -> ChildOutput {
        ChildOutput::new(self.output.unwrap_or(config.output))
    }
}

/// The last number of each default name.
#[derive(Default)]
struct Numbers(Mutex<HashMap<&'static str, u64>>);

/// Returns a default name that is the first of this thread's session: `prefix` with a number from 1
/// on.
pub fn next_name(prefix: &'static str) -> String {
    let numbers: &Numbers = Parts::current().get();
    let mut numbers = numbers.0.lock();
    let last = numbers.entry(prefix).or_default();
    *last += 1;
    format!("{prefix}-{last}")
}

/// Defines the methods of options that builders share, with the fields in which they are stored.
///
/// The text of a method's documentation follows the sentences that all builders have in common.
///
/// ```text
/// impl PoolBuilder {
///     builder_options! {
///         /// The default is `pool-1` and so on.
///         name => options.name;
///         meta => options.meta;
///     }
/// }
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! builder_options {
    ($($(#[$text:meta])* $option:ident => $($field:ident).+;)*) => {
        $($crate::builder_option! { $(#[$text])* $option => $($field).+ })*
    };
}

/// Defines the methods of one option, for [`builder_options`].
#[doc(hidden)]
#[macro_export]
macro_rules! builder_option {
    ($(#[$text:meta])* name => $($field:ident).+) => {
        /// Sets the name that errors, logs and the [tree](fiber_supervisor::supervisor::tree())
        /// show.
        ///
        $(#[$text])*
        pub fn name(mut self, name: impl Into<String>) -> Self {
            self.$($field).+ = Some(name.into());
            self
        }
    };
    ($(#[$text:meta])* meta => $($field:ident).+) => {
        /// Requests resources for each process.
        ///
        $(#[$text])*
        pub fn meta(mut self, meta: fiber_core::Meta) -> Self {
            self.$($field).+ = meta;
            self
        }
    };
    ($(#[$text:meta])* output => $($field:ident).+) => {
        /// Sets where the output of each process goes.
        ///
        /// The default is `output` of the [configuration](fiber_core::Config).
        $(#[$text])*
        pub fn output(mut self, output: fiber_core::OutputMode) -> Self {
            self.$($field).+ = Some(output);
            self
        }
    };
    ($(#[$text:meta])* processes_per_job => $($field:ident).+) => {
        /// Sets how many processes share a job: a container or a pod.
        ///
        /// The default is `processes_per_job` of the [configuration](fiber_core::Config). A host in
        /// the job starts and watches them; the job requests the sum of what they request.
        $(#[$text])*
        pub fn processes_per_job(mut self, count: usize) -> Self {
            self.$($field).+ = Some(count);
            self
        }
    };
    ($(#[$text:meta])* initializer => $($field:ident).+) => {
        /// Calls `function` in each process when it starts, before anything else.
        ///
        /// Its arguments are one value, or a tuple for a function of several. They are encoded
        /// once, here, and travel to each process.
        $(#[$text])*
        #[track_caller]
        pub fn initializer<F, A, M, N>(mut self, function: F, args: A) -> Self
        where
            F: fiber_values::Function<A, M, Output: fiber_values::TaskOutput<N>>,
            A: fiber_values::Portable,
            N: 'static,
        {
            const { fiber_values::assert_captures_nothing::<F>() };
            self.$($field).+ = Some($crate::process::Initializer::new(
                &fiber_values::TypedEntry::of::<F, M, fiber_values::AsValue<N>>(function),
                &args,
            ));
            self
        }
    };
    ($(#[$text:meta])* try_initializer => $($field:ident).+) => {
        /// Works as [`initializer`](Self::initializer), for a function that returns a `Result`
        /// whose error implements `Display`. An `Err` is a failure of the start, and the error's
        /// text its reason.
        ///
        $(#[$text])*
        #[track_caller]
        pub fn try_initializer<F, A, M, N>(mut self, function: F, args: A) -> Self
        where
            F: fiber_values::Function<A, M, Output: fiber_values::TryOutput<N>>,
            A: fiber_values::Portable,
            N: 'static,
        {
            const { fiber_values::assert_captures_nothing::<F>() };
            self.$($field).+ = Some($crate::process::Initializer::new(
                &fiber_values::TypedEntry::of::<F, M, fiber_values::AsResult<N>>(function),
                &args,
            ));
            self
        }
    };
    ($(#[$text:meta])* restart => $($field:ident).+) => {
        /// Sets after which ends the supervisor starts it again.
        ///
        $(#[$text])*
        pub fn restart(mut self, restart: $crate::supervisor::Restart) -> Self {
            self.$($field).+ = restart;
            self
        }
    };
    ($(#[$text:meta])* intensity => $($field:ident).+) => {
        /// Sets how many restarts are allowed in a period.
        ///
        /// The default is 3 restarts in 5 seconds.
        $(#[$text])*
        pub fn intensity(mut self, restarts: u32, period: std::time::Duration) -> Self {
            self.$($field).+ = $crate::supervisor::Intensity { restarts, period };
            self
        }
    };
    ($(#[$text:meta])* backoff => $($field:ident).+) => {
        /// Sets the pauses before restarts. There is none before the first restart.
        ///
        $(#[$text])*
        pub fn backoff(mut self, backoff: $crate::supervisor::Backoff) -> Self {
            self.$($field).+ = backoff;
            self
        }
    };
}

pub use crate::builder_options;

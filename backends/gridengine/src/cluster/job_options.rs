//! The options of `fiber run` that Grid Engine brings along.

use std::time::Duration;

use fiber_backends::BackendError;
use fiber_backends::batch::options;
use fiber_backends::cluster::{BackendOption, OptionKind, RunRequest};

use super::super::options::{seconds, verbatim};
use super::super::queue;

/// The options, in their order in the help.
pub(super) const OPTIONS: &[BackendOption] = &[
    BackendOption::new(
        "pe",
        OptionKind::Text,
        "NAME",
        "The parallel environment (`qconf -spl`) [default: the only one]",
    ),
    BackendOption::new(
        "slots",
        OptionKind::Count,
        "COUNT",
        "The number of slots, each for a worker [default: 1]",
    ),
    BackendOption::new("queue", OptionKind::Text, "NAME", "The queue [default: any]"),
    BackendOption::new("project", OptionKind::Text, "NAME", "The project that pays for it"),
    options::TIME,
    BackendOption::new(
        "gridengine",
        OptionKind::Verbatim,
        "OPTION",
        "Any other option of `qsub` with its value: `--gridengine='-l h_vmem=4G'`. Can be repeated",
    ),
    options::DRY_RUN,
];

/// The values of the options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobOptions {
    /// The parallel environment; the only one without.
    pub(super) pe: Option<String>,
    pub(super) slots: u32,
    pub(super) queue: Option<String>,
    pub(super) project: Option<String>,
    /// The time limit; the queue's without.
    pub(super) time: Option<Duration>,
    /// Words of the command line of `qsub`.
    pub(super) words: Vec<String>,
}

impl JobOptions {
    /// # Errors
    /// An option of `qsub` can't be passed on.
    pub(super) fn of(run: &RunRequest) -> Result<JobOptions, BackendError> {
        let given = &run.options;
        let mut words = Vec::new();
        for option in given.texts("gridengine") {
            words.extend(verbatim(&option, &format!("`--gridengine '{option}'`"), &[])?);
        }
        Ok(JobOptions {
            pe: given.text("pe"),
            slots: given.count("slots").unwrap_or(1),
            queue: given.text("queue"),
            project: given.text("project"),
            time: given.time("time"),
            words,
        })
    }

    /// Returns the time limit in seconds, if the session has one that is known here.
    pub(super) fn limit(&self) -> Option<u64> {
        // Later options win.
        self.requested_limit().or_else(|| self.time.map(seconds))
    }

    /// Returns the limit of an option such as `-l h_rt=1:00:00`.
    fn requested_limit(&self) -> Option<u64> {
        let requests = self.words.windows(2).filter(|words| words[0] == "-l");
        let mut limits = requests.filter_map(|words| queue::requested_limit(&words[1], "h_rt"));
        limits.next_back().map(|limit| limit.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_is_named_last_counts() {
        let mut options =
            JobOptions { time: Some(Duration::from_millis(1500)), ..JobOptions::default() };
        assert_eq!(options.limit(), Some(2));
        options.words = ["-l", "h_vmem=1G,h_rt=1:00:05", "-q", "h_rt=9"].map(String::from).into();
        assert_eq!(options.limit(), Some(3605));
    }
}

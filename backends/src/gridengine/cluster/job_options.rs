//! The options of `fiber run` that Grid Engine brings along.

use std::time::Duration;

use super::super::queue;
use crate::BackendError;
use crate::cluster::session::RunRequest;
use crate::cluster::{BackendOption, OptionKind};

/// The option that asks for the script alone.
pub(super) const DRY_RUN: &str = "dry-run";

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
    BackendOption::new(
        "time",
        OptionKind::Time,
        "TIME",
        "The time limit of the whole session: 30m, 2h, 1day [default: that of the partition or \
         queue]",
    ),
    BackendOption::new(
        "gridengine",
        OptionKind::Verbatim,
        "OPTION",
        "Any other option of `qsub` with its value: `--gridengine='-l h_vmem=4G'`. Can be repeated",
    ),
    BackendOption {
        conflicts: &["attach", "json"],
        ..BackendOption::new(
            DRY_RUN,
            OptionKind::Flag,
            "",
            "Prints the batch script, and submits nothing",
        )
    },
];

/// Options that fiber needs itself, or that would start several heads or none.
const RESERVED: [(&[&str], &str); 10] = [
    (&["-N"], "give the session a name with --name"),
    (&["-t", "-tc"], "a program has one head: start several sessions"),
    (&["-sync"], "use --attach"),
    (&["-now"], "a session waits for its slots: `fiber kill` removes it from the queue"),
    (&["-terse", "-verify", "-help"], "fiber reads the job's id itself; see --dry-run"),
    (&["-o", "-e", "-j"], "fiber reads the output from a file of its own"),
    (&["-pe"], "use --pe and --slots"),
    (&["-cwd", "-wd"], "the session runs in the directory of `fiber run`"),
    (&["-b", "-shell", "-S", "-C"], "the program is CMD, which fiber's script starts"),
    (&["-@", "-clear", "-sc", "-dc"], "it changes options that fiber needs: write them one by one"),
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
            words.extend(verbatim(&option)?);
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
        self.requested_limit().or_else(|| {
            let time = self.time?;
            Some(time.as_secs() + u64::from(time.subsec_nanos() > 0))
        })
    }

    /// Returns the limit of an option such as `-l h_rt=1:00:00`.
    fn requested_limit(&self) -> Option<u64> {
        let requests = self.words.windows(2).filter(|words| words[0] == "-l");
        let mut limits = requests.filter_map(|words| queue::requested_limit(&words[1]));
        limits.next_back().map(|limit| limit.as_secs())
    }
}

/// Returns the words of an option.
fn verbatim(option: &str) -> Result<Vec<String>, BackendError> {
    let words = shlex::split(option).filter(|words| {
        words.first().is_some_and(|word| word.len() > 1 && word.starts_with('-'))
    });
    let Some(words) = words else {
        return Err(refused!(
            "`--gridengine '{option}'` is no option of qsub: write it with its value, as in \
             `--gridengine='-l h_vmem=4G'`"
        ));
    };
    if let Some(wrong) = words.iter().find(|word| word.contains(['\n', '\0'])) {
        return Err(refused!("`{wrong}` has a line break, which no option of qsub may have"));
    }
    let reserved =
        RESERVED.iter().find(|(names, _)| words.iter().any(|word| names.contains(&&**word)));
    match reserved {
        Some((_, why)) => {
            Err(refused!("`--gridengine '{option}'` can't be passed on: {why}"))
        }
        None => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_fiber_needs_itself_are_refused() {
        for (option, why) in [
            ("-N x", "--name"),
            ("-t 1-3", "one head"),
            ("-l a=1 -t 1-3", "one head"),
            ("-sync y", "--attach"),
            ("-now yes", "fiber kill"),
            ("-j y", "a file of its own"),
            ("-pe wide 4", "--slots"),
            ("-@ file", "one by one"),
        ] {
            let refused = verbatim(option).unwrap_err().to_string();
            assert!(refused.contains(why) && refused.contains(option), "{refused}");
        }
        for wrong in ["h_vmem=4G", "-", "", "-l 'a"] {
            assert!(verbatim(wrong).unwrap_err().to_string().contains("is no option of qsub"));
        }
        assert!(verbatim("-A 'a\nb'").unwrap_err().to_string().contains("line break"));
        assert_eq!(verbatim("-l 'a=b c' -p -9").unwrap(), ["-l", "a=b c", "-p", "-9"]);
    }

    #[test]
    fn the_limit_that_is_named_last_counts() {
        let mut options =
            JobOptions { time: Some(Duration::from_millis(1500)), ..JobOptions::default() };
        assert_eq!(options.limit(), Some(2));
        options.words = ["-l", "h_vmem=1G,h_rt=1:00:05", "-q", "h_rt=9"].map(String::from).into();
        assert_eq!(options.limit(), Some(3605));
    }
}

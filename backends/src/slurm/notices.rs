//! Messages of `srun -v` and the step's daemon on standard error, between the lines of the program.
//!
//! The words differ between versions. Unknown ones only lose detail: without any, the exit code of
//! `srun` counts.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use fiber_core::ExitReason;

use crate::reason_of_code;

/// The wait status by which Slurm marks a task that the OOM killer has ended.
const OUT_OF_MEMORY: u32 = 0xfd;

/// The remedy if a node has no program.
pub(super) const COPY_HINT: &str = "the program's file has to exist on all nodes, for example on a \
    shared file system, or set `slurm.copy = true`";

/// A change of the step that a line tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It waits for resources.
    Waits(String),
    /// Its process runs.
    Runs,
    /// Its node lacks the working directory, and uses another one.
    Elsewhere(String),
}

/// The facts that Slurm has reported about a step.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// `JOB.STEP`.
    pub(super) step: Option<String>,
    pub(super) started: bool,
    /// The wait status of the task.
    status: Option<u32>,
    out_of_memory: bool,
    preempted: Option<String>,
    /// The node failed, or the time limit of the job was reached.
    evicted: Option<String>,
    cancelled: Option<String>,
    not_executed: Option<String>,
    /// Slurm says more than once that its process is in another working directory.
    is_elsewhere: bool,
    errors: Vec<String>,
}

/// Returns the words of a line that Slurm has written, and `None` for lines of the program.
pub(super) fn words(line: &str) -> Option<&str> {
    if let Some(words) = line.strip_prefix("srun: ") {
        return Some(words);
    }
    // Some builds add the name of the node.
    let (own, words) = line.strip_prefix("slurmstepd")?.split_once(": ")?;
    (own.is_empty() || own.starts_with('-')).then_some(words)
}

impl Notices {
    /// Takes the words of a line in.
    pub(super) fn add(&mut self, words: &str) -> Option<Change> {
        let lower = words.to_lowercase();
        let has = |part: &str| lower.contains(part);
        if self.step.is_none() {
            self.step = step_in(words);
        }
        if let Some(status) = status_in(&lower) {
            self.status = Some(status);
        }
        let problem = words.strip_prefix("error: ");
        if has("oom") && has("kill") || has("out of memory") {
            self.out_of_memory = true;
        } else if has("preempt") {
            self.preempted = Some(plain(words));
        } else if has("node fail") || has("time limit") {
            self.evicted = Some(plain(words));
        } else if has("cancelled") {
            self.cancelled = Some(plain(words));
        } else if has("execve") {
            self.not_executed = problem.map(plain);
        } else if has("couldn't chdir") {
            let is_news = !std::mem::replace(&mut self.is_elsewhere, true);
            return is_news.then(|| Change::Elsewhere(plain(words)));
        } else if has("temporarily disabled") || has("nodes are busy") {
            return Some(Change::Waits(plain(words)));
        } else if has("tasks started") || has("step created") {
            self.started = true;
            return Some(Change::Runs);
        } else if let Some(problem) = problem {
            self.errors.push(plain(problem));
        }
        None
    }

    /// Returns why the step's process ended. `terminated`: this process has sent it SIGTERM;
    /// `killed`: it has killed it.
    pub(super) fn reason(&self, srun: ExitStatus, terminated: bool, killed: bool) -> ExitReason {
        if killed {
            return ExitReason::Signal(9);
        }
        if let Some(words) = &self.preempted {
            return ExitReason::Preempted(words.clone());
        }
        if let Some(words) = &self.evicted {
            return ExitReason::Evicted(words.clone());
        }
        if self.out_of_memory || self.status == Some(OUT_OF_MEMORY) {
            return ExitReason::OutOfMemory;
        }
        let status = self.status.map(|status| ExitStatus::from_raw(status.cast_signed()));
        let ended_by_itself = status.is_some_and(|status| status.signal().is_none());
        if let Some(words) = self.cancelled.as_ref().filter(|_| !terminated && !ended_by_itself) {
            return ExitReason::Cancelled(words.clone());
        }
        if let Some(problem) = &self.not_executed {
            return ExitReason::NotStarted(format!("{problem}: {COPY_HINT}"));
        }
        let ended = status.unwrap_or(srun);
        match (ended.code(), ended.signal()) {
            (Some(0), _) => ExitReason::Normal,
            (Some(_), _) if !self.started && status.is_none() => {
                ExitReason::NotStarted(format!("`srun` failed: {}", self.problems(srun)))
            }
            (Some(code), _) if status.is_none() => reason_of_code(code),
            (Some(code), _) => ExitReason::Code(code),
            (None, Some(signal)) if status.is_some() => ExitReason::Signal(signal),
            (None, _) => ExitReason::Cancelled(format!("its `srun` was killed ({srun})")),
        }
    }

    fn problems(&self, srun: ExitStatus) -> String {
        match self.errors.is_empty() {
            true => srun.to_string(),
            false => self.errors.join("; "),
        }
    }
}

/// Returns a message without the marks of an error.
fn plain(words: &str) -> String {
    words.trim_start_matches("error: ").trim_matches(['*', ' ']).to_string()
}

/// Finds `StepId=JOB.STEP`.
fn step_in(words: &str) -> Option<String> {
    let rest = words.split_once("launching StepId=").or_else(|| words.split_once("step "))?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let id = rest[..end].trim_end_matches('.');
    id.contains('.').then(|| id.to_string())
}

/// Finds `(status=0x0300)`, a wait status.
fn status_in(lower: &str) -> Option<u32> {
    let rest = lower.split_once("status=0x")?.1;
    let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
    u32::from_str_radix(&rest[..end], 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED: &str = "srun: launching StepId=2.3 on host n2, 1 tasks: 0\nsrun: launch/slurm: \
                           _task_start: Node n2, 1 tasks started\n";

    fn told(text: &str) -> Notices {
        let mut notices = Notices::default();
        text.lines().filter_map(words).for_each(|words| drop(notices.add(words)));
        notices
    }

    fn code(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn lines_of_the_program_are_its_own() {
        assert_eq!(words("srun: error: x"), Some("error: x"));
        assert_eq!(words("slurmstepd: error: x"), Some("error: x"));
        assert_eq!(words("slurmstepd-n2: error: x"), Some("error: x"));
        assert_eq!(words("slurmstepd is a daemon: x"), None);
        assert_eq!(words("error: x"), None);
    }

    #[test]
    fn the_tasks_status_is_exact() {
        let ended = |status: &str, srun| {
            let text = format!(
                "{STARTED}srun: launch/slurm: _task_finish: Received task exit notification for 1 \
                 task of StepId=2.3 (status={status}).\nsrun: error: n2: task 0: Whatever"
            );
            let notices = told(&text);
            assert_eq!(notices.step.as_deref(), Some("2.3"));
            notices.reason(code(srun), false, false)
        };
        assert_eq!(ended("0x0000", 0), ExitReason::Normal);
        assert_eq!(ended("0x0300", 3), ExitReason::Code(3));
        assert_eq!(ended("0x8a00", 138), ExitReason::Code(138));
        assert_eq!(ended("0x000a", 138), ExitReason::Signal(10));
        assert_eq!(ended("0x00fd", 1), ExitReason::OutOfMemory);
    }

    #[test]
    fn without_known_words_the_exit_code_counts() {
        let notices = told("srun: launching StepId=2.3\nsrun: something: 1 tasks started now");
        assert_eq!(notices.reason(code(0), false, false), ExitReason::Normal);
        assert_eq!(notices.reason(code(3), false, false), ExitReason::Code(3));
        assert_eq!(notices.reason(code(143), false, false), ExitReason::Signal(15));
        // A signal has killed `srun` itself.
        let killed = notices.reason(ExitStatus::from_raw(9), false, false).to_string();
        assert!(killed.contains("was cancelled: its `srun` was killed"), "{killed}");
    }

    #[test]
    fn displacements_are_told_from_deaths() {
        let cancelled = "slurmstepd: error: *** STEP 2.3 ON n2 CANCELLED AT 2026-11-23T01:36:59";
        let ended = |rest: &str, terminated, killed| {
            let text = format!(
                "{STARTED}{cancelled}{rest} ***\nsrun: x: task exit notification (status=0x0009).\n"
            );
            told(&text).reason(code(137), terminated, killed)
        };
        assert!(matches!(ended(" DUE TO PREEMPTION", false, false), ExitReason::Preempted(_)));
        assert!(matches!(ended(" DUE TO NODE FAILURE", false, false), ExitReason::Evicted(_)));
        assert!(matches!(ended(" DUE TO TIME LIMIT", false, false), ExitReason::Evicted(_)));
        assert!(matches!(ended("", false, false), ExitReason::Cancelled(_)));
        assert_eq!(ended("", true, false), ExitReason::Signal(9));
        assert_eq!(ended("", false, true), ExitReason::Signal(9));
    }

    #[test]
    fn another_working_directory_is_news_once() {
        let mut notices = Notices::default();
        let line =
            "error: couldn't chdir to `/x': No such file or directory: going to /tmp instead";
        let news = Change::Elsewhere(line.trim_start_matches("error: ").into());
        assert_eq!((notices.add(line), notices.add(line)), (Some(news), None));
    }

    #[test]
    fn a_step_that_never_started_names_the_problem() {
        let refused =
            told("srun: error: Unable to create step for job 1: Invalid job id specified");
        let ExitReason::NotStarted(problem) = refused.reason(code(1), false, false) else {
            panic!("it did not start")
        };
        assert!(problem.contains("Invalid job id specified"), "{problem}");
        let missing = told("slurmstepd: error: execve(): /nope/x: No such file or directory");
        let ExitReason::NotStarted(problem) = missing.reason(code(2), false, false) else {
            panic!("it did not start")
        };
        assert!(problem.contains("/nope/x") && problem.contains("slurm.copy"), "{problem}");
    }
}

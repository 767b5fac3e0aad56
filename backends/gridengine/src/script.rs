//! The scripts of jobs that fiber submits: of sessions, and of pilots.

use std::fmt::{self, Display};
use std::path::Path;

use fiber_backends::BackendError;
use fiber_backends::batch::{CommandError, EXIT, HeadScript, NODE, RESTARTS, quoted};

use super::allocation::ENDS_AT;
use super::commands;

/// How many seconds a head has to end if `fiber kill` does not say it: the `notify` of queues,
/// after which Grid Engine kills the job, is 60 s by default.
const GRACE: u32 = 50;

/// The reasons for which a script ends its program, as it records them.
pub(super) const CANCELLED: &str = "cancelled";
pub(super) const TIME_LIMIT: &str = "its time limit";
pub(super) const OUT_OF_MEMORY: &str = "out of memory: h_vmem";

/// The functions of the script. Grid Engine sends SIGUSR2 to all processes of a job before it kills
/// them (`-notify`): at `qdel`, at the time limit, and beyond `h_vmem`.
const FUNCTIONS: &str = include_str!("traps.sh");
const TRAPS: &str = "trap fiber_stop USR2
# The head has them already.
for fiber_signal in USR1 XCPU; do
    trap \"fiber_signal=$fiber_signal\" $fiber_signal
done";
/// A head that has ended in order was cancelled all the same.
const ENDED: &str = r#"[ -z "$fiber_reason" ] || [ $fiber_code -ne 0 ] || fiber_code=143"#;
/// The lines that set the number of restarts. A script that has begun before has left its mark.
const COUNT_RESTARTS: &str = "export FIBER_RESTARTS=0
if [ -e \"$fiber_files.{EXIT}\" ]; then
    FIBER_RESTARTS=$(($(cat \"$fiber_files.{RESTARTS}\" 2>/dev/null || echo 0) + 1))
    echo \"$FIBER_RESTARTS\" >\"$fiber_files.{RESTARTS}\"
fi
";

/// The parts of a script that differ between jobs.
pub(super) struct JobScript<'a> {
    /// The lines that set variables, `fiber_files` among them.
    pub(super) exports: String,
    /// The time limit in seconds.
    pub(super) limit: Option<u64>,
    pub(super) directory: &'a str,
    pub(super) program: &'a str,
    pub(super) arguments: &'a [String],
    /// How often the job is queued again if its program fails.
    pub(super) restarts: u32,
}

impl JobScript<'_> {
    /// Returns the script without its first line.
    pub(super) fn text(self) -> String {
        let JobScript { mut exports, limit, directory, program, arguments, restarts } = self;
        exports.push_str(&format!(
            "fiber_grace={GRACE}\nfiber_begun=$(date +%s)\nfiber_limit={}\n",
            limit.map(|limit| limit.to_string()).unwrap_or_default()
        ));
        if limit.is_some() {
            exports.push_str(&format!(
                "export {ENDS_AT}=\"$JOB_ID $((fiber_begun + fiber_limit))\"\n"
            ));
        }
        if restarts > 0 {
            exports
                .push_str(&COUNT_RESTARTS.replace("{EXIT}", EXIT).replace("{RESTARTS}", RESTARTS));
        }
        let script = HeadScript {
            exports,
            node: "$(hostname)",
            directory,
            elsewhere: "`cd DIRECTORY`",
            program,
            arguments,
            missing: "put it on a file system that all hosts share",
            begin: &format!(
                "echo started >\"$fiber_files.{EXIT}\"\nhostname >\"$fiber_files.{NODE}\""
            ),
            before_end: before_end(restarts),
            functions: FUNCTIONS,
            ignored: "# A program that wants to know of them sets handlers.\n    trap '' USR1 USR2",
            traps: TRAPS,
            ended: ENDED,
        };
        script.text()
    }
}

/// Returns the lines before the end of a script. Grid Engine queues a job again that exits with 99,
/// and puts one that exits with 100 into an error state.
fn before_end(restarts: u32) -> String {
    let again = format!(
        r#"if [ "$1" -ne 0 ] && [ -z "$fiber_reason" ] && [ "$FIBER_RESTARTS" -lt {restarts} ]; then
        exit 99
    fi
    "#
    );
    let again = if restarts > 0 { &again } else { "" };
    format!("{again}case $1 in 99 | 100) exit 1 ;; esac\n    ")
}

/// Returns the options that all jobs have: an error for a request that no hosts can ever grant, and a
/// signal before the end.
pub(super) fn common_options(
    name: &str,
    context: &str,
    output: &str,
    directory: &str,
    is_restarted: bool,
) -> Vec<String> {
    let rerun = if is_restarted { "y" } else { "n" };
    let options = [
        ["-N", name],
        ["-ac", context],
        ["-S", "/bin/sh"],
        ["-j", "y"],
        ["-o", output],
        ["-wd", directory],
        ["-w", "e"],
        ["-r", rerun],
    ];
    let words = options.as_flattened().iter().chain(&["-notify"]);
    words.map(|word| word.to_string()).collect()
}

/// Returns the options that say where a job runs, and how long.
pub(super) fn place_options(
    queue: Option<&String>,
    project: Option<&String>,
    limit: Option<u64>,
) -> Result<Vec<String>, BackendError> {
    if limit == Some(0) {
        return Err("the time limit is too short: give at least 1s".into());
    }
    let limit = limit.map(|limit| format!("h_rt={limit}"));
    let given = [("-q", queue), ("-P", project), ("-l", limit.as_ref())];
    let given = given.into_iter().filter_map(|(name, value)| Some([name.into(), value?.clone()]));
    Ok(given.flatten().collect())
}

/// A script with the options of its `qsub`, which its [`Display`] shows as comments.
#[derive(Debug)]
pub(super) struct BatchScript {
    options: Vec<String>,
    text: String,
}

impl BatchScript {
    /// Makes a script of options, the last of each kind of which wins, and of what runs.
    ///
    /// # Errors
    /// An option has a line break.
    pub(super) fn new(options: Vec<String>, text: String) -> Result<BatchScript, BackendError> {
        match options.iter().find(|word| word.contains(['\n', '\0'])) {
            Some(wrong) => {
                Err(refused!("`{wrong}` has a line break, which no option of qsub may have"))
            }
            None => Ok(BatchScript { options, text }),
        }
    }

    /// Submits the script and returns the id of its job.
    pub(super) async fn submit(&self) -> Result<String, CommandError> {
        commands::submit(&self.options, &format!("#!/bin/sh\n{}", self.text)).await
    }
}

impl Display for BatchScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "#!/bin/sh")?;
        for words in self.options.chunk_by(|_, next| !next.starts_with('-')) {
            let words: Vec<String> = words.iter().map(|word| directive(word)).collect();
            writeln!(f, "#$ {}", words.join(" "))?;
        }
        f.write_str(&self.text)
    }
}

/// Returns a word as a line `#$` has it, which knows quotes and no variables of a shell.
fn directive(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-$*".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => quoted(word),
    }
}

/// Returns the working directory of this process.
pub(super) fn directory() -> Result<String, BackendError> {
    let path = std::env::current_dir()
        .map_err(|error| format!("the working directory can't be told: {error}"))?;
    text_of(&path)
}

/// Returns a path as text.
pub(super) fn text_of(path: &Path) -> Result<String, BackendError> {
    path.to_str()
        .map(String::from)
        .ok_or_else(|| refused!("the path {} is no UTF-8, which a script needs", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script as `sh` does, and returns its exit code and what it has recorded.
    fn run(program: &str, restarts: u32, folder: &Path) -> (Option<i32>, String) {
        let files = folder.join("job").display().to_string();
        let text = JobScript {
            exports: format!("fiber_files={files}\n"),
            limit: None,
            directory: "/",
            program: "/bin/sh",
            arguments: &["-c".into(), program.into()],
            restarts,
        };
        let ended = std::process::Command::new("sh").args(["-c", &text.text()]).output().unwrap();
        let recorded = std::fs::read_to_string(format!("{files}.{EXIT}")).unwrap();
        (ended.status.code(), recorded.trim().to_string())
    }

    #[test]
    fn exit_codes_that_mean_something_to_grid_engine_are_recorded_and_not_used() {
        let folder = tempfile::tempdir().unwrap();
        for (code, of_script) in [(0, 0), (3, 3), (99, 1), (100, 1)] {
            let ended = run(&format!("exit {code}"), 0, folder.path());
            assert_eq!(ended, (Some(of_script), code.to_string()));
        }
    }

    #[test]
    fn a_script_asks_for_as_many_restarts_as_it_may_have() {
        let folder = tempfile::tempdir().unwrap();
        let starts = || run("exit $((FIBER_RESTARTS + 5))", 2, folder.path());
        assert_eq!(starts(), (Some(99), "5".into()));
        assert_eq!(starts(), (Some(99), "6".into()));
        assert_eq!(starts(), (Some(7), "7".into()));
    }

    #[test]
    fn reasons_are_those_of_the_script() {
        for reason in [CANCELLED, TIME_LIMIT, OUT_OF_MEMORY] {
            assert!(FUNCTIONS.contains(&format!("fiber_reason={}", quoted(reason))), "{reason}");
        }
    }
}

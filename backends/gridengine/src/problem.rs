//! Problems of tasks, and what the user can do about them.

use std::io;

use fiber_backends::BackendError;

const NO_QRSH: &str = "there is no command `qrsh`, neither in $SGE_ROOT/bin/$SGE_ARCH nor in PATH: \
    load Grid Engine's settings in the script of the job (`. $SGE_ROOT/default/common/settings.sh`) \
    or install it on the execution hosts (Debian: apt-get install gridengine-client)";

/// Explains why `qrsh` can't be run here.
pub(super) fn of_command(error: &io::Error) -> BackendError {
    BackendError::of_command("qrsh", error, NO_QRSH)
}

/// Explains what `qrsh` said before anything ran on `host`.
pub(super) fn of_connection(host: &str, words: &[String]) -> String {
    let said = words.join("; ");
    let remedy = if is_of_slots(&said) {
        "Grid Engine starts tasks only in a parallel environment with `control_slaves TRUE` \
         (`qconf -sp $PE`), and no more at once than the job has slots there"
    } else if said.contains("can't resolve host name") {
        "does each host of the job know the names of the others?"
    } else if said.contains("got send error") || said.contains("commlib error") {
        "is the host up, and does sge_execd run there? See `qhost`"
    } else {
        "see whether it works in a job (`qrsh -inherit HOST hostname`)"
    };
    match said.is_empty() {
        true => format!("`qrsh` can't start a task on `{host}`, and says no more: {remedy}"),
        false => format!("`qrsh` can't start a task on `{host}` ({said}): {remedy}"),
    }
}

/// Returns whether the words of a `qrsh` say that a host gives its job no slot for one more task.
pub(super) fn is_of_slots(said: &str) -> bool {
    said.contains("didn't accept task")
}

/// Explains what the shell on this host said before the program ran.
pub(super) fn of_shell(words: &[String]) -> String {
    format!(
        "the shell `/bin/sh` can't start the program ({}): is `sh` in the PATH of the job?",
        words.join("; ")
    )
}

/// Explains why the script does not start the program, from the script's words.
pub(super) fn of_host(host: &str, refusal: &str) -> String {
    let (kind, words) = refusal.split_once(' ').unwrap_or((refusal, ""));
    match kind {
        "program" => format!(
            "`{host}` has no program at `{}`: all hosts need its file at the same path, for \
             example on a shared file system",
            words.trim()
        ),
        "directory" => format!(
            "it can't enter {}, the directory in which this program runs: start it in one that \
             all hosts share (`qsub -cwd`), or set `working_dir` (FIBER_WORKING_DIR) to one that \
             all of them have",
            words.trim()
        ),
        _ => format!("`{host}` does not start the program: {refusal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_of_qrsh_has_its_remedy() {
        for (words, remedy) in [
            ("execution daemon on host \"n4\" didn't accept task", "`control_slaves TRUE`"),
            ("failed sending task to execd@n9: can't resolve host name", "know the names"),
            ("failed sending task to execd@n1: got send error", "does sge_execd run"),
            ("something else", "qrsh -inherit HOST"),
        ] {
            let problem = of_connection("m", &[words.to_string()]);
            assert!(problem.contains(remedy) && problem.contains(words), "{problem}");
        }
        assert!(of_connection("m", &[]).contains("`m`, and says no more"));
    }

    #[test]
    fn what_a_host_lacks_is_named() {
        assert!(of_host("m", "program /a/b ").contains("no program at `/a/b`:"));
        let problem = of_host("m", "directory /a/b ");
        assert!(problem.contains("can't enter /a/b,") && problem.contains("`working_dir`"));
    }
}

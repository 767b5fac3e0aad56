//! The shell script that runs the head of a session.

use super::records::{EXIT, HOSTS};
use super::script::quoted;
use crate::BackendError;
use crate::cluster::session::RunRequest;

/// The exit code of shells if there is no such program, or no such process to wait for.
const NOT_FOUND: i32 = 127;

/// The parts of a script that differ between batch systems and sessions.
///
/// The lines may use the shell's variables `fiber_files`, the begin of the paths of the session's
/// files; `fiber_plain`, which starts a program with default signals; `fiber_head`, the pid of the
/// head; and `fiber_signal`, which a trap has to set. A `fiber_reason` goes to the record with the
/// exit code.
#[derive(Debug)]
pub struct HeadScript<'a> {
    /// The lines that set variables.
    pub exports: String,
    /// The name of the node, in shell: `$HOSTNAME`.
    pub node: &'a str,
    /// The working directory.
    pub directory: &'a str,
    /// How to choose a directory that the node has.
    pub elsewhere: &'a str,
    /// The path of the program.
    pub program: &'a str,
    /// The program's arguments.
    pub arguments: &'a [String],
    /// The remedy if the node lacks the program.
    pub missing: &'a str,
    /// The line that marks the session as started.
    pub begin: &'a str,
    /// Lines before the end of the script, where `$1` is the exit code.
    pub before_end: String,
    /// The functions for [`HeadScript::traps`].
    pub functions: &'a str,
    /// The line that makes the head ignore signals.
    pub ignored: &'a str,
    /// The traps of the script, set when the head runs.
    pub traps: &'a str,
    /// Lines that run when the head has ended with `$fiber_code`.
    pub ended: &'a str,
}

impl HeadScript<'_> {
    /// Returns the script. It starts the head and writes the exit code beside the output: batch
    /// systems forget a job after its end.
    pub fn text(&self) -> String {
        let HeadScript {
            exports,
            node,
            program,
            begin,
            before_end,
            functions,
            ignored,
            traps,
            ended,
            ..
        } = self;
        let missing = quoted(&format!("has no program {program}: {}", self.missing));
        let elsewhere = quoted(&format!(
            "can't enter the working directory {}: start the session in one that all nodes share, \
             or name one by {}. The program runs in",
            self.directory, self.elsewhere
        ));
        let words = std::iter::once(*program).chain(self.arguments.iter().map(String::as_str));
        let command = words.map(quoted).collect::<Vec<_>>().join(" ");
        let (directory, file) = (quoted(self.directory), quoted(program));
        format!(
            r#"
{exports}
# The shell itself has nothing to say on the program's standard error.
exec 3<&0 4>&2 2>/dev/null
{begin}
(cd {directory}) ||
    echo "fiber: warning: the node {node}" {elsewhere} "$(pwd)" >&4

# Ends the job as the program has ended.
fiber_reason=
fiber_end() {{
    echo "$1${{fiber_reason:+ $fiber_reason}}" >"$fiber_files.{EXIT}"
    {before_end}exit "$1"
}}
if ! [ -e {file} ]; then
    echo "fiber: the node {node}" {missing} >&4
    fiber_end {NOT_FOUND}
fi

# Shells start background processes with SIGINT and SIGQUIT ignored.
fiber_plain=
env --default-signal=INT,QUIT true && fiber_plain='env --default-signal=INT,QUIT'

{functions}

(
    trap - INT QUIT
    {ignored}
    exec $fiber_plain {command} <&3 2>&4 3<&- 4>&-
) &
fiber_head=$!
{traps}

fiber_signal=
wait $fiber_head
fiber_code=$?
# A signal ends the wait early.
while [ -n "$fiber_signal" ]; do
    fiber_signal=
    wait $fiber_head
    fiber_next=$?
    [ $fiber_next -eq {NOT_FOUND} ] || fiber_code=$fiber_next
done
{ended}
fiber_end $fiber_code
"#
        )
    }
}

/// Returns the lines that set the variables of a session, whose files begin with the path `files`,
/// written for a shell.
///
/// # Errors
/// A variable's name can't be exported.
pub fn exports(run: &RunRequest, backend: &str, files: &str) -> Result<String, BackendError> {
    let mut lines = format!("fiber_files={files}\nexport FIBER_BACKEND={backend}\n");
    if !run.environment.iter().any(|(name, _)| name == "FIBER_LOG_DIR") {
        lines.push_str(&format!("export FIBER_LOG_DIR=\"$fiber_files.{HOSTS}\"\n"));
    }
    for (name, value) in &run.environment {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) || name.starts_with(char::is_numeric) {
            return Err(refused!("`{name}` is no name of a variable: a script can't export it"));
        }
        lines.push_str(&format!("export {name}={}\n", quoted(value)));
    }
    Ok(lines)
}

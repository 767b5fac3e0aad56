//! The script that starts a job on a machine.
//!
//! The command line is the same for all jobs, and means the same to all login shells. It reads one
//! line of standard input and runs it: the values of this job, then `begin.sh`, the backend's own
//! script and `keep.sh`. So nothing of the job is on a command line, and a start takes one round
//! trip.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use crate::JobSpec;

/// The command for the login shell of the user there.
pub const COMMAND: &str = "exec sh -c 'IFS= read -r script; eval \"$script\"'";
/// The begin of the script's lines that are for this process.
pub(super) const MARK: &str = "fiber-shell ";
/// A line end, as the variable that holds one.
const LINE_END: &[u8] = b"'\"$fiber_line_end\"'";
const BEGIN: &str = include_str!("begin.sh");
const KEEP: &str = include_str!("keep.sh");

/// The line for a job, in the making. It has the job's secrets.
pub struct Script {
    line: Vec<u8>,
    /// The commands that set the program's environment.
    exports: Vec<u8>,
}

impl fmt::Debug for Script {
    /// Shows no values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").finish_non_exhaustive()
    }
}

impl Default for Script {
    fn default() -> Script {
        Script::new()
    }
}

impl Script {
    /// Makes the line of a job without values.
    pub fn new() -> Script {
        let line = b"fiber_line_end=$(printf \"\\nx\"); fiber_line_end=${fiber_line_end%x}; ";
        Script { line: line.to_vec(), exports: Vec::new() }
    }

    /// Sets a variable of the script.
    pub fn set(&mut self, name: &str, value: &OsStr) {
        // A variable of the machine that has this name would be the program's, too.
        self.line.extend_from_slice(format!("unset {name}; {name}=").as_bytes());
        quote(value, &mut self.line);
        self.line.extend_from_slice(b"; ");
    }

    /// Sets a variable of the program's environment. Leaves out names that a shell can't set.
    pub fn export(&mut self, name: &OsStr, value: &OsStr) {
        if is_name(name.as_bytes()) {
            self.exports.extend_from_slice(b"export ");
            self.exports.extend_from_slice(name.as_bytes());
            self.exports.push(b'=');
            quote(value, &mut self.exports);
            self.exports.extend_from_slice(b"; ");
        }
    }

    /// Returns the line that sets the environment.
    pub fn environment(mut self) -> Vec<u8> {
        self.line.append(&mut self.exports);
        self.line.push(b'\n');
        self.line
    }

    /// Returns the line that runs `own`, and then a job's program in a directory there.
    pub fn line(mut self, spec: &JobSpec, directory: &OsStr, own: &str) -> Vec<u8> {
        for (name, value) in spec.shown_variables() {
            self.export(name.as_ref(), value.as_ref());
        }
        // `echo` ends the last line again.
        self.set("secrets", spec.secret_lines().trim_end().as_ref());
        self.set("directory", directory);
        let exports = std::mem::take(&mut self.exports);
        self.set("exports", OsStr::from_bytes(&exports));
        let mut line = self.line;
        line.extend_from_slice(b"set --");
        for argument in &spec.arguments {
            line.push(b' ');
            quote(argument, &mut line);
        }
        line.extend_from_slice(b"; ");
        line.extend_from_slice([BEGIN, own, KEEP].map(one_line).join(" ").as_bytes());
        line.push(b'\n');
        line
    }
}

/// Returns a script as one line.
fn one_line(script: &str) -> String {
    let lines = script.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.collect::<Vec<_>>().join(" ")
}

fn is_name(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.first().is_some_and(|first| !first.is_ascii_digit()) && name.iter().all(is_plain)
}

/// Quotes a word for a shell, without a line end.
fn quote(word: &OsStr, line: &mut Vec<u8>) {
    line.push(b'\'');
    for byte in word.as_bytes() {
        match byte {
            b'\'' => line.extend_from_slice(b"'\\''"),
            b'\n' => line.extend_from_slice(LINE_END),
            byte => line.push(*byte),
        }
    }
    line.push(b'\'');
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::shell::testing::{run, spec};

    const OWN: &str = "end() { kill -9 \"$pid\"; };\nin_use() { :; };\nfile=/bin/sh;";

    #[test]
    fn a_script_is_one_line_without_comments() {
        for script in [BEGIN, KEEP, include_str!("../ssh/start.sh")] {
            let line = one_line(script);
            assert!(!line.contains('\n') && !line.contains(" #"), "{line}");
            let checked = Command::new("sh").args(["-n", "-c", &line]).output().unwrap();
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        }
    }

    #[test]
    fn any_value_arrives_unchanged() {
        let word = "a 'b' $HOME \"c\" \\ ö\nd\n";
        let mut script = Script::new();
        // Names of the script's own variables are free for the program.
        for name in ["file", "pid", "line", "exports", "WORD"] {
            script.export(name.as_ref(), word.as_ref());
        }
        script.export("BASH_FUNC_x%%".as_ref(), "() { :; }".as_ref());
        let print = "read -r key; printf '%s|' \"$key\" \"$KEY\" \"$1\" \"$file\" \"$pid\" \
                     \"$line\" \"$exports\" \"$WORD\"";
        let line = script.line(&spec(&["-c", print, "sh", word]), OsStr::new("/"), OWN);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let output = run(&line);
        let expected = format!("fiber-shell run\nhush|-|{}", format!("{word}|").repeat(6));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
        assert!(output.status.success(), "{output:?}");
    }

    #[test]
    fn ends_are_exit_codes_of_the_shell() {
        let code = |command: &str| {
            let line = Script::new().line(&spec(&["-c", command]), OsStr::new(""), OWN);
            run(&line).status.code()
        };
        assert_eq!(code("exit 3"), Some(3));
        assert_eq!(code("kill -9 $$"), Some(137));
        assert_eq!(code("kill -15 $$"), Some(143));
    }

    #[test]
    fn a_missing_directory_is_refused() {
        let line = Script::new().line(&spec(&[]), OsStr::new("/does/not/exist"), OWN);
        let output = String::from_utf8_lossy(&run(&line).stdout).into_owned();
        assert_eq!(output, "fiber-shell refused directory /does/not/exist \n");
    }
}

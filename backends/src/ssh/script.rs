//! The script that starts a job on a machine.
//!
//! The command line that `ssh` sends is the same for all jobs, and means the same to all login
//! shells. It reads one line of standard input and runs it: the values of this job, then
//! `start.sh`. So nothing of the job is on a command line, and a warm start takes one round trip.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fiber_core::Config;

use super::program::Program;
use crate::{JobSpec, SshSection, configured_environment};

/// The command for the login shell of the user there.
pub(super) const COMMAND: &str = "exec sh -c 'IFS= read -r script; eval \"$script\"'";
/// Prefix of the lines of the script that are for this process.
pub(super) const MARK: &str = "fiber-ssh ";
const START: &str = include_str!("start.sh");

/// Returns the line for a job.
pub(super) fn line(
    config: &Config,
    section: &SshSection,
    program: &Program,
    spec: &JobSpec,
) -> Vec<u8> {
    let mut line = b"n=$(printf \"\\nx\"); n=${n%x}; ".to_vec();
    let cache = section.cache.as_ref().map_or(OsStr::new(""), |path| path.as_os_str());
    let directory = config.working_dir.as_deref().unwrap_or_default();
    let secrets: String = spec.secrets.iter().map(|(_, value)| format!("{value}\n")).collect();
    let limit = (section.cache_size.as_u64() / 1024).to_string();
    let size = program.size.to_string();
    let values: [(&str, &OsStr); 10] = [
        ("build", program.build.as_ref()),
        ("program", program.name.as_ref()),
        ("size", size.as_ref()),
        ("machine", program.machine.as_ref()),
        ("loader", program.loader.as_ref()),
        ("glibc", program.glibc.as_ref()),
        ("cache", cache),
        ("limit", limit.as_ref()),
        ("directory", directory.as_ref()),
        ("secrets", secrets.as_ref()),
    ];
    for (name, value) in values {
        // A variable of the machine that has this name would be the program's, too.
        line.extend_from_slice(format!("unset {name}; {name}=").as_bytes());
        quote(value, &mut line);
        line.extend_from_slice(b"; ");
    }
    let own = spec.variables().map(|(name, value)| (name.to_string(), value));
    let secret = spec.secrets.iter().map(|(name, _)| (name.to_string(), "-".to_string()));
    for (name, value) in configured_environment(config).chain(own).chain(secret) {
        line.extend_from_slice(format!("export {name}=").as_bytes());
        quote(value.as_ref(), &mut line);
        line.extend_from_slice(b"; ");
    }
    line.extend_from_slice(b"set --");
    for argument in &spec.arguments {
        line.push(b' ');
        quote(argument, &mut line);
    }
    line.extend_from_slice(b"; ");
    line.extend_from_slice(start().as_bytes());
    line.push(b'\n');
    line
}

/// Returns the script as one line.
fn start() -> String {
    let lines = START.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a shell, without a line end.
fn quote(word: &OsStr, line: &mut Vec<u8>) {
    line.push(b'\'');
    for byte in word.as_bytes() {
        match byte {
            b'\'' => line.extend_from_slice(b"'\\''"),
            b'\n' => line.extend_from_slice(b"'\"$n\"'"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\'');
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_script_is_one_line_without_comments() {
        let line = start();
        assert!(!line.contains('\n') && !line.contains(" #"), "{line}");
        let checked = Command::new("sh").args(["-n", "-c", &line]).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }

    #[test]
    fn any_word_can_be_quoted() {
        let word = "a 'b' $HOME \"c\" \\ ö\nd\n";
        let mut script = b"n=$(printf \"\\nx\"); n=${n%x}; printf %s ".to_vec();
        quote(word.as_ref(), &mut script);
        assert!(!script.contains(&b'\n'));
        let printed = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script)).output();
        assert_eq!(String::from_utf8_lossy(&printed.unwrap().stdout), word);
    }
}

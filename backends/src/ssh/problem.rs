//! Problems of a machine, with a remedy for each.

use std::io;

use super::program::Program;
use crate::BackendError;

/// Explains why `ssh` can't be run here.
pub(super) fn of_command(error: &io::Error) -> BackendError {
    let missing = "the command `ssh` was not found: install an OpenSSH client (Debian: apt-get \
                   install openssh-client)";
    BackendError::of_command("ssh", error, missing)
}

/// Explains what `ssh` said before anything ran on `machine`.
pub(super) fn of_connection(machine: &str, words: &[String]) -> String {
    let said = words.join("\n");
    let remedy = if said.contains("Could not resolve hostname") {
        "correct its name in `ssh.hosts`, or give it a `HostName` in ssh's configuration".into()
    } else if said.contains("IDENTIFICATION HAS CHANGED") {
        "it may be another machine. If its key did change, remove the old one as ssh says, and \
         confirm the new one"
            .to_string()
            + &by_hand(machine)
    } else if said.contains("Host key verification failed") {
        format!("nobody has confirmed its key: do so once{}", by_hand(machine))
    } else if said.contains("Permission denied") {
        format!(
            "it refuses the keys of this user: fiber asks for no passwords; a key in an agent, or \
             one without a passphrase, has to work{}",
            by_hand(machine)
        )
    } else if said.contains("Connection refused") {
        "is sshd running there, at the `Port` of ssh's configuration?".into()
    } else if said.contains("No route to host") || said.contains("timed out") {
        "is it up, and can this host reach it?".into()
    } else if is_out_of_processes(&said) {
        "it is out of processes for this user: see `ulimit -u` there".into()
    } else {
        format!("see whether ssh works{}", by_hand(machine))
    };
    match words.last() {
        Some(last) => format!("ssh can't use `{machine}` ({}): {remedy}", last.trim()),
        None => format!("ssh can't use `{machine}`, and says no more: {remedy}"),
    }
}

/// Returns whether a shell or sshd could start no process.
pub(super) fn is_out_of_processes(said: &str) -> bool {
    ["Cannot fork", "fork failed", "fork: ", "Resource temporarily unavailable"]
        .iter()
        .any(|words| said.contains(words))
}

fn by_hand(machine: &str) -> String {
    format!(" (`ssh {machine} true`)")
}

/// Explains why the machine does not start the program, from the script's words.
pub(super) fn of_machine(machine: &str, program: &Program, refusal: &str) -> String {
    let (kind, words) = refusal.split_once(' ').unwrap_or((refusal, ""));
    let words = words.trim();
    match kind {
        "machine" => format!(
            "this program needs {}, and `{machine}` is {words}: take it out of `ssh.hosts`, or \
             build the program for both, as with `--target {}-unknown-linux-musl`, which needs no \
             C library",
            program.needs(),
            std::env::consts::ARCH
        ),
        "home" => format!(
            "`{machine}` has no home directory for this user: set `ssh.cache` to a directory there"
        ),
        "tool" => format!("`{machine}` has no `{words}`: install it there (coreutils, or busybox)"),
        "room" => {
            let mut numbers = words.splitn(3, ' ');
            let mut size = || {
                let kilobytes = numbers.next().and_then(|number| number.parse::<u64>().ok());
                bytesize::ByteSize::kib(kilobytes.unwrap_or(0))
            };
            let (free, needed) = (size(), size());
            let place = numbers.next().unwrap_or_default();
            format!(
                "the program takes {needed}, and `{machine}` has {free} free in {place}: make room \
                 there, or set `ssh.cache` to a directory on another disk"
            )
        }
        "exposed" => format!(
            "other users of `{machine}` own or can write {words}, and the copy of the program is \
             below it or is it: correct the owner and the mode, or set `ssh.cache` to a directory \
             there that is this user's alone"
        ),
        "directory" => format!(
            "it can't enter {words}: create this directory there, or set `working_dir` \
             (FIBER_WORKING_DIR) to one that all machines have"
        ),
        "copy" => format!(
            "the program did not arrive on `{machine}` as it was sent ({words}): is the disk full, \
             or over quota? `ssh.cache` names another directory"
        ),
        _ => format!(
            "`{machine}` can't keep a copy of the program ({words}): set `ssh.cache` to a \
             directory there that this user may write to"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_of_ssh_has_its_remedy() {
        for (words, remedy) in [
            ("ssh: Could not resolve hostname x: Name or service not known", "correct its name"),
            ("Host key verification failed.", "do so once (`ssh m true`)"),
            ("root@m: Permission denied (publickey).", "no passwords"),
            ("ssh: connect to host m port 22: Connection refused", "is sshd running"),
            ("ssh: connect to host m port 22: Connection timed out", "is it up"),
            ("sh: 1: Cannot fork", "ulimit -u"),
            ("kex_exchange_identification: read: Connection reset by peer", "whether ssh works"),
        ] {
            let problem = of_connection("m", &[words.to_string()]);
            assert!(problem.contains(remedy) && problem.contains(words), "{problem}");
        }
        assert!(of_connection("m", &[]).contains("`m`"));
    }

    #[test]
    fn a_missing_command_has_a_package() {
        let problem = of_command(&io::ErrorKind::NotFound.into()).to_string();
        assert!(problem.contains("apt-get install openssh-client"), "{problem}");
    }

    fn program() -> Program {
        Program {
            name: "p".into(),
            build: "1".into(),
            size: 5 << 20,
            machine: "Linux x86_64".into(),
            loader: String::new(),
            glibc: String::new(),
        }
    }

    #[test]
    fn a_missing_directory_is_named() {
        let problem = of_machine("m", &program(), "directory /a/b ");
        assert!(problem.starts_with("it can't enter /a/b: create this directory"), "{problem}");
        assert!(problem.contains("`working_dir`"), "{problem}");
    }

    #[test]
    fn lack_of_room_names_both_sizes() {
        let problem =
            of_machine("m", &program(), "room 64 5121 /home/me/.cache/fiber-1000/builds ");
        assert!(problem.contains("5.0 MiB") && problem.contains("64.0 KiB"), "{problem}");
        assert!(problem.contains("in /home/me/.cache/fiber-1000/builds:"), "{problem}");
    }
}

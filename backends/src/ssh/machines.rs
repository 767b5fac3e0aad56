//! The machines that the configuration names.

use std::collections::HashSet;
use std::fs;

use fiber_core::{ConfigProblem, Error, Result, shortage};

use crate::SshSection;

/// A machine that ssh reaches.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SshMachine {
    /// The name that the user gave, which is also the argument of `ssh`.
    pub(super) name: String,
    /// The limit of the processes there, in cores.
    pub(super) cores: Option<f64>,
}

/// Returns the machines of `hosts` and `hosts_file`.
///
/// # Errors
/// [`Error::Config`] if there are none, or for one that can't be read.
pub(super) fn of(section: &SshSection) -> Result<Vec<SshMachine>> {
    let mut machines = Vec::new();
    for host in &section.hosts {
        machines.push((
            "ssh.hosts",
            parse(host).map_err(|problem| wrong("ssh.hosts", host, &problem))?,
        ));
    }
    if let Some(path) = &section.hosts_file {
        let shown = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| {
            let problem = format!("it can't be read: {}", shortage::explain(&error));
            wrong("ssh.hosts_file", &shown, &problem)
        })?;
        for (number, line) in (1..).zip(text.lines()) {
            let host = line.split('#').next().unwrap_or_default().trim();
            if host.is_empty() {
                continue;
            }
            let machine = parse(host).map_err(|problem| {
                wrong("ssh.hosts_file", &shown, &format!("line {number} is `{host}`: {problem}"))
            })?;
            machines.push(("ssh.hosts_file", machine));
        }
    }
    let mut names = HashSet::new();
    if let Some((option, twice)) = machines.iter().find(|(_, machine)| !names.insert(&machine.name))
    {
        let problem = "it is there twice: name it once, with the number of its cores if it is to \
                       have more processes (`NAME:CORES`)";
        return Err(wrong(option, &twice.name, problem));
    }
    if machines.is_empty() {
        let problem = "the backend `ssh` needs machines: name them in `ssh.hosts` \
                       (FIBER_SSH_HOSTS=a,b:16) or in a file (`ssh.hosts_file`)";
        return Err(wrong("ssh.hosts", "", problem));
    }
    Ok(machines.into_iter().map(|(_, machine)| machine).collect())
}

fn wrong(option: &'static str, value: &str, problem: &str) -> Error {
    ConfigProblem::value(option, value, problem).into()
}

/// Parses `NAME`, `USER@NAME:CORES`, `[IPV6]:CORES`.
fn parse(text: &str) -> Result<SshMachine, String> {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, text),
    };
    let (host, cores) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) =
                rest.split_once(']').ok_or("`]` is missing after the IPv6 address")?;
            match rest {
                "" => (address, None),
                rest => (address, Some(rest.strip_prefix(':').ok_or("`:` is missing after `]`")?)),
            }
        }
        None => match host.split_once(':') {
            Some((_, cores)) if cores.contains(':') => {
                return Err("write an IPv6 address in brackets: `[fd00::1]`".into());
            }
            Some((host, cores)) => (host, Some(cores)),
            None => (host, None),
        },
    };
    let name = match user {
        Some(user) => format!("{user}@{host}"),
        None => host.to_string(),
    };
    // `ssh` would take the first for an option, and refuses the others.
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    if host.is_empty() || user == Some("") || name.starts_with('-') || name.contains(is_odd) {
        return Err("it is no name of a machine: write `NAME`, `USER@NAME` or `NAME:CORES`".into());
    }
    let cores = match cores.map(str::parse::<u32>) {
        None => None,
        Some(Ok(cores)) if cores > 0 => Some(f64::from(cores)),
        Some(_) => {
            return Err("the cores after `:` are a number from 1 on; ssh's port is set in its \
                        configuration (`Port`)"
                .into());
        }
    };
    Ok(SshMachine { name, cores })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn config(hosts: &[&str]) -> SshSection {
        let hosts = hosts.iter().map(ToString::to_string).collect();
        SshSection { hosts, ..SshSection::default() }
    }

    fn problem(config: &SshSection) -> String {
        of(config).unwrap_err().to_string()
    }

    #[test]
    fn machines_have_names_users_and_cores() {
        let machines =
            of(&config(&["a", "b:16", "user@c", "[fd00::1]:2", "me@[fd00::2]", "a@d@e"])).unwrap();
        let machines: Vec<_> =
            machines.iter().map(|machine| (machine.name.as_str(), machine.cores)).collect();
        let expected = [
            ("a", None),
            ("b", Some(16.0)),
            ("user@c", None),
            ("fd00::1", Some(2.0)),
            ("me@fd00::2", None),
            ("a@d@e", None),
        ];
        assert_eq!(machines, expected);
    }

    #[test]
    fn what_is_no_machine_is_an_error_with_a_remedy() {
        for (host, words) in [
            ("a:0", "a number from 1 on"),
            ("a:many", "configuration (`Port`)"),
            ("fd00::1", "in brackets"),
            ("[fd00::1", "`]` is missing"),
            ("[fd00::1]7", "`:` is missing"),
            ("-oProxyCommand=x", "no name of a machine"),
            ("@a", "no name of a machine"),
            ("a b", "no name of a machine"),
            (":4", "no name of a machine"),
        ] {
            let problem = problem(&config(&[host]));
            assert!(problem.contains(words) && problem.contains(host), "{problem}");
        }
        assert!(problem(&config(&["a", "a:4"])).contains("it is there twice"));
        assert!(problem(&config(&[])).contains("FIBER_SSH_HOSTS=a,b:16"));
    }

    #[test]
    fn a_file_has_a_machine_a_line() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"# two of them\nb:4\n\n  c # the slow one\n").unwrap();
        let mut config = config(&["a"]);
        config.hosts_file = Some(file.path().to_path_buf());
        let names: Vec<_> = of(&config).unwrap().into_iter().map(|machine| machine.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        file.write_all(b"d:x\n").unwrap();
        assert!(problem(&config).contains("line 5 is `d:x`"), "{}", problem(&config));
        config.hosts_file = Some("/does/not/exist".into());
        assert!(problem(&config).contains("can't be read"), "{}", problem(&config));
    }
}

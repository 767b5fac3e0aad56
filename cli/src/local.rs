//! `fiber ps`, `fiber logs` and `fiber kill` for programs on this host.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use fiber_backends::cluster::{Location, ProcessState, SessionProcess, Usage};
use fiber_core::stats::{self, ProcessRole, ProcessStats, SessionStats};
use fiber_core::{Meta, ProcessId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::args::{Backend, ClusterArgs};
use crate::inspect::sessions::{Head, Observed, Sessions};
use crate::inspect::target::{self, Target, host_name, is_beside_head, place_name};
use crate::kill::grace;
use crate::sessions::Session;

/// Returns the sessions of this host's programs. Warns of those that don't answer.
pub(crate) async fn sessions(args: &ClusterArgs) -> anyhow::Result<Vec<Session>> {
    let mut sessions = Vec::new();
    for observed in look(args).await? {
        match &observed.stats {
            Ok(stats) => sessions.push(session(&observed.head, stats)),
            Err(problem) => eprintln!("warning: {problem}"),
        }
    }
    sessions.sort_by_key(|session| session.head.started_at);
    Ok(sessions)
}

async fn look(args: &ClusterArgs) -> anyhow::Result<Vec<Observed>> {
    let local = ClusterArgs { backend: Some(Backend::Local), ..args.clone() };
    Sessions::connect(&local).await?.look().await
}

fn session(head: &Head, stats: &SessionStats) -> Session {
    let mut workers = Vec::new();
    let mut processes = stats.report.processes.iter();
    let first = processes.next();
    for process in processes {
        workers.push((depth(stats, process), listed(stats, &head.name(), process)));
    }
    let mut own = first.map_or_else(
        || {
            listed(
                stats,
                "",
                &ProcessStats::new(
                    ProcessId(0),
                    stats.program.clone(),
                    ProcessRole::Head,
                    stats.taken_at,
                ),
            )
        },
        |first| listed(stats, "", first),
    );
    (own.name, own.parent) = (head.name(), None);
    Session { head: own, workers }
}

/// Returns the number of processes between a process and its head.
fn depth(stats: &SessionStats, process: &ProcessStats) -> usize {
    let parent = |process: &ProcessStats| stats.report.process(process.parent?);
    std::iter::successors(parent(process), |above| parent(above)).take(64).count().max(1) - 1
}

fn listed(stats: &SessionStats, head: &str, process: &ProcessStats) -> SessionProcess {
    let parent = process.parent.and_then(|parent| stats.report.process(parent));
    SessionProcess {
        name: name(process),
        role: process.name.clone(),
        parent: parent.map(|parent| match parent.role {
            ProcessRole::Head => head.to_string(),
            _ => name(parent),
        }),
        location: Location::Host,
        state: match &process.state {
            stats::ProcessState::Starting => ProcessState::Starting(None),
            stats::ProcessState::Waiting(reason) => ProcessState::Starting(Some(reason.clone())),
            _ => ProcessState::Running,
        },
        restarts: process.restarts,
        meta: Meta::new(),
        started_at: Some(process.since),
        usage: process
            .figures
            .as_ref()
            .map(|figures| Usage { cpu: figures.cpu, memory: figures.memory }),
    }
}

/// Returns the name of a process in lists: that of its container or pod, or its pid, which in a
/// host may not be one of this machine.
fn name(process: &ProcessStats) -> String {
    match (place_name(&process.place), process.pid) {
        (Some(name), _) => name.to_string(),
        (None, Some(_)) if host_name(&process.place).is_some() => process.place.clone(),
        (None, Some(pid)) => format!("pid {pid}"),
        (None, None) if process.place.is_empty() => process.name.clone(),
        (None, None) => process.place.clone(),
    }
}

/// `fiber logs`.
pub(crate) async fn logs(
    args: &ClusterArgs,
    name: &str,
    follow: bool,
    tail: Option<u64>,
) -> anyhow::Result<ExitCode> {
    let observed = look(args).await?;
    let target = target::find(&observed, name)?;
    if target.role == ProcessRole::Head {
        bail!(
            "the output of {} is where it was started: in its terminal, or the file or service \
             that it was redirected to",
            target.head.name()
        );
    }
    if follow {
        bail!(
            "only the last lines of {} are known, so they can't be followed: its output goes to \
             that of {}, or to files (`output`, `log_dir`)",
            target.name,
            target.head.name()
        );
    }
    let (_, process) = process(&observed, &target)?;
    let lines = &process.tail;
    let first = lines.len().saturating_sub(tail.map_or(usize::MAX, |tail| tail as usize));
    let mut stdout = std::io::stdout().lock();
    for line in &lines[first..] {
        // A reader that stops early, like `head`, is no failure.
        if writeln!(stdout, "{line}").is_err() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `fiber kill`.
pub(crate) async fn kill(
    args: &ClusterArgs,
    names: &[String],
    now: bool,
) -> anyhow::Result<ExitCode> {
    let grace = if now { 0 } else { grace(&args.config()?) };
    for name in names {
        let observed = look(args).await?;
        let target = target::find(&observed, name)?;
        let Head::Local(head) = &target.head else { bail!("`{name}` is not on this host") };
        let (stats, process) = process(&observed, &target)?;
        let is_head = target.role == ProcessRole::Head;
        let pid = if is_head { Some(head.pid) } else { process.pid };
        let Some(pid) = pid.filter(|_| is_head || is_beside_head(stats, process)) else {
            if let Some(host) = host_name(&process.place) {
                bail!(
                    "{} shares the job of {host} with others: kill {host}, which ends all of them",
                    target.name
                )
            }
            bail!(
                "{} is no process of this host ({}): name its backend (`--backend`)",
                target.name,
                process.place
            )
        };
        end(pid, grace).with_context(|| format!("pid {pid} can't be killed"))?;
        match is_head {
            true => {
                let workers = observed
                    .iter()
                    .filter(|session| session.head == target.head)
                    .flat_map(|session| &session.stats)
                    .map(|stats| stats.report.processes.len() - 1);
                println!("Killed pid {pid} and its workers: {}", workers.sum::<usize>());
            }
            false => println!("Killed pid {pid} ({}), a process of {}", target.name, head.name()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks a process to end, and kills it after `grace` seconds. Returns when it has ended.
fn end(pid: u32, grace: u32) -> Result<(), Errno> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        opened => opened?,
    };
    let send = |signal| match pidfd_send_signal(&process, signal) {
        Err(Errno::SRCH) => Ok(()),
        sent => sent,
    };
    if grace > 0 {
        send(Signal::TERM)?;
        let limit = Duration::from_secs(grace.into());
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit))?;
        if ended > 0 {
            return Ok(());
        }
    }
    send(Signal::KILL)?;
    poll(&mut [PollFd::new(&process, PollFlags::IN)], None).map(drop)
}

fn process<'a>(
    observed: &'a [Observed],
    target: &Target,
) -> anyhow::Result<(&'a SessionStats, &'a ProcessStats)> {
    let stats = observed
        .iter()
        .filter(|session| session.head == target.head)
        .find_map(|session| session.stats.as_deref().ok());
    stats
        .and_then(|stats| Some((stats, stats.report.process(target.process)?)))
        .with_context(|| format!("{} has ended meanwhile", target.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::local::LocalHead;
    use crate::inspect::testing::stats;

    #[test]
    fn a_session_is_listed_by_pids_with_what_it_uses() {
        let mut stats = stats("simulate", 2);
        let worker = stats.report.processes[1].id;
        let below = &mut stats.report.processes[2];
        below.parent = Some(worker);
        below.place = "container fiber-1".into();
        let session = session(&Head::Local(LocalHead::of(4001)), &stats);
        let head = &session.head;
        assert_eq!((head.name.as_str(), head.role.as_str()), ("pid 4001", "simulate"));
        assert_eq!((head.parent.clone(), head.usage.unwrap().memory), (None, 31 << 20));
        let shape: Vec<_> = session
            .workers
            .iter()
            .map(|(depth, process)| {
                (*depth, process.name.as_str(), process.role.as_str(), process.parent.as_deref())
            })
            .collect();
        assert_eq!(
            shape,
            [
                (0, "pid 4002", "squares/worker-1", Some("pid 4001")),
                (1, "fiber-1", "squares/worker-2", Some("pid 4002")),
            ]
        );
        assert_eq!(session.workers[1].1.restarts, 1);
    }

    #[test]
    fn a_pid_in_a_container_is_none_of_this_machine() {
        let mut stats = stats("simulate", 3);
        let [_, host, hosted, nested] = &mut stats.report.processes[..] else { panic!() };
        (host.role, host.name, host.place) =
            (ProcessRole::Host, "squares/host-1".into(), "container fiber-1".into());
        (hosted.pid, hosted.place) = (Some(1), "pid 1 in squares/host-1".into());
        (nested.parent, nested.pid, nested.place) = (Some(hosted.id), Some(2), "pid 2".into());
        let here = |stats: &SessionStats| {
            let processes = stats.report.processes.iter();
            processes.map(|process| is_beside_head(stats, process)).collect::<Vec<_>>()
        };
        assert_eq!(here(&stats), [true, false, false, false]);
        assert_eq!(name(&stats.report.processes[2]), "pid 1 in squares/host-1");
        // With the local backend, a host and its processes are here.
        stats.report.processes[1].place = "pid 4002".into();
        assert_eq!(here(&stats), [true; 4]);
        stats.report.processes[2].host = "elsewhere".into();
        assert!(!here(&stats)[2]);
    }

    #[test]
    fn a_process_that_ignores_sigterm_is_killed_after_the_grace_period() {
        use std::os::unix::process::ExitStatusExt;
        let deaf = |signal: &str| {
            let mut child = std::process::Command::new("bash")
                .args(["-c", &format!("trap '' {signal}; echo; read")])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
            child
        };
        let mut stubborn = deaf("TERM");
        end(stubborn.id(), 1).unwrap();
        assert_eq!(stubborn.wait().unwrap().signal(), Some(9));
        let mut polite = deaf("USR1");
        end(polite.id(), 60).unwrap();
        assert_eq!(polite.wait().unwrap().signal(), Some(15));
    }
}

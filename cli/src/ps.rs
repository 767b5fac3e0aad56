//! `fiber ps`.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use fiber_backends::cluster::{self, ProcessState, SessionProcess};
use serde_json::{Value, json};

use crate::args::ClusterArgs;
use crate::model::table::{Cell, Table};
use crate::model::{format, memory_text};
use crate::sessions::{self, Session};
use crate::terminal::{column, printable, say_json, warn};
use crate::top::plain;

pub(crate) async fn ps(
    args: &ClusterArgs,
    as_json: bool,
    name: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let config = args.config()?;
    // The sessions of this host are shown even if no engine answers.
    let (mut sessions, mut problem) = (Vec::new(), None);
    let chosen = match cluster::connect(&config).await {
        Ok(chosen) => Some(chosen),
        Err(error) => {
            problem = Some(anyhow!(error));
            None
        }
    };
    let is_host = chosen.as_ref().is_some_and(|chosen| !chosen.lists_children());
    if args.backend.is_none() || is_host {
        let (found, silent) = sessions::on_host().await?;
        silent.iter().for_each(warn);
        sessions = found;
    }
    if let Some(engine) = chosen.filter(|_| !is_host) {
        match sessions::all(&*engine).await {
            Ok(found) => {
                sessions::remove_twins(&mut sessions, &found, &*engine).await;
                sessions.extend(found);
            }
            Err(error) => problem = Some(error),
        }
    }
    if let Some(name) = name
        && (problem.is_none() || !sessions.is_empty())
    {
        sessions = vec![sessions::named(sessions, name)?];
    }
    if problem.is_none() || !sessions.is_empty() {
        print(&sessions, as_json);
    }
    problem.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn print(sessions: &[Session], as_json: bool) {
    if as_json {
        say_json(&sessions.iter().map(session).collect::<Vec<_>>().into());
    } else if sessions.is_empty() {
        say!("There are no sessions.");
    } else {
        say!("{}", printable(plain::table(&table(sessions))));
    }
}

fn table(sessions: &[Session]) -> Table {
    let rows = sessions.iter().enumerate().flat_map(|(number, session)| {
        let workers = session.workers.iter().map(move |(depth, one)| (number, Some(*depth), one));
        std::iter::once((number, None, &session.head)).chain(workers)
    });
    Table::of("Sessions", rows)
        .text("NAME", 8, 40, |(_, depth, one)| {
            let branch = if depth.is_some() { "└ " } else { "" };
            Cell::words(format!("{branch}{}", column(&one.name)))
        })
        .text("PROGRAM", 8, 40, |(.., one)| Cell::of(one.program.as_deref(), Cell::text))
        .text("STATE", 8, 40, |(.., one)| Cell::words(words(&one.state).0))
        .text("MACHINE", 8, 40, |(.., one)| Cell::of(one.machine.as_deref(), Cell::text))
        .figure("RESTARTS", 8, 0, |(.., one)| Cell::count(one.restarts))
        .figure("CPU", 8, 0, |(.., one)| match one.meta.cpu {
            Some(cores) => Cell::number(cores.to_string(), cores),
            None => Cell::of(cpu_share(one), Cell::share),
        })
        .figure("MEMORY", 8, 0, |(.., one)| match one.meta.memory {
            Some(limit) => Cell::bytes(limit.as_u64()),
            None => Cell::of(one.usage, |usage| Cell::text(memory_text(usage.memory, usage.pss))),
        })
        .figure("GPU", 8, 0, |(.., one)| Cell::of(one.meta.gpu, |gpus| Cell::count(gpus.into())))
        .figure("AGE", 8, 0, |(.., one)| Cell::of(one.started_at.map(age), Cell::time))
        .text("PLACE", 8, 40, |(.., one)| Cell::words(one.place.to_string()))
        .rows(|(session, depth, one), row| {
            (row.session, row.depth) = (*session, depth.unwrap_or(0));
            row.note = words(&one.state).1;
        })
        .done()
}

/// Returns the share of a core that a process has used since its start.
fn cpu_share(process: &SessionProcess) -> Option<f64> {
    let age = process.started_at.map(age).filter(|age| !age.is_zero())?;
    Some(process.usage?.cpu.as_secs_f64() / age.as_secs_f64())
}

fn age(since: SystemTime) -> Duration {
    format::age(since, SystemTime::now())
}

/// Returns a state in the words of its column, and a note with a reason that is too long for it.
fn words(state: &ProcessState) -> (String, Option<String>) {
    const MOST: usize = 30;
    let (state, why, code) = match described(state) {
        // Standard error has the reason.
        ("silent", ..) => ("no answer", None, None),
        described => described,
    };
    let word = code.map_or_else(|| state.into(), |code| format!("{state} ({code})"));
    match (why, code) {
        (None, _) => (word, None),
        (Some(why), _) if why.chars().count() > MOST => {
            let note = format!("{word}: {why}");
            (word, Some(note))
        }
        (Some(why), Some(code)) => (format!("{state} ({code}, {why})"), None),
        (Some(why), None) => (format!("{state}: {why}"), None),
    }
}

/// Returns the name of a state, what is known about it, and the exit code.
fn described(state: &ProcessState) -> (&'static str, Option<&str>, Option<i32>) {
    match state {
        ProcessState::Starting(why) => ("starting", why.as_deref(), None),
        ProcessState::Running => ("running", None, None),
        ProcessState::Paused(command) => ("paused", Some(command), None),
        ProcessState::Ended(ended) => ("ended", ended.reason.as_deref(), Some(ended.code)),
        ProcessState::Gone => ("gone", None, None),
        ProcessState::Silent(why) => ("silent", Some(why), None),
    }
}

fn session(session: &Session) -> Value {
    let mut value = process(&session.head);
    value["workers"] = session.workers.iter().map(|(_, worker)| process(worker)).collect();
    value
}

fn process(process: &SessionProcess) -> Value {
    let (state, detail, code) = described(&process.state);
    let since = process.started_at;
    let since = since.map(|since| humantime::format_rfc3339_seconds(since).to_string());
    json!({
        "name": process.name,
        "program": process.program,
        "parent": process.parent,
        "place": process.place.to_string(),
        "machine": process.machine,
        "state": state,
        "detail": detail,
        "exit_code": code,
        "restarts": process.restarts,
        "cpu": process.meta.cpu,
        "memory": process.meta.memory.map(|size| size.as_u64()),
        "gpu": process.meta.gpu,
        "cpu_seconds": process.usage.map(|usage| usage.cpu.as_secs_f64()),
        "resident": process.usage.map(|usage| usage.memory),
        "pss": process.usage.and_then(|usage| usage.pss),
        "since": since,
    })
}

#[cfg(test)]
mod tests {
    use fiber_backends::JobPlace;
    use fiber_backends::cluster::ExitStatus;

    use super::*;

    #[test]
    fn a_short_reason_stands_in_its_column() {
        let words = |state| words(&state);
        let ended = ExitStatus { code: 137, reason: Some("out of memory".into()) };
        let ended = words(ProcessState::Ended(ended));
        assert_eq!(ended, ("ended (137, out of memory)".into(), None));
        let paused = ProcessState::Paused("kill -CONT 7551".into());
        assert_eq!(words(paused), ("paused: kill -CONT 7551".into(), None));
        assert_eq!(words(ProcessState::Silent("why".into())), ("no answer".into(), None));
    }

    #[test]
    fn a_long_reason_widens_no_column_and_is_said_once_a_session() {
        let why = "no Docker engine answers at unix:///var/run/docker.sock";
        let process = |name: &str, parent: Option<&str>, state| SessionProcess {
            parent: parent.map(String::from),
            state,
            ..SessionProcess::new(name, JobPlace::Process { pid: 1 })
        };
        let starting = || ProcessState::Starting(Some(why.into()));
        let evicted = ExitStatus { code: 137, reason: Some(why.into()) };
        let sessions = sessions::assemble(vec![
            process("a", None, ProcessState::Running),
            process("a-1", Some("a"), starting()),
            process("a-2", Some("a"), ProcessState::Running),
            process("a-3", Some("a"), starting()),
            process("b", None, starting()),
            process("c", None, ProcessState::Ended(evicted)),
        ]);
        let text = plain::table(&table(&sessions));
        let (notes, rows): (Vec<&str>, Vec<&str>) =
            text.lines().skip(1).partition(|line| line.contains(why));
        assert!(rows.iter().all(|row| row.chars().count() == rows[0].chars().count()), "{text}");
        assert_eq!(
            notes,
            ["starting", "starting", "ended (137)"].map(|it| format!("   {it}: {why}"))
        );
        let names: Vec<&str> =
            text.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(names[1..], ["a", "└", "└", "└", "starting:", "b", "starting:", "c", "ended"]);
    }
}

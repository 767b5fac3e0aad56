//! `fiber ps`.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use bytesize::ByteSize;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use fiber_backends::cluster::{self, ProcessState, SessionProcess};
use serde_json::{Value, json};

use crate::args::ClusterArgs;
use crate::sessions::{self, Session};
use crate::terminal::{column, printable, warn};

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
        say!("{:#}", Value::from(sessions.iter().map(session).collect::<Vec<_>>()));
    } else if sessions.is_empty() {
        say!("There are no sessions.");
    } else {
        say!("{}", printable(table(sessions).trim_fmt()));
    }
}

fn table(sessions: &[Session]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "NAME", "PROGRAM", "STATE", "MACHINE", "RESTARTS", "CPU", "MEMORY", "GPU", "AGE", "PLACE",
    ]);
    for session in sessions {
        table.add_row(row(&session.head, String::new()));
        for (depth, worker) in &session.workers {
            table.add_row(row(worker, format!("{}└ ", "  ".repeat(*depth))));
        }
    }
    table
}

fn row(process: &SessionProcess, indent: String) -> [String; 10] {
    let used = process.usage.map(|usage| match usage.pss {
        Some(pss) => format!("{} PSS", ByteSize(pss)),
        None => format!("{} RSS", ByteSize(usage.memory)),
    });
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    [
        format!("{indent}{}", column(&process.name)),
        or_dash(process.program.as_deref().map(column)),
        words(&process.state),
        or_dash(process.machine.as_deref().map(column)),
        process.restarts.to_string(),
        or_dash(process.meta.cpu.map(|cores| cores.to_string()).or_else(|| cpu_share(process))),
        or_dash(process.meta.memory.map(|limit| limit.to_string()).or(used)),
        or_dash(process.meta.gpu.map(|count| count.to_string())),
        or_dash(process.started_at.map(age)),
        process.place.to_string(),
    ]
}

/// Returns the share of a core that a process has used since its start.
fn cpu_share(process: &SessionProcess) -> Option<String> {
    let age = process.started_at?.elapsed().ok().filter(|age| !age.is_zero())?;
    let share = process.usage?.cpu.as_secs_f64() / age.as_secs_f64();
    Some(format!("{:.0}%", share * 100.0))
}

fn words(state: &ProcessState) -> String {
    match state {
        ProcessState::Starting(None) => "starting".into(),
        ProcessState::Starting(Some(why)) => format!("starting: {why}"),
        ProcessState::Running => "running".into(),
        ProcessState::Paused => "paused".into(),
        ProcessState::Ended(ended) => match &ended.reason {
            Some(why) => format!("ended ({}, {why})", ended.code),
            None => format!("ended ({})", ended.code),
        },
        ProcessState::Gone => "gone".into(),
        ProcessState::Silent(_) => "no answer".into(),
    }
}

fn age(since: SystemTime) -> String {
    let age = SystemTime::now().duration_since(since).unwrap_or_default().as_secs();
    // Round to two units: 3h 5m.
    let unit = [86_400, 3_600, 60, 1].into_iter().find(|unit| age >= *unit).unwrap_or(1);
    let fine = if unit > 60 { unit / if unit == 86_400 { 24 } else { 60 } } else { 1 };
    humantime::format_duration(Duration::from_secs(age - age % fine)).to_string()
}

fn session(session: &Session) -> Value {
    let mut value = process(&session.head);
    value["workers"] = session.workers.iter().map(|(_, worker)| process(worker)).collect();
    value
}

fn process(process: &SessionProcess) -> Value {
    let (state, detail, code) = match &process.state {
        ProcessState::Starting(why) => ("starting", why.clone(), None),
        ProcessState::Running => ("running", None, None),
        ProcessState::Paused => ("paused", None, None),
        ProcessState::Ended(ended) => ("ended", ended.reason.clone(), Some(ended.code)),
        ProcessState::Gone => ("gone", None, None),
        ProcessState::Silent(why) => ("silent", Some(why.clone()), None),
    };
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
    use super::*;

    #[test]
    fn ages_have_two_units_at_most() {
        let ago = |seconds| age(SystemTime::now() - Duration::from_secs(seconds));
        assert_eq!(ago(3 * 3600 + 5 * 60 + 7), "3h 5m");
        assert_eq!(ago(2 * 86_400 + 3 * 3600 + 59), "2days 3h");
    }
}

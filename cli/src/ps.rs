//! `fiber ps`.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use fiber_backends::cluster::{ProcessState, SessionProcess};
use serde_json::{Value, json};

use crate::args::{Backend, ClusterArgs};
use crate::sessions::{self, Session};
use crate::{connect, local};

pub(crate) async fn ps(args: &ClusterArgs, as_json: bool) -> anyhow::Result<ExitCode> {
    let config = args.config()?;
    let mut sessions = Vec::new();
    if matches!(args.backend, None | Some(Backend::Local | Backend::Ssh)) {
        sessions = local::sessions(args).await?;
    }
    // What is known of this host is shown, even if no engine answers.
    let mut problem = None;
    if !Backend::has_heads_here(&config.backend) {
        match in_cluster(args).await {
            Ok(found) => {
                let is_found = |local: &Session| {
                    found.iter().any(|session| session.head.name == local.head.name)
                };
                sessions.retain(|local| !is_found(local));
                sessions.extend(found);
            }
            Err(error) if sessions.is_empty() => return Err(error),
            Err(error) => problem = Some(error),
        }
    }
    print(&sessions, as_json);
    problem.map_or(Ok(ExitCode::SUCCESS), Err)
}

async fn in_cluster(args: &ClusterArgs) -> anyhow::Result<Vec<Session>> {
    sessions::all(&*connect(args).await?).await
}

fn print(sessions: &[Session], as_json: bool) {
    if as_json {
        println!("{:#}", Value::from(sessions.iter().map(session).collect::<Vec<_>>()));
    } else if sessions.is_empty() {
        println!("There are no sessions.");
    } else {
        println!("{}", printable(&table(sessions).trim_fmt()));
    }
}

/// Replaces control characters: a program chooses the names of its pools.
pub(crate) fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c };
    text.chars().map(plain).collect()
}

fn table(sessions: &[Session]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["NAME", "ROLE", "STATE", "RESTARTS", "CPU", "MEMORY", "GPU", "AGE"]);
    for session in sessions {
        table.add_row(row(&session.head, String::new()));
        for (depth, worker) in &session.workers {
            table.add_row(row(worker, format!("{}└ ", "  ".repeat(*depth))));
        }
    }
    table
}

fn row(process: &SessionProcess, indent: String) -> [String; 8] {
    let used = process.usage.map(|usage| ByteSize(usage.memory));
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    [
        format!("{indent}{}", process.name),
        process.role.clone(),
        words(&process.state),
        process.restarts.to_string(),
        or_dash(process.meta.cpu.map(|cores| cores.to_string()).or_else(|| cpu_share(process))),
        or_dash(process.meta.memory.or(used).map(|size| size.to_string())),
        or_dash(process.meta.gpu.map(|count| count.to_string())),
        or_dash(process.started_at.map(age)),
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
    };
    let since = process.started_at;
    let since = since.map(|since| humantime::format_rfc3339_seconds(since).to_string());
    json!({
        "name": process.name,
        "role": process.role,
        "parent": process.parent,
        "state": state,
        "detail": detail,
        "exit_code": code,
        "restarts": process.restarts,
        "cpu": process.meta.cpu,
        "memory": process.meta.memory.map(|size| size.as_u64()),
        "gpu": process.meta.gpu,
        "cpu_seconds": process.usage.map(|usage| usage.cpu.as_secs_f64()),
        "resident": process.usage.map(|usage| usage.memory),
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

//! `fiber top`: what sessions do, live.

mod app;
pub(crate) mod plain;
mod screen;
mod theme;
mod view;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use fiber_core::Patient;
use serde_json::{Value, json};

use crate::args::ClusterArgs;
use crate::inspect::sessions::{Observed, Sessions};
use crate::model::Model;
use crate::terminal::{escaped, has_reader, of_output, printable, warn};

/// The options of `fiber top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Prints one look as text.
    #[arg(long, conflicts_with_all = ["json", "interval"])]
    pub(crate) once: bool,
    /// Prints one look as JSON; with --interval one for each, a line each, until the session ends.
    #[arg(long)]
    pub(crate) json: bool,
    /// The time between two looks: 500ms, 2s [default: 1s].
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) interval: Option<Duration>,
    /// A session: a pid, a program, a container or pod as `fiber ps` shows them, or the beginning.
    pub(crate) name: Option<String>,
}

fn interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(interval) if (100..=3_600_000).contains(&interval.as_millis()) => Ok(interval),
        _ => Err("give a time from 100ms to 1h: 500ms, 2s".into()),
    }
}

pub(crate) async fn top(args: &Top) -> anyhow::Result<ExitCode> {
    if !args.once && !args.json && !std::io::stdout().is_terminal() {
        bail!(
            "`fiber top` draws on a terminal, and this output is none: use `--once` for text or \
             `--json` for JSON"
        );
    }
    let mut sessions = Sessions::connect(&args.cluster).await?;
    let mut observed = sessions.look().await?;
    let mut session = None;
    if let Some(name) = &args.name {
        let target = sessions.find(&observed, name).await?;
        observed.retain(|observed| observed.head == target.head);
        sessions.limit_to(&target.head.name);
        session = Some(target.session);
    }
    if args.once {
        print_text(&observed);
        return Ok(ExitCode::SUCCESS);
    }
    let interval = args.interval.unwrap_or(Duration::from_secs(1));
    if args.json {
        let once = args.interval.is_none();
        return print_json(sessions, observed, interval, once).await;
    }
    if observed.is_empty() {
        say!("There are no sessions.");
        return Ok(ExitCode::SUCCESS);
    }
    screen::show(sessions, observed, session, interval).await
}

fn print_text(observed: &[Observed]) {
    if observed.is_empty() {
        say!("There are no sessions.");
    }
    let mut texts = Vec::new();
    for session in observed {
        match &session.stats {
            Ok(stats) => {
                texts.push(plain::session(&session.head.name, &Model::new(stats, None)));
            }
            Err(problem) => warn(problem),
        }
    }
    if !texts.is_empty() {
        say!("{}", printable(texts.join("\n")).trim_end());
    }
}

async fn print_json(
    mut sessions: Sessions,
    mut observed: Vec<Observed>,
    interval: Duration,
    once: bool,
) -> anyhow::Result<ExitCode> {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        if sessions.is_limited() && observed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let value = value(&observed)?;
        let text = if once { format!("{value:#}\n") } else { format!("{value}\n") };
        let written = Patient(std::io::stdout()).write_all(escaped(text).as_bytes());
        if !has_reader(written).map_err(of_output)? || once {
            return Ok(ExitCode::SUCCESS);
        }
        ticks.tick().await;
        observed = sessions.look().await?;
    }
}

fn value(observed: &[Observed]) -> anyhow::Result<Value> {
    let (mut sessions, mut problems) = (Vec::new(), Vec::new());
    for session in observed {
        match &session.stats {
            Ok(stats) => {
                let mut value = serde_json::to_value(&**stats)?;
                value["name"] = session.head.name.clone().into();
                sessions.push(value);
            }
            Err(problem) => problems.push(problem.to_string()),
        }
    }
    Ok(json!({ "sessions": sessions, "problems": problems }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::inspect::InspectError;
    use crate::inspect::testing::{head_here, stats};

    #[test]
    fn json_has_the_figures_and_the_names_of_sessions() {
        let observed = [
            Observed { head: head_here(7), stats: Ok(Arc::new(stats("simulate", 2))) },
            Observed {
                head: head_here(8),
                stats: Err(InspectError::Silent("pid 8 is silent".into())),
            },
        ];
        let value = value(&observed).unwrap();
        assert_eq!(value["sessions"][0]["name"], "pid 7");
        assert_eq!(value["sessions"][0]["program"], "simulate");
        assert_eq!(value["sessions"][0]["pools"][0]["workers"][1]["name"], "worker-2");
        assert_eq!(value["problems"][0], "pid 8 is silent");
    }

    #[test]
    fn intervals_are_limited() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["0s", "1ms", "2h", "soon", "-1s"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}

//! Reports of seeds, in words.

use std::fmt::Write;

use fiber_core::variables::{SIM_HTML as HTML, SIM_SEED as SEED};

use super::director::Test;
use crate::log::{Event, Kind, parse};
use crate::page::page;

/// How many lines of a history or of an output stand in an error.
const LINES: usize = 25;

/// A seed that was played.
#[derive(Debug)]
pub(super) struct Play {
    pub(super) seed: u64,
    events: Vec<Event>,
    output: String,
}

impl Play {
    /// Reads a player's report. Returns `None` if it reports nothing.
    pub(super) fn parse(report: &[u8], output: &[u8]) -> Option<Play> {
        let (seed, log) = report.split_first_chunk()?;
        let output = String::from_utf8_lossy(output).into_owned();
        Some(Play { seed: u64::from_le_bytes(*seed), events: parse(log), output })
    }

    /// Returns why it has failed.
    pub(super) fn failure(&self) -> Option<&str> {
        let failure = self.events.iter().find(|event| event.kind == Kind::Failure);
        failure.map(|event| &*event.text)
    }

    /// Returns the history, line by line, without threads. One line stands for unusual things of
    /// one kind that follow each other.
    fn lines(&self) -> Vec<String> {
        let is_told =
            |event: &&Event| !matches!(event.kind, Kind::Thread | Kind::Turn | Kind::Success);
        let told: Vec<_> = self.events.iter().filter(is_told).collect();
        let are_one = |one: &&Event, other: &&Event| {
            one.kind == Kind::Unusual && other.kind == Kind::Unusual && one.text == other.text
        };
        let line = |events: &[&Event]| {
            let (mut event, times) = (events[0].clone(), events.len());
            if events.iter().any(|other| other.process != event.process) {
                event.name.clear();
            }
            match (event.kind, times) {
                (Kind::Failure, _) => event.text = "FAILS".into(),
                (_, 1) => {}
                (_, times) => event.text += &format!(", {times} times"),
            }
            event.to_string()
        };
        told.chunk_by(are_one).map(line).collect()
    }

    /// Returns all of it.
    pub(super) fn whole(&self) -> String {
        let end = if self.failure().is_some() { "fails" } else { "does not fail" };
        let mut text =
            format!("seed {} {end}. Its history:\n{}\n", self.seed, self.lines().join("\n"));
        if !self.output.is_empty() {
            let _ = write!(text, "Its output:\n{}", self.output);
        }
        text
    }

    /// Writes the history as a page, if a variable asks for it.
    pub(super) fn write_page(&self) -> Result<(), String> {
        let Some(path) = std::env::var_os(HTML) else { return Ok(()) };
        let page = page(&format!("{}: its history", self.outcome()), &self.events);
        let wrong = |error| format!("{HTML}: {}: {error}", path.display());
        std::fs::write(&path, page).map_err(wrong)
    }

    fn outcome(&self) -> String {
        let end = self.failure().map_or("does not fail".into(), |why| format!("fails: {why}"));
        format!("seed {} {end}", self.seed)
    }

    /// Returns the last lines of history and output.
    pub(super) fn last_lines(&self) -> String {
        let mut text = format!("seed {} fails\n", self.seed);
        let output: Vec<_> = self.output.lines().map(ToString::to_string).collect();
        for (what, lines) in [("history", self.lines()), ("output", output)] {
            let last = &lines[lines.len().saturating_sub(LINES)..];
            if !last.is_empty() {
                let (shown, all) = (last.len(), lines.len());
                let part = format!(", the last {shown} lines of {all}");
                let part = if shown < all { part } else { String::new() };
                let _ = writeln!(text, "Its {what}{part}:\n{}", last.join("\n"));
            }
        }
        text
    }

    /// Returns why it fails, and how to play it again.
    pub(super) fn summary(&self, test: &Test, is_in_code: bool) -> String {
        let failure = self.failure().unwrap_or_default();
        let name = test.name.as_deref().unwrap_or_default();
        let variable = if is_in_code { String::new() } else { format!("{SEED}={} ", self.seed) };
        format!(
            "seed {} fails: {failure}\nplay it again, with all of its history: \
             {variable}cargo test {name}",
            self.seed
        )
    }
}

//! The measurements beside those of the suite. Each case adds its rows to the table.

mod arrays;
mod building;
mod commands;
mod containers;
mod durable;
mod entities;
mod graphs;
mod machines;
mod observed;
mod savina;
mod scale;
mod sealed;
mod service;
mod shuffles;
mod tasks;

use std::env;
use std::process::{Command, Stdio};

use anyhow::ensure;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::measure::kilobytes;
use crate::suite::Case;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// All cases, in the order of the table.
pub(crate) const CASES: [Case; 21] = [
    Case { name: "map", measure: tasks::map },
    Case { name: "sleep", measure: tasks::sleep },
    Case { name: "apply", measure: tasks::apply },
    Case { name: "bytes", measure: tasks::bytes },
    Case { name: "arrays", measure: arrays::arrays },
    Case { name: "graph", measure: graphs::graph },
    Case { name: "sort", measure: shuffles::sort },
    Case { name: "shuffle", measure: shuffles::shuffle },
    Case { name: "savina", measure: savina::savina },
    Case { name: "entities", measure: entities::entities },
    Case { name: "service", measure: service::service },
    Case { name: "durable", measure: durable::durable },
    Case { name: "observed", measure: observed::observed },
    Case { name: "sealed", measure: sealed::sealed },
    Case { name: "scale", measure: scale::scale },
    Case { name: "commands", measure: commands::commands },
    Case { name: "build", measure: building::building },
    Case { name: "containers", measure: containers::containers },
    Case { name: "pods", measure: containers::pods },
    Case { name: "slurm", measure: machines::slurm },
    Case { name: "ssh", measure: machines::ssh },
];

type Answer = fn() -> anyhow::Result<()>;

/// Runs a part of a case in a process of its own, with these variables. Returns what it prints.
fn ask<T: DeserializeOwned>(part: &str, variables: &[(&str, &str)]) -> anyhow::Result<T> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(part).envs(variables.iter().copied()).stderr(Stdio::inherit());
    let output = command.output()?;
    ensure!(output.status.success(), "{part} {variables:?} ended with {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Prints what such a part has measured.
fn print(measured: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(measured)?);
    Ok(())
}

/// Parts of cases that run in a process of this binary, by its argument: each prints figures.
const ANSWERS: [(&str, Answer); 11] = [
    (containers::WITH_BACKEND, containers::answer_with_backend),
    (durable::PROGRAM, durable::answer_durable),
    (entities::ENTITIES, entities::be_entities),
    (machines::IN_ALLOCATION, machines::answer_in_allocation),
    (machines::READY, machines::answer_ready),
    (observed::SESSION, observed::be_session),
    (scale::AT_SCALE, scale::be_at_scale),
    (sealed::ARRAYS_OVER_NNG, sealed::answer_arrays_over_nng),
    (service::SERVICE, service::be_service),
    (shuffles::SHUFFLE, shuffles::answer_shuffle),
    (shuffles::SORT, shuffles::answer_sort),
];

/// Returns what a case has started this process for.
pub(crate) fn asked() -> Option<Answer> {
    let asked = env::args().nth(1)?;
    ANSWERS.into_iter().find(|(name, _)| *name == asked).map(|(_, answer)| answer)
}

/// Serves a case in a process that it has started without fiber, and does not return. Else returns
/// at once.
pub(crate) fn serve_if_asked() {
    sealed::serve_if_asked();
    containers::be_bare_if_asked();
    savina::be_plain_if_asked();
}

/// Returns the resident memory of a process, in bytes, pages that it shares with others included.
fn resident(pid: u32) -> anyhow::Result<f64> {
    kilobytes(&format!("/proc/{pid}/status"), "VmRSS:")
}

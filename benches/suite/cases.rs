//! The measurements. Each case adds its rows to the table.

mod actors;
mod arrays;
mod building;
mod commands;
mod containers;
mod durable;
mod endless;
mod entities;
mod evolution;
mod graphs;
mod hosts;
mod large;
mod machines;
mod many;
mod names;
mod observed;
mod queues;
mod replies;
mod rings;
mod savina;
mod scale;
mod sealed;
mod starting;
mod streams;
mod tasks;
mod together;
mod topics;
mod trips;

use crate::table::Table;

pub(crate) use actors::{OVER_NNG as CALL_OVER_NNG, answer_over_nng as answer_call_over_nng};
pub(crate) use containers::{WITH_BACKEND, answer_with_backend, be_bare_if_asked};
pub(crate) use durable::{PROGRAM as DURABLE_PROGRAM, answer_durable};
pub(crate) use entities::{ENTITIES, be_entities};
pub(crate) use hosts::{THROUGH_HOST, answer_through_host};
pub(crate) use machines::{IN_ALLOCATION, READY_WORKERS, answer_in_allocation, answer_ready};
pub(crate) use observed::{SESSION, be_session};
pub(crate) use savina::be_plain_if_asked;
pub(crate) use scale::{AT_SCALE, be_at_scale};
pub(crate) use sealed::{ARRAYS_OVER_NNG, answer_arrays_over_nng, serve_if_asked};
pub(crate) use trips::{OVER_NNG, answer_over_nng};

/// A case by its name on the command line.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) measure: fn(&mut Table) -> anyhow::Result<()>,
}

/// All cases, in the order of the table.
pub(crate) const CASES: &[Case] = &[
    Case { name: "noop", measure: tasks::noop },
    Case { name: "map", measure: tasks::map },
    Case { name: "sleep", measure: tasks::sleep },
    Case { name: "apply", measure: trips::apply },
    Case { name: "bytes", measure: trips::bytes },
    Case { name: "large", measure: large::large },
    Case { name: "arrays", measure: arrays::arrays },
    Case { name: "call", measure: actors::call },
    Case { name: "calls", measure: actors::pipelined },
    Case { name: "cartpole", measure: actors::cartpole },
    Case { name: "thousand", measure: actors::thousand },
    Case { name: "managers_together", measure: together::together },
    Case { name: "savina", measure: savina::savina },
    Case { name: "names", measure: names::names },
    Case { name: "replies", measure: replies::replies },
    Case { name: "sealed", measure: sealed::sealed },
    Case { name: "graph", measure: graphs::graph },
    Case { name: "ring", measure: rings::rings },
    Case { name: "ready", measure: starting::ready },
    Case { name: "replace", measure: starting::replace },
    Case { name: "queue", measure: queues::queue },
    Case { name: "pipe", measure: queues::pipe },
    Case { name: "streams", measure: streams::streams },
    Case { name: "topics", measure: topics::topics },
    Case { name: "entities", measure: entities::entities },
    Case { name: "many", measure: many::many },
    Case { name: "scale", measure: scale::scale },
    Case { name: "observed", measure: observed::observed },
    Case { name: "durable", measure: durable::durable },
    Case { name: "commands", measure: commands::commands },
    Case { name: "evolution", measure: evolution::evolution },
    Case { name: "hosts", measure: hosts::hosts },
    Case { name: "containers", measure: containers::containers },
    Case { name: "pods", measure: containers::pods },
    Case { name: "slurm", measure: machines::slurm },
    Case { name: "ssh", measure: machines::ssh },
    Case { name: "build", measure: building::building },
    Case { name: "endless", measure: endless::endless },
];

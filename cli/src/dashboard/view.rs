//! A session in the form that the page lays out. The page formats no numbers.

use std::time::UNIX_EPOCH;

use fiber_core::ProcessId;
use fiber_core::stats::{Event, PoolStats, Slice};
use serde_json::{Value, json};

use crate::inspect::sessions::Observed;
use crate::model::Model;
use crate::model::format::{plural, span};
use crate::model::tables;
use crate::model::trends::{AllTrends, Trends};
use crate::model::workers::{STATES, Worker, counts};

/// Returns a session, with the details of the process `open`.
pub(super) fn session(observed: &Observed, trends: &AllTrends, open: Option<ProcessId>) -> Value {
    let mut session = match &observed.stats {
        Ok(stats) => {
            let trends = trends.of(&stats.session);
            shown(&Model::new(stats, trends), trends, open)
        }
        Err(problem) => json!({ "problem": problem.to_string() }),
    };
    session["head"] = observed.head.name.clone().into();
    session
}

fn shown(model: &Model, trends: Option<&Trends>, open: Option<ProcessId>) -> Value {
    let stats = &model.stats;
    let opened = open.and_then(|id| {
        let details = model.process(id, trends)?;
        Some(json!({ "id": id.to_string(), "terms": details.terms, "tail": details.tail }))
    });
    let pools = stats.report.pools.iter().zip(&model.workers);
    let supervisors = stats.report.supervisors.iter().flat_map(|one| &one.roots);
    json!({
        "program": stats.program,
        "taken_at": stats.taken_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        "summary": format!("{} · {}", stats.backend, model.whole_summary().join(" · ")),
        "notices": model.notices,
        "pools": Value::from_iter(pools.map(|(pool, workers)| self::pool(pool, workers))),
        "states": STATES.map(|(_, name, meaning)| [name, meaning]),
        "tables": Value::from_iter(model.tables().map(|table| (table.name, json!(table)))),
        "supervisors": Value::from_iter(supervisors.map(ToString::to_string)),
        "happened": Value::from_iter(stats.events.iter().map(event)),
        "opened": opened,
    })
}

fn pool(pool: &PoolStats, workers: &[Worker]) -> Value {
    let all: Vec<&Worker> = workers.iter().collect();
    let counts = counts(&all).into_iter().filter(|(.., number)| *number > 0);
    let counts = counts.map(|(_, name, number)| format!(", {number} {name}"));
    json!({
        "key": format!("{}/{}", pool.process, pool.name),
        "name": pool.name,
        "history": pool.history,
        "counts": plural(workers.len(), "worker") + &counts.collect::<String>(),
        "workers": workers,
    })
}

fn event(event: &Event) -> Value {
    let mut shown = json!(event);
    shown["text"] = event.to_string().into();
    shown["mark"] = json!(tables::mark(event));
    // It has the last output.
    shown["exit"] = Value::Null;
    shown
}

/// Returns a slice of a timeline that the program has recorded.
pub(super) fn slice(slice: &Slice) -> Value {
    let mut shown = json!(slice);
    shown["lasted"] = span(slice.duration).into();
    shown
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::inspect::testing::{head_elsewhere, stats};

    #[test]
    fn the_page_gets_rows_with_exact_ids_and_the_details_of_one_process() {
        let mut stats = stats("squares", 2);
        stats.report.processes[1].id = ProcessId(u64::MAX - 1);
        stats.report.pools[0].workers[0].process = ProcessId(u64::MAX - 1);
        let head = head_elsewhere("fiber-1");
        let observed = Observed { head, stats: Ok(Arc::new(stats)) };
        let shown = session(&observed, &AllTrends::default(), Some(ProcessId(3)));
        assert_eq!(shown["head"], "fiber-1");
        let summary = "local · up 3h05m · 3 processes · 12.3k tasks/s · 36.0M PSS";
        assert_eq!(shown["summary"], summary);
        assert_eq!(shown["opened"]["id"], "0000000000000003");
        assert_eq!(shown["opened"]["tail"][0], "line of worker-2");
        let pool = &shown["pools"][0];
        assert_eq!(pool["counts"], "2 workers, 1 slow, 1 short");
        assert_eq!(pool["workers"][0]["process"], "fffffffffffffffe");
        assert_eq!(pool["workers"][0]["state"], "slow");
        let process = &shown["tables"]["Processes"]["rows"][1];
        assert_eq!(
            (&process["process"], &process["depth"]),
            (&"fffffffffffffffe".into(), &1.into())
        );
        let task = &shown["tables"]["Slowest tasks under way"]["rows"][0];
        let ran = json!({ "text": "!41.0s", "number": 41.0, "mark": "plain", "bar": null });
        assert_eq!((&task["cells"][0], &task["mark"]), (&ran, &"slow".into()));
        assert_eq!(shown["tables"]["Slowest tasks under way"]["columns"][0]["head"], "RUNS FOR");
        assert_eq!(shown["happened"][0]["mark"], "bad");
    }
}

//! A session in the form that the page lays out. The page formats no numbers.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use fiber_core::ProcessId;
use fiber_core::stats::{
    Event, EventKind, PoolStats, ProcessState, ProcessStats, Slice, SliceKind,
};
use serde_json::{Value, json};

use crate::inspect::sessions::Observed;
use crate::model::Model;
use crate::model::format::{plural, span, whole};
use crate::model::tables;
use crate::model::trends::{AllTrends, Trends};
use crate::model::workers::{State, Worker, counts};

/// Returns a session, with the details of the process `open`.
pub(super) fn session(observed: &Observed, trends: &AllTrends, open: Option<ProcessId>) -> Value {
    let mut session = match &observed.stats {
        Ok(stats) => {
            let trends = trends.of(&stats.session);
            shown(&Model::new(stats, trends), trends, open)
        }
        Err(problem) => json!({ "problem": problem.to_string() }),
    };
    session["head"] = observed.head.name().into();
    session
}

fn shown(model: &Model, trends: Option<&Trends>, open: Option<ProcessId>) -> Value {
    let stats = &model.stats;
    let opened = open.and_then(|id| {
        let details = model.process(id, trends)?;
        Some(json!({ "id": id.to_string(), "terms": details.terms, "tail": details.tail }))
    });
    let (processes, groups) = processes(model);
    let pools = stats.report.pools.iter().zip(&model.workers);
    let supervisors = stats.report.supervisors.iter().flat_map(|one| &one.roots);
    json!({
        "program": stats.program,
        "taken_at": seconds(stats.taken_at),
        "summary": format!("{} · {}", stats.backend, model.whole_summary().join(" · ")),
        "notices": model.notices,
        "pools": Value::from_iter(pools.map(|(pool, workers)| self::pool(pool, workers))),
        "states": State::ALL.map(|state| [state.name(), state.meaning()]),
        "tables": {
            "pools": model.pools,
            "calls": model.calls,
            "tasks": model.tasks,
            "functions": model.functions,
            "actors": model.actors,
            "queues": model.queues,
            "rings": model.rings,
            "names": model.names,
            "events": model.events,
        },
        "processes": processes,
        "groups": groups,
        "supervisors": Value::from_iter(supervisors.map(ToString::to_string)),
        "marks": Value::from_iter(stats.events.iter().filter_map(mark)),
        "opened": opened,
    })
}

fn pool(pool: &PoolStats, workers: &[Worker]) -> Value {
    let counts = counts(workers).into_iter().filter(|(_, number)| *number > 0);
    let counts = counts.map(|(state, number)| format!("{number} {}", state.name()));
    let counts: Vec<String> =
        std::iter::once(plural(workers.len(), "worker")).chain(counts).collect();
    let running = pool.workers.iter().flat_map(|worker| {
        worker.running.iter().map(move |task| {
            json!({
                "row": format!("{}/{}", pool.name, worker.name),
                "call": task.call,
                "index": task.index,
                "function": task.function,
                "tasks": task.index.to_string(),
                "ran": task.ran.as_secs_f64(),
                "lasted": span(task.ran),
            })
        })
    });
    let worker = |worker: &Worker| {
        json!({
            "id": worker.process.to_string(),
            "name": worker.name,
            "state": worker.state.name(),
            "line": worker.line(),
            "done": format!("{} done", whole(worker.done)),
        })
    };
    json!({
        "key": format!("{}/{}", pool.process, pool.name),
        "name": pool.name,
        "history": pool.history,
        "counts": counts.join(", "),
        "workers": Value::from_iter(workers.iter().map(worker)),
        "running": Value::from_iter(running),
    })
}

/// Returns the processes, and the names and sums of groups of them, which have one parent, one role
/// and one beginning of their names.
fn processes(model: &Model) -> (Vec<Value>, HashMap<String, [String; 2]>) {
    let mut groups = HashMap::<String, Vec<&ProcessStats>>::new();
    let shown = model.stats.report.processes.iter().map(|process| {
        let parent = process.parent.map(|parent| parent.to_string());
        let above = process.name.rsplit_once('/').map_or("", |(above, _)| above);
        let group = format!("{}/{above}/{}", parent.as_deref().unwrap_or(""), process.role);
        groups.entry(group.clone()).or_default().push(process);
        let state = match process.state {
            ProcessState::Starting => "starting",
            ProcessState::Waiting(_) => "waiting",
            _ => "running",
        };
        let restarts = match usize::try_from(process.restarts).unwrap_or(usize::MAX) {
            0 => String::new(),
            restarts => format!(", {}", plural(restarts, "restart")),
        };
        let memory = model.memory([process]).map(|memory| format!(" · {memory}"));
        let place = format!("{} · {}", process.role, process.place);
        json!({
            "id": process.id.to_string(),
            "parent": parent,
            "name": process.name,
            "title": format!("{}{restarts}", process.name),
            "text": place + &memory.unwrap_or_default(),
            "state": state,
            "group": group,
        })
    });
    let shown = shown.collect();
    let groups = groups.into_iter().map(|(group, members)| {
        let name = plural(members.len(), &members[0].role.to_string());
        (group, [name, model.memory(members).unwrap_or_default()])
    });
    (shown, groups.collect())
}

/// Returns the mark of an event in the timeline of a worker.
fn mark(event: &Event) -> Option<Value> {
    let (pool, worker, redelivered) = match &event.kind {
        EventKind::WorkerEnded { pool, worker, redelivered, .. } => (pool, worker, *redelivered),
        EventKind::Straggler { pool, worker, .. } => (pool, worker, 0),
        _ => return None,
    };
    Some(json!({
        "at": seconds(event.at),
        "row": format!("{pool}/{worker}"),
        "mark": tables::mark(event),
        "redelivered": redelivered,
        "text": event.to_string(),
    }))
}

/// Returns a slice of a timeline that the program has recorded.
pub(super) fn slice(slice: &Slice) -> Value {
    let state = match slice.kind {
        _ if slice.failed > 0 => "failed",
        SliceKind::Died => "died",
        SliceKind::Redelivered => "redelivered",
        _ => "done",
    };
    let tasks = match slice.count {
        1 => slice.first.to_string(),
        count => format!("({} tasks from {} on)", whole(count), slice.first),
    };
    json!({
        "row": format!("{}/{}", slice.pool, slice.worker),
        "thread": slice.thread,
        "call": slice.call,
        "index": slice.first,
        "function": slice.function,
        "tasks": tasks,
        "start": seconds(slice.start),
        "end": seconds(slice.end()),
        "lasted": span(slice.duration),
        "state": state,
    })
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::inspect::sessions::Head;
    use crate::inspect::testing::stats;

    #[test]
    fn the_page_gets_rows_with_exact_ids_and_the_details_of_one_process() {
        let mut stats = stats("squares", 2);
        stats.report.processes[1].id = ProcessId(u64::MAX - 1);
        stats.report.pools[0].workers[0].process = ProcessId(u64::MAX - 1);
        let head = Head::elsewhere("fiber-1");
        let observed = Observed { head, stats: Ok(Arc::new(stats)) };
        let shown = session(&observed, &AllTrends::default(), Some(ProcessId(3)));
        assert_eq!(shown["head"], "fiber-1");
        let summary = "local · up 3h05m · 3 processes · 12.3k tasks/s · 36.0M PSS";
        assert_eq!(shown["summary"], summary);
        assert_eq!(shown["processes"][1]["id"], "fffffffffffffffe");
        assert_eq!(shown["processes"][1]["parent"], "0000000000000001");
        assert_eq!(shown["processes"][2]["text"], "worker · pid 4003 · 13.0M PSS");
        let group = shown["processes"][2]["group"].as_str().unwrap();
        assert_eq!(shown["groups"][group], json!(["2 workers", "25.0M PSS"]));
        assert_eq!(shown["opened"]["id"], "0000000000000003");
        assert_eq!(shown["opened"]["tail"][0], "line of worker-2");
        assert_eq!(shown["pools"][0]["counts"], "2 workers, 1 slow, 1 short");
        assert_eq!(shown["pools"][0]["workers"][0]["id"], "fffffffffffffffe");
        let task = &shown["tables"]["tasks"]["rows"][0];
        assert_eq!((&task["process"], &task["mark"]), (&json!("fffffffffffffffe"), &json!("slow")));
        let ran = json!({ "text": "!41.0s", "number": 41.0, "mark": "plain", "bar": null });
        assert_eq!(task["cells"][0], ran);
        assert_eq!(shown["tables"]["tasks"]["columns"][0]["head"], "RUNS FOR");
        assert_eq!(
            (&shown["marks"][0]["row"], &shown["marks"][0]["mark"]),
            (&json!("squares/worker-2"), &json!("bad"))
        );
    }
}

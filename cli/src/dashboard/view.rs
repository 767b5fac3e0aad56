//! A session's statistics in the form that the page reads.

use fiber_core::ProcessId;
use fiber_core::stats::{Distribution, Event, EventKind, SessionStats};
use serde_json::{Value, json};

use crate::inspect::sessions::Observed;

/// Returns a session. Only the process `open` has its last output, which is long.
pub(super) fn session(observed: &Observed, open: Option<ProcessId>) -> Value {
    let mut session = match &observed.stats {
        Ok(stats) => statistics(stats, open),
        Err(problem) => json!({ "problem": problem.to_string() }),
    };
    session["head"] = observed.head.name().into();
    session
}

fn statistics(stats: &SessionStats, open: Option<ProcessId>) -> Value {
    let Ok(mut session) = serde_json::to_value(stats) else { return json!({}) };
    let report = &stats.report;
    let processes = list(&mut session, "processes").iter_mut();
    for (shown, process) in processes.zip(&report.processes) {
        shown["id"] = id(process.id);
        shown["parent"] = process.parent.map_or(Value::Null, id);
        if open != Some(process.id) {
            shown["tail"] = Value::Null;
        }
    }
    for (shown, pool) in list(&mut session, "pools").iter_mut().zip(&report.pools) {
        shown["process"] = id(pool.process);
        for (shown, function) in list(shown, "functions").iter_mut().zip(&pool.functions) {
            shown["times"] = times(&function.times);
        }
        for (shown, worker) in list(shown, "workers").iter_mut().zip(&pool.workers) {
            shown["process"] = id(worker.process);
        }
    }
    for (shown, actor) in list(&mut session, "actors").iter_mut().zip(&report.actors) {
        shown["process"] = id(actor.process);
        shown["latency"] = times(&actor.latency);
    }
    for (shown, event) in list(&mut session, "events").iter_mut().zip(&stats.events) {
        shown["text"] = event.to_string().into();
        shown["bad"] = is_bad(event).into();
        shown["exit"] = Value::Null;
    }
    session
}

fn list<'a>(value: &'a mut Value, name: &str) -> &'a mut [Value] {
    value.get_mut(name).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// Returns an id as text: numbers of JavaScript have 53 bits.
fn id(id: ProcessId) -> Value {
    id.to_string().into()
}

fn times(times: &Distribution) -> Value {
    let seconds = |share| times.quantile(share).as_secs_f64();
    json!({
        "count": times.count(),
        "sum": times.sum().as_secs_f64(),
        "p50": seconds(0.5),
        "p99": seconds(0.99),
        "max": times.max().as_secs_f64(),
    })
}

fn is_bad(event: &Event) -> bool {
    match &event.kind {
        EventKind::WorkerEnded { expected, .. } => !expected,
        EventKind::ChildRestarted { reason, .. } => !reason.is_normal() && !reason.is_disruption(),
        EventKind::TaskAbandoned { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fiber_core::ExitReason;

    use super::*;
    use crate::inspect::sessions::Head;
    use crate::inspect::testing::{service, stats};

    #[test]
    fn ids_are_exact_and_times_are_quantiles() {
        let mut stats = stats("squares", 2);
        stats.report.processes[1].id = ProcessId(u64::MAX - 1);
        let head = Head::elsewhere("fiber-1");
        let observed = Observed { head, stats: Ok(Arc::new(stats)) };
        let shown = session(&observed, Some(ProcessId(3)));
        assert_eq!(shown["head"], "fiber-1");
        assert_eq!(shown["processes"][1]["id"], "fffffffffffffffe");
        assert_eq!(shown["processes"][1]["parent"], "0000000000000001");
        assert_eq!(shown["processes"][1]["tail"], Value::Null);
        assert_eq!(shown["processes"][2]["tail"][0], "line of worker-2");
        assert_eq!(shown["pools"][0]["workers"][1]["process"], "0000000000000003");
        let p99 = shown["pools"][0]["functions"][0]["times"]["p99"].as_f64().unwrap();
        assert!((0.004..0.005).contains(&p99), "{p99}");
        assert_eq!(shown["events"][0]["bad"], true);
    }

    #[test]
    fn an_actor_that_was_killed_is_as_bad_as_a_worker() {
        let mut stats = stats("bank", 0);
        service(&mut stats, 2);
        stats.events = [ExitReason::Signal(9), ExitReason::Normal, ExitReason::Terminated]
            .into_iter()
            .map(|reason| {
                let (child, names) = ("teller-1".into(), Vec::new());
                Event::now(EventKind::ChildRestarted { child, names, reason })
            })
            .collect();
        let observed = Observed { head: Head::elsewhere("fiber-1"), stats: Ok(Arc::new(stats)) };
        let shown = session(&observed, None);
        let bad = [0, 1, 2].map(|event: usize| shown["events"][event]["bad"] == true);
        assert_eq!(bad, [true, false, false]);
        let actor = &shown["actors"][1];
        assert_eq!(
            (&actor["process"], &actor["restarts"]),
            (&json!("00000000000003ea"), &json!(1))
        );
    }
}

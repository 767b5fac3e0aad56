//! The tasks that wait for the values of others.

use std::cmp::Reverse;

use fiber_core::stats::Report;

use super::format::{last, whole};

/// Returns a line about the tasks that wait for inputs: how many of each function, and for the
/// values of which functions. `None` if none waits.
pub(super) fn line(report: &Report) -> Option<String> {
    let mut waits = Vec::<(&str, u64, Vec<&str>)>::new();
    let calls = report.pools.iter().flat_map(|pool| &pool.calls);
    for call in calls.filter(|call| call.held > 0) {
        let place = waits.iter().position(|(function, ..)| *function == call.function);
        let place = place.unwrap_or_else(|| {
            waits.push((&call.function, 0, Vec::new()));
            waits.len() - 1
        });
        let (_, held, others) = &mut waits[place];
        *held += call.held;
        for other in &call.waits_for {
            if !others.contains(&other.as_str()) {
                others.push(other);
            }
        }
    }
    waits.sort_by_key(|(_, held, _)| Reverse(*held));
    let part = |(function, held, others): (&str, u64, Vec<&str>)| {
        let verb = if held == 1 { "waits" } else { "wait" };
        let others: Vec<_> = others.into_iter().map(last).collect();
        let others = if others.is_empty() { "inputs".into() } else { others.join(", ") };
        format!("{}: {} {verb} for {others}", last(function), whole(held))
    };
    let parts: Vec<_> = waits.into_iter().map(part).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests {
    use fiber_core::stats::CallStats;

    use super::*;
    use crate::inspect::testing::{now, stats};

    #[test]
    fn tasks_that_wait_are_counted_by_function_with_what_they_wait_for() {
        let mut report = stats("simulate", 2).report;
        assert_eq!(line(&report), None);
        let mut add = |function: &str, held, waits_for: &[&str]| {
            let mut call = CallStats::new(8, function.into(), now());
            call.held = held;
            call.waits_for = waits_for.iter().map(ToString::to_string).collect();
            report.pools[0].calls.push(call);
        };
        add("shop::plot", 1, &[]);
        add("shop::join", 12, &["shop::clean"]);
        add("shop::join", 3400, &["shop::load", "shop::clean"]);
        let shown = "join: 3.4k wait for clean, load; plot: 1 waits for inputs";
        assert_eq!(line(&report).unwrap(), shown);
    }
}

//! The memory of values: which process has none left.

use fiber_core::stats::{ProcessStats, ProcessUsage, QueueStats, Report};

use super::format::bytes;

/// Returns a line about the process whose values need most more memory than they may have: calls
/// and pipes wait for room, or elements of queues are in a file. `None` if all have room.
pub(super) fn warning(report: &Report) -> Option<String> {
    let usage = report.processes.iter().filter_map(|one| Some((one, one.usage.as_ref()?)));
    let lacking: Vec<(&ProcessStats, &ProcessUsage)> =
        usage.filter(|(_, usage)| usage.spilled > 0 || usage.has_full_values()).collect();
    let used = |usage: &ProcessUsage| usage.stored.saturating_add(usage.shared);
    let (process, usage) = lacking.iter().max_by_key(|(_, usage)| (usage.spilled, used(usage)))?;
    let (used, limit) = (bytes(used(usage)), bytes(usage.value_limit));
    let mut text = format!("values of {}: {used} of {limit}", process.name);
    if usage.spilled > 0 {
        text += &format!(", {} in a file", bytes(usage.spilled));
    } else {
        text += ", full";
    }
    let own = report.queues.iter().filter(|queue| queue.process == process.id);
    if let Some(queue) = own.max_by_key(|queue| queue.bytes).filter(|queue| queue.bytes > 0) {
        text += &format!(", {} in {}", bytes(queue.bytes), name(queue));
    }
    match lacking.len() {
        1 => {}
        number => text += &format!("; {} more without room", number - 1),
    }
    Some(text)
}

/// Returns the name of a queue or pipe.
pub(super) fn name(queue: &QueueStats) -> String {
    format!("{} {}", if queue.pipe { "pipe" } else { "queue" }, queue.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::stats;

    #[test]
    fn a_process_without_room_for_values_is_named_with_its_largest_queue() {
        let mut report = stats("simulate", 2).report;
        assert_eq!(warning(&report), None);
        let usage = |report: &mut Report, place: usize, stored, spilled| {
            let usage = report.processes[place].usage.as_mut().unwrap();
            (usage.stored, usage.shared, usage.value_limit) = (stored, 1 << 20, 4 << 20);
            usage.spilled = spilled;
        };
        usage(&mut report, 1, 2 << 20, 0);
        assert_eq!(warning(&report), None, "there is room");
        usage(&mut report, 1, 3 << 20, 0);
        let full = "values of squares/worker-1: 4.0M of 4.0M, full";
        assert_eq!(warning(&report).unwrap(), full);
        usage(&mut report, 0, 0, 300 << 20);
        let head = report.processes[0].id;
        for (name, bytes) in [("small", 1 << 20), ("jobs", 299 << 20)] {
            let mut queue = QueueStats::new(head, bytes, name.into());
            queue.bytes = bytes;
            report.queues.push(queue);
        }
        let spilled = "values of simulate: 1.0M of 4.0M, 300.0M in a file, 299.0M in queue jobs; \
                       1 more without room";
        assert_eq!(warning(&report).unwrap(), spilled);
    }
}

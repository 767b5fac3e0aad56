//! The decisions of schedulers, in words, for tests that compare them.

use super::scheduler::Completion;
use super::scheduling::Effects;
use fiber_runtime::runtime::simulation::Trace;

impl Effects {
    /// Notes these effects, of the scheduler of `pool`.
    pub(super) fn note_in(&self, trace: &Trace, pool: &str) {
        let note = |effect: String| trace.note(format!("{pool}: {effect}"));
        for (worker, tasks) in &self.assignments {
            let (first, end) = (tasks.first, tasks.first + u64::from(tasks.count));
            note(format!("{} gets {first}..{end} of call {}", worker.child, tasks.call));
        }
        for (worker, call) in &self.recalls {
            note(format!("{} returns tasks of call {call}", worker.child));
        }
        for (worker, reason) in &self.kills {
            note(format!("{} is killed: {reason}", worker.child));
        }
        for (worker, _) in &self.retired {
            note(format!("{} retires", worker.child));
        }
        for (worker, verdict, loss) in &self.losses {
            let (reason, redelivered) = (&verdict.exit.reason, loss.redelivered);
            note(format!("{} {reason}, {redelivered} tasks run again", worker.child));
        }
        for (exchange, completion) in &self.completions {
            match completion {
                Completion::Outcomes(run) | Completion::Away { outcome: run, .. } => {
                    note(format!("call {} has {}..{}", exchange.id, run.start, run.end));
                }
                Completion::Abandoned { index, .. } => {
                    note(format!("call {} abandons {index}", exchange.id));
                }
            }
        }
    }
}

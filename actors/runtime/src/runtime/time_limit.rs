//! The time limit of a program whose engine sets one, such as Slurm for an allocation.
//!
//! No task begins that by the usual time of its function would not end before it. A program with
//! durable calls then ends in order, in time for the tasks that run and for what ends with the
//! program. In a program without them the calls that have tasks left fail, in time for the program
//! to use the results that it has.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use fiber_core::rounded;
use tokio::time::sleep;

use super::Runtime;
use super::drain::{DrainCause, Unfit};

/// Time for the last outcomes to be recorded, for the children to end, and for what a program
/// without durable calls does with its results.
const RESERVE: Duration = Duration::from_secs(10);
/// How often the runtime compares the time that is left with that of the tasks.
const INTERVAL: Duration = Duration::from_millis(500);

/// Watches the time limit of this program, if there is one. Call it on the runtime's thread.
pub(super) fn watch(runtime: &'static Runtime) {
    let Some(end) = runtime.backend.ends_at() else { return };
    if !runtime.is_time_limit_watched.swap(true, Ordering::AcqRel) {
        fiber_core::spawn_local(end_in_time(runtime, end));
    }
}

async fn end_in_time(runtime: &'static Runtime, end: SystemTime) {
    let left = || end.duration_since(SystemTime::now()).unwrap_or_default();
    let mut is_announced = false;
    loop {
        let is_durable = runtime.has_durable_calls();
        if is_durable && is_near(left(), usual_time(runtime)) {
            runtime.drain(DrainCause::TimeLimit, left().saturating_sub(RESERVE)).await;
            runtime.end_to_be_continued().await;
        }
        let unfit = if is_durable { Unfit::Wait } else { Unfit::Fail };
        let for_tasks = left().saturating_sub(RESERVE);
        let hooks = runtime.drain_hooks();
        hooks.iter().for_each(|hook| hook.set_time_left(for_tasks, unfit));
        drop(hooks);
        if for_tasks.is_zero() && !is_announced {
            is_announced = true;
            tracing::warn!(
                "this program is killed in {}, at its time limit; `Pool::durable` would keep its \
                 results",
                rounded(left())
            );
        }
        sleep(INTERVAL).await;
    }
}

/// Returns the usual time of the fastest function that has tasks to be recorded.
fn usual_time(runtime: &Runtime) -> Duration {
    let hooks = runtime.drain_hooks();
    hooks.iter().filter_map(|hook| hook.usual_time()).min().unwrap_or_default()
}

/// Returns whether a task that begins now might not end in time.
fn is_near(left: Duration, usual_time: Duration) -> bool {
    left <= usual_time + RESERVE + INTERVAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_tasks_end_a_program_earlier() {
        let seconds = Duration::from_secs;
        assert!(!is_near(seconds(60), seconds(40)));
        assert!(is_near(seconds(60), seconds(50)));
        assert!(!is_near(seconds(60), Duration::ZERO));
        assert!(is_near(Duration::ZERO, Duration::ZERO));
    }
}

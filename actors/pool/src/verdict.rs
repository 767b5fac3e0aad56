//! The judgement of a worker's exit.
//!
//! `ChildLife` of the runtime decides why a process has ended. Here that becomes the reason of the
//! worker's end, whose fault it is, and what the pool learns from it.

use fiber_core::{Exit, ExitReason};

use super::scheduler::Retirement;

const SIGTERM: i32 = 15;
pub(super) const SIGKILL: i32 = 9;

/// The life of a worker until its exit, as its pool knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    pub(crate) lived: Lived,
    /// Why it got no more tasks.
    pub(crate) retiring: Option<Retirement>,
    /// Whether it has reported that SIGTERM asked it to end.
    pub(crate) terminating: bool,
}

/// How far a worker has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lived {
    /// It was never ready.
    #[default]
    NotReady,
    /// It was ready for a moment and had no task, and no other worker has come further.
    Unused,
    /// It had no task, but it or another worker could have had one.
    Ready,
    /// It was given a task.
    WithTask,
}

/// The judgement of a worker's exit.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// The exit, with the reason of the worker's end.
    pub(crate) exit: Exit,
    pub(crate) fault: Fault,
    pub(crate) lesson: Lesson,
    /// Whether the end is no death.
    pub(crate) is_expected: bool,
}

/// The one at fault for a worker's end. Tasks beyond their time limit are at fault unless the pool
/// is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The pool has asked for it.
    Pool,
    /// Something outside of the program.
    Outside,
    /// Its host, or a task of any worker there.
    Host,
    /// The worker itself: a task that it ran.
    Worker,
}

/// The lesson about all workers of a pool from the end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lesson {
    Nothing,
    /// They work: this one had a task.
    HadTask,
    /// They work: one of them was ready for a while, or had a task.
    Lives,
    /// They may be impossible to start.
    StartFailed,
    /// They may die before they have a task.
    DiedUnused,
}

/// Judges the exit of a worker's process.
pub(crate) fn judge(mut exit: Exit, life: Life) -> Verdict {
    exit.reason = displaced(exit.reason, life.terminating);
    let is_disruption = exit.reason.is_disruption();
    let fault = match &exit.reason {
        ExitReason::TaskCancelled | ExitReason::Shutdown => Fault::Pool,
        _ if is_disruption => Fault::Outside,
        ExitReason::HostEnded { reason, .. } if **reason != ExitReason::OutOfMemory => Fault::Host,
        _ => Fault::Worker,
    };
    let is_expected = is_disruption
        || exit.reason.is_normal()
        || exit.reason == ExitReason::TaskCancelled
        || life.retiring == Some(Retirement::Superfluous);
    let was_asked =
        matches!(life.retiring, Some(Retirement::Superfluous | Retirement::Terminating));
    let lesson = match life.lived {
        Lived::WithTask => Lesson::HadTask,
        _ if is_disruption || was_asked => Lesson::Nothing,
        Lived::NotReady => Lesson::StartFailed,
        Lived::Unused => Lesson::DiedUnused,
        Lived::Ready => Lesson::Lives,
    };
    if lesson == Lesson::StartFailed {
        exit.reason = exit.start_failure();
    }
    Verdict { exit, fault, lesson, is_expected }
}

/// Returns [`ExitReason::Terminated`] for the end of a worker that SIGTERM asked to end, and the
/// reason itself for any other. A worker that reports the signal (`terminating`) then ends in
/// order, or is killed by those who sent it, or its machine is gone. It may also crash meanwhile.
fn displaced(reason: ExitReason, terminating: bool) -> ExitReason {
    match reason {
        ExitReason::Signal(SIGTERM) => ExitReason::Terminated,
        ExitReason::Normal
        | ExitReason::Signal(SIGKILL)
        | ExitReason::LinkLost(_)
        | ExitReason::HeartbeatLost(_)
            if terminating =>
        {
            ExitReason::Terminated
        }
        ExitReason::HostEnded { host, reason } => {
            ExitReason::HostEnded { host, reason: Box::new(displaced(*reason, terminating)) }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_worker_means_one_thing_to_tasks_pool_and_users() {
        use ExitReason::{LinkLost, Normal, NotStarted, OutOfMemory, Shutdown, Signal};
        use ExitReason::{TaskCancelled, Terminated};
        use Fault::{Host, Outside, Pool, Worker};
        use Lesson::{DiedUnused, HadTask, Lives, Nothing, StartFailed};

        let evicted = || ExitReason::Evicted("drained".into());
        let cut = || LinkLost("cut".into());
        let host = |reason| ExitReason::HostEnded { host: "h".into(), reason: Box::new(reason) };
        let starts = Life::default();
        let [unused, ready, used] = [Lived::Unused, Lived::Ready, Lived::WithTask]
            .map(|lived| Life { lived, ..Life::default() });
        let retires = |retiring, life| Life { retiring: Some(retiring), ..life };
        let in_lost_host = |life| retires(Retirement::HostEnded, life);
        let superfluous = |life| retires(Retirement::Superfluous, life);
        let told = |life| Life { terminating: true, ..retires(Retirement::Terminating, life) };
        let both = Life { terminating: true, ..superfluous(used) };
        let failed = NotStarted("it was killed by signal 9 (SIGKILL)".into());
        // An exit after a life: the reason, whose fault it is, what the pool learns, and whether it
        // was expected.
        let table = [
            (Signal(9), starts, failed, Worker, StartFailed, false),
            (NotStarted("no".into()), starts, NotStarted("no".into()), Worker, StartFailed, false),
            (Signal(15), starts, Terminated, Outside, Nothing, true),
            // It dies.
            (Signal(11), unused, Signal(11), Worker, DiedUnused, false),
            (Signal(11), ready, Signal(11), Worker, Lives, false),
            (Signal(11), used, Signal(11), Worker, HadTask, false),
            // With its host.
            (host(Signal(9)), in_lost_host(unused), host(Signal(9)), Host, DiedUnused, false),
            (host(Signal(9)), in_lost_host(used), host(Signal(9)), Host, HadTask, false),
            (host(OutOfMemory), used, host(OutOfMemory), Worker, HadTask, false),
            (host(cut()), used, host(cut()), Outside, HadTask, true),
            // From outside.
            (evicted(), used, evicted(), Outside, HadTask, true),
            (Signal(15), used, Terminated, Outside, HadTask, true),
            // After it has reported SIGTERM.
            (Normal, told(used), Terminated, Outside, HadTask, true),
            (Signal(9), told(unused), Terminated, Outside, Nothing, true),
            (cut(), both, Terminated, Outside, HadTask, true),
            (host(Signal(9)), told(used), host(Terminated), Outside, HadTask, true),
            (Signal(11), told(unused), Signal(11), Worker, Nothing, false),
            (Signal(11), told(used), Signal(11), Worker, HadTask, false),
            // The pool has asked for it.
            (Shutdown, ready, Shutdown, Pool, Lives, true),
            (TaskCancelled, used, TaskCancelled, Pool, HadTask, true),
            (Normal, unused, Normal, Worker, DiedUnused, true),
            (Normal, used, Normal, Worker, HadTask, true),
            (Normal, superfluous(unused), Normal, Worker, Nothing, true),
            (Signal(11), superfluous(used), Signal(11), Worker, HadTask, true),
        ];
        for (exit, life, reason, fault, lesson, is_expected) in table {
            let of = format!("{exit:?} after {life:?}");
            let verdict = judge(Exit::new(exit, Vec::new()), life);
            assert_eq!((&verdict.exit.reason, verdict.fault), (&reason, fault), "{of}");
            assert_eq!((verdict.lesson, verdict.is_expected), (lesson, is_expected), "{of}");
        }
    }
}

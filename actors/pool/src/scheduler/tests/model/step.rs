//! The events of a pool, as the model draws them.

use proptest::prelude::*;

use super::super::{OUTCOME, Order};

/// An event of a pool. A `usize` selects one of the calls, workers or tasks that exist.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Begin {
        chunk: u32,
        deaths: u32,
        timeouts: u32,
        retries: u32,
        order: Order,
    },
    /// The feeder adds tasks to the open block.
    Prepare {
        call: usize,
        tasks: u64,
    },
    /// The feeder adds tasks to the open block and submits it.
    Submit {
        call: usize,
        tasks: u64,
    },
    FinishFeeding {
        call: usize,
    },
    /// A caller performs an effect. Its answer is then on its way.
    Perform {
        question: usize,
    },
    /// An answer reaches the scheduler.
    Answer {
        answer: usize,
    },
    /// Values take more or less memory.
    Memory {
        room: u64,
    },
    Join {
        threads: u64,
        quota: Option<u64>,
    },
    Complete {
        worker: usize,
        first: usize,
        tasks: usize,
        failed: bool,
    },
    /// An outcome from a worker that is gone, or that sends it a second time.
    Stale {
        worker: u64,
        call: u64,
        first: u64,
    },
    Return {
        worker: usize,
        tasks: usize,
    },
    Lose {
        worker: usize,
        planned: bool,
    },
    /// SIGTERM asks a worker to end.
    Terminate {
        worker: usize,
    },
    /// A task runs past its timeout, and its worker is killed.
    TimeOut {
        worker: usize,
        task: usize,
    },
    /// The caller takes up to `tasks` outcomes.
    Take {
        call: usize,
        tasks: usize,
    },
    Cancel {
        call: usize,
    },
    Retirement,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1u32..5, 1u32..4, 1u32..3, 0u32..2, order()).prop_map(
            |(chunk, deaths, timeouts, retries, order)| {
                Step::Begin { chunk, deaths, timeouts, retries, order }
            }
        ),
        3 => (any::<usize>(), prop_oneof![4 => 1u64..30, 1 => 64u64..500])
            .prop_map(|(call, tasks)| Step::Submit { call, tasks }),
        2 => (any::<usize>(), 1u64..9).prop_map(|(call, tasks)| Step::Prepare { call, tasks }),
        1 => any::<usize>().prop_map(|call| Step::FinishFeeding { call }),
        6 => any::<usize>().prop_map(|question| Step::Perform { question }),
        6 => any::<usize>().prop_map(|answer| Step::Answer { answer }),
        1 => prop_oneof![Just(0), Just(u64::MAX), 0..20 * OUTCOME]
            .prop_map(|room| Step::Memory { room }),
        2 => (1u64..4, proptest::option::of(1u64..20))
            .prop_map(|(threads, quota)| Step::Join { threads, quota }),
        8 => (any::<usize>(), any::<usize>(), 1usize..8, proptest::bool::weighted(0.2))
            .prop_map(|(worker, first, tasks, failed)| {
                Step::Complete { worker, first, tasks, failed }
            }),
        1 => (0u64..20, 0u64..4, 0u64..60)
            .prop_map(|(worker, call, first)| Step::Stale { worker, call, first }),
        1 => (any::<usize>(), 1usize..5).prop_map(|(worker, tasks)| Step::Return { worker, tasks }),
        2 => (any::<usize>(), any::<bool>())
            .prop_map(|(worker, planned)| Step::Lose { worker, planned }),
        1 => any::<usize>().prop_map(|worker| Step::Terminate { worker }),
        1 => (any::<usize>(), any::<usize>())
            .prop_map(|(worker, task)| Step::TimeOut { worker, task }),
        3 => (any::<usize>(), 1usize..8).prop_map(|(call, tasks)| Step::Take { call, tasks }),
        1 => any::<usize>().prop_map(|call| Step::Cancel { call }),
        1 => Just(Step::Retirement),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Together), Just(Order::Tasks), Just(Order::Arrival)]
}

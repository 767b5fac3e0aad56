//! Rings.

use std::time::Duration;

use fiber::error::{RankActivity, RingEndReason, RingProblem};
use fiber::supervisor::Backoff;
use fiber::{Error, Reduction, Ring, RingNode};
use fiber_core::wait_for_kill;
use fiber_world::{count, counted, die, nap};
use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::ground::Ground;

/// How long a rank waits for the others.
const PATIENCE: Duration = Duration::from_secs(60);

/// The work of a ring.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Plan {
    rounds: u64,
    length: usize,
    /// The number of rounds between two checkpoints.
    interval: u64,
}

impl Plan {
    fn draw(ground: &mut Ground) -> Plan {
        let length = if ground.happens(32) { 5000 } else { ground.items(40) as usize };
        Plan { rounds: ground.items(20), length, interval: ground.rng.u64(1..4) }
    }

    fn first_state(&self) -> Vec<i64> {
        (0..self.length as i64).collect()
    }

    /// Returns the state of each rank after all rounds.
    fn last_state(&self, size: usize) -> Vec<i64> {
        let size = size as i64;
        let next = |state: i64| (size * state + size * (size - 1) / 2) % 1009;
        let last = |first| (0..self.rounds).fold(first, |state, _| next(state));
        self.first_state().into_iter().map(last).collect()
    }
}

/// Works from the last checkpoint on, and compares what the ranks exchange.
fn work(mut node: RingNode, plan: Plan) -> Result<Vec<i64>, Error> {
    let rank = node.rank();
    let restored = node.restored::<(usize, u64, Vec<i64>)>()?;
    let (of_rank, first, mut state) = restored.unwrap_or_else(|| (rank, 0, plan.first_state()));
    assert_eq!(of_rank, rank, "a rank has the checkpoint of another one");
    let all = node.all_gather(&[first as i64])?;
    assert!(all.iter().all(|other| *other == first as i64), "the ranks continue from {all:?}");
    if rank == 0 {
        count("continued from", first);
        let is_common =
            |round: &u64| counted("continued from", *round) + counted("common", *round) > 0;
        let later = (first + 1..=plan.rounds).find(is_common);
        assert_eq!(later, None, "a ring goes back to {first} from a later checkpoint");
    }
    if first == 0 {
        // A ring whose rank dies before its first checkpoint fails.
        node.checkpoint(&(rank, 0, &state))?;
        node.barrier()?;
        count("ready", 0);
    }
    for round in first..plan.rounds {
        nap(Duration::from_millis(200));
        state = exchange(&mut node, round, &state)?;
        if (round + 1) % plan.interval == 0 {
            node.checkpoint(&(rank, round + 1, &state))?;
            count("taken", round + 1);
        }
    }
    Ok(state)
}

/// Lets each kind of data go round. Returns the next state.
fn exchange(node: &mut RingNode, round: u64, state: &[i64]) -> Result<Vec<i64>, Error> {
    let (rank, size, root) = (node.rank(), node.size(), round as usize % node.size());
    let mut sums: Vec<i64> = state.iter().map(|number| number + rank as i64).collect();
    node.all_reduce(&mut sums, Reduction::Sum)?;
    node.send_right(&(round, rank))?;
    node.send((rank + 2) % size, &sums[..1])?;
    assert_eq!(node.recv_left::<(u64, usize)>()?, (round, node.left()));
    assert_eq!(node.recv::<Vec<i64>>((rank + 2 * size - 2) % size)?, sums[..1]);
    let mut copy = if rank == root { sums.clone() } else { vec![0; sums.len()] };
    node.broadcast(root, &mut copy)?;
    assert_eq!(copy, sums, "a broadcast from {root}");
    let segment = node.segment(sums.len());
    assert_eq!(node.scatter(root, &copy)?, sums[segment], "a scatter from {root}");
    assert_eq!(node.all_gather(&sums)?, sums.repeat(size));
    Ok(sums.into_iter().map(|sum| sum % 1009).collect())
}

/// A ring with checkpoints survives deaths of ranks and the loss of links, and its result is that of
/// a ring to which nothing happens.
pub(super) fn rings(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let (size, plan) = (ground.processes(), Plan::draw(ground));
        let ring = Ring::builder().size(size).timeout(PATIENCE);
        let run = ring.intensity(u32::MAX, Duration::from_secs(1)).try_run(work, plan);
        while counted("ready", 0) < size as u64 {
            std::thread::sleep(Duration::from_millis(20));
        }
        nap(Duration::from_secs(2));
        let is_taken = |round: &u64| counted("taken", *round) == size as u64;
        let taken = (1..=plan.rounds).rev().find(is_taken);
        // The last one arrives.
        std::thread::sleep(Duration::from_millis(50));
        if let Some(round) = taken {
            count("common", round);
        }
        let loses_links = ground.happens(128);
        let storm = if loses_links { ground.storm() } else { ground.storm_of_processes() };
        // Where messages stall all the time, links between ranks never last.
        nap(Duration::from_secs(30));
        ground.wait_for_calm(storm);
        match run.wait() {
            Ok(states) => assert_eq!(states, vec![plan.last_state(size); size]),
            // Messages between two ranks may have vanished.
            Err(Error::Ring { problem: RingProblem::TimedOut { .. }, .. }) if loses_links => {}
            Err(other) => return Err(other.into()),
        }
        Ok(())
    })
}

/// A mistake of a rank's function.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Mistake {
    /// It dies, before or after a checkpoint.
    Dies(bool),
    Fails,
    /// It makes another call than the others.
    Differs,
    Returns,
    Hangs,
}

/// Makes a mistake at one rank.
fn err(mut node: RingNode, (culprit, mistake): (usize, Mistake)) -> Result<(), Error> {
    nap(Duration::from_millis(100));
    // A rank that has never sent anything cannot tell others that it returns.
    node.barrier()?;
    if let Mistake::Dies(true) = mistake {
        node.checkpoint(&())?;
        // The checkpoints of those that do not die arrive.
        std::thread::sleep(Duration::from_secs(1));
    }
    if node.rank() == culprit {
        match mistake {
            Mistake::Dies(_) => {
                count("deaths", 0);
                die()
            }
            Mistake::Fails => return Err(Error::system("the rank fails", "by its plan")),
            Mistake::Differs => drop(node.all_gather(&[1u8])?),
            Mistake::Returns => return Ok(()),
            Mistake::Hangs => wait_for_kill(),
        }
    }
    node.barrier()
}

/// Each mistake of a rank ends its ring, with an error that names it.
pub(super) fn mistakes(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let (size, restarts) = (ground.processes() + 1, ground.rng.u32(..3));
        let culprit = ground.rng.usize(..size);
        let mistake = *ground.rng.choice(MISTAKES).expect("there are some");
        let ring = Ring::builder().size(size).timeout(PATIENCE);
        let ring = ring.intensity(restarts, Duration::from_secs(600)).backoff(Backoff::none());
        let error = ring.try_run(err, (culprit, mistake)).wait().expect_err("it has a mistake");
        let names = match (mistake, &error) {
            (Mistake::Dies(is_late), Error::RankDied { rank, reason, .. }) => {
                let gives_up = matches!(reason, RingEndReason::IntensityReached { .. });
                let deaths = if is_late { 1 + u64::from(restarts) } else { 1 };
                *rank == culprit && gives_up == is_late && counted("deaths", 0) == deaths
            }
            (Mistake::Fails, Error::Task { index, .. }) => *index == culprit as u64,
            (_, Error::Ring { problem, .. }) => names(problem, mistake, culprit),
            _ => false,
        };
        assert!(names, "rank {culprit} of {size}, {mistake:?}, {restarts} restarts: {error}");
        Ok(())
    })
}

const MISTAKES: &[Mistake] = &[
    Mistake::Dies(false),
    Mistake::Dies(true),
    Mistake::Fails,
    Mistake::Differs,
    Mistake::Returns,
    Mistake::Hangs,
];

/// Returns whether a problem names the rank and its mistake.
fn names(problem: &RingProblem, mistake: Mistake, culprit: usize) -> bool {
    match (mistake, problem) {
        (Mistake::Differs, RingProblem::Mismatch { rank, other, .. }) => {
            *rank == culprit || *other == culprit
        }
        (Mistake::Returns, RingProblem::FunctionReturned { other, .. }) => *other == culprit,
        (Mistake::Hangs, RingProblem::TimedOut { limit, activities, .. }) => {
            let is_right = |rank: usize, activity: &Option<RankActivity>| match activity {
                Some(RankActivity::OwnCode) => rank == culprit,
                Some(RankActivity::Operation(_)) => rank != culprit,
                _ => false,
            };
            *limit == PATIENCE && activities.iter().enumerate().all(|(at, what)| is_right(at, what))
        }
        _ => false,
    }
}

//! Rings: what nodes do together, and what happens when one of them does not.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fiber::{Element, Error, ExitReason, FailureKind, Reduction, Ring, RingNode};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::process::{Signal, getpid, kill_process};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

fiber::test_harness!();

/// Longer than a circle of shared memory, and than a message of nng.
const LONG: usize = 700_001;

fn die() -> ! {
    kill_process(getpid(), Signal::KILL).unwrap();
    unreachable!("nobody survives that")
}

/// Dies the first time only: a file remembers it.
fn die_once(file: &Path) {
    if std::fs::OpenOptions::new().write(true).create_new(true).open(file).is_ok() {
        die()
    }
}

#[test]
fn results_come_in_rank_order_and_nodes_know_their_places() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Place {
        rank: usize,
        size: usize,
        left: usize,
        right: usize,
        members: usize,
        pid: u32,
    }
    let places = Ring::run(
        4,
        |node: RingNode| Place {
            rank: node.rank(),
            size: node.size(),
            left: node.left(),
            right: node.right(),
            members: node.members().collect::<std::collections::HashSet<_>>().len(),
            pid: std::process::id(),
        },
        (),
    );
    let places = places.wait().unwrap();
    let pids: std::collections::HashSet<u32> = places.iter().map(|place| place.pid).collect();
    assert_eq!(pids.len(), 4);
    assert!(!pids.contains(&std::process::id()));
    for (rank, place) in places.iter().enumerate() {
        assert_eq!((place.rank, place.size, place.members), (rank, 4, 4));
        assert_eq!((place.left, place.right), ((rank + 3) % 4, (rank + 1) % 4));
    }
}

#[test]
fn functions_may_be_async_take_several_arguments_and_follow_an_initialiser() {
    static SEED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    async fn add(mut node: RingNode, a: i64, b: i64) -> fiber::Result<i64> {
        let mut sum = [a + b + SEED.load(std::sync::atomic::Ordering::SeqCst) as i64];
        node.all_reduce(&mut sum, Reduction::Sum)?;
        Ok(sum[0])
    }
    let ring =
        Ring::builder().size(2).initializer(|seed: u64| SEED.store(seed, std::sync::atomic::Ordering::SeqCst), 100);
    assert_eq!(ring.try_run(add, (20, 3)).wait().unwrap(), [246, 246]);
}

#[test]
fn values_arrive_in_the_order_in_which_they_were_sent_whatever_their_size() {
    fn pass(mut node: RingNode) -> fiber::Result<bool> {
        let sizes = [0, 1, 10_000, 3_000_000, 5];
        // All send first: nobody blocks another.
        for size in sizes {
            node.send_right(&vec![node.rank() as u8; size])?;
            node.send_left(&(node.rank(), size))?;
        }
        node.send(node.rank(), "to myself")?;
        let mut right = true;
        for size in sizes {
            right &= node.recv_left::<Vec<u8>>()? == vec![node.left() as u8; size];
            right &= node.recv_right::<(usize, usize)>()? == (node.right(), size);
        }
        right &= node.recv::<String>(node.rank())? == "to myself";
        // Any rank to any other, received in another order than sent.
        for to in 0..node.size() {
            node.send(to, &format!("{} to {to}", node.rank()))?;
        }
        for from in (0..node.size()).rev() {
            right &= node.recv::<String>(from)? == format!("{from} to {}", node.rank());
        }
        Ok(right)
    }
    for size in [1, 2, 3, 5] {
        assert_eq!(Ring::builder().size(size).try_run(pass, ()).wait().unwrap(), vec![true; size], "{size} nodes");
    }
}

#[test]
fn values_and_collectives_may_be_mixed() {
    fn mix(mut node: RingNode) -> fiber::Result<u64> {
        let mut total = 0;
        for round in 0..50 {
            node.send_right(&round)?;
            let mut sum = vec![round as i64; 10_000];
            node.all_reduce(&mut sum, Reduction::Sum)?;
            node.barrier()?;
            total += node.recv_left::<u64>()? + sum[9_999] as u64;
        }
        Ok(total)
    }
    assert_eq!(Ring::builder().size(3).try_run(mix, ()).wait().unwrap(), vec![4 * 49 * 50 / 2; 3]);
}

/// What a property test has a ring do, one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Trial {
    length: usize,
    root: usize,
    how: u8,
    seed: u64,
}

const HOW: [Reduction; 5] = [Reduction::Sum, Reduction::Product, Reduction::Min, Reduction::Max, Reduction::Mean];

/// A number that a rank has at a place, small enough for sums and products of all ranks to be exact as `f32`.
trait Number: Element + PartialEq + std::fmt::Debug + Serialize + DeserializeOwned {
    fn of(value: u64) -> Self;
    fn join(values: impl Iterator<Item = Self>, how: Reduction) -> Self;
}

macro_rules! number {
    ($($type:ty)+) => {
        $(impl Number for $type {
            fn of(value: u64) -> $type {
                (value % 4) as $type
            }

            fn join(values: impl Iterator<Item = $type>, how: Reduction) -> $type {
                let values: Vec<f64> = values.map(|value| value as f64).collect();
                let joined = match how {
                    Reduction::Sum => values.iter().sum::<f64>(),
                    Reduction::Product => values.iter().product(),
                    Reduction::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
                    Reduction::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    _ => return (values.iter().sum::<f64>() as $type) / (values.len() as $type),
                };
                joined as i64 as $type
            }
        })+
    };
}

number!(f32 f64 i32 i64 u8);

fn element<T: Number>(trial: &Trial, rank: usize, at: usize) -> T {
    let mixed = (trial.seed ^ (rank as u64) << 32 ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    T::of(mixed >> 40)
}

fn array<T: Number>(trial: &Trial, rank: usize) -> Vec<T> {
    (0..trial.length).map(|at| element(trial, rank, at)).collect()
}

fn segment(length: usize, size: usize, rank: usize) -> std::ops::Range<usize> {
    let starts: Vec<usize> = (0..=size).map(|rank| rank * (length / size) + rank.min(length % size)).collect();
    starts[rank]..starts[rank + 1]
}

/// All collectives against what one process computes. Errors say what was wrong.
fn check_all<T: Number>(node: &mut RingNode, trial: &Trial) -> Result<(), String> {
    let (rank, size) = (node.rank(), node.size());
    let (root, how) = (trial.root % size, HOW[usize::from(trial.how) % HOW.len()]);
    // Products of more than a few could leave what is exact.
    let own: Vec<T> = array(trial, rank);
    let all: Vec<Vec<T>> = (0..size).map(|rank| array(trial, rank)).collect();
    let joined: Vec<T> = (0..trial.length).map(|at| T::join(all.iter().map(|array| array[at]), how)).collect();
    let wrong = |what: &str| Err(format!("{what} ({how:?}, root {root}) at rank {rank} of {size}, {trial:?}"));
    let text = |error: Error| error.to_string();

    node.barrier().map_err(text)?;
    let mut data = own.clone();
    node.broadcast(root, &mut data).map_err(text)?;
    if data != all[root] {
        return wrong("broadcast");
    }
    let mut data = own.clone();
    node.reduce(root, &mut data, how).map_err(text)?;
    if data != if rank == root { joined.clone() } else { own.clone() } {
        return wrong("reduce");
    }
    let mut data = own.clone();
    node.all_reduce(&mut data, how).map_err(text)?;
    if data != joined {
        return wrong("all_reduce");
    }
    if node.all_gather(&own).map_err(text)? != all.concat() {
        return wrong("all_gather");
    }
    if node.reduce_scatter(&own, how).map_err(text)? != joined[segment(trial.length, size, rank)] {
        return wrong("reduce_scatter");
    }
    let gathered = node.gather(root, &own).map_err(text)?;
    if gathered != if rank == root { all.concat() } else { Vec::new() } {
        return wrong("gather");
    }
    let from_root = if rank == root { own.clone() } else { Vec::new() };
    if node.scatter(root, &from_root).map_err(text)? != all[root][segment(trial.length, size, rank)] {
        return wrong("scatter");
    }
    Ok(())
}

fn check_trials(mut node: RingNode, trials: Vec<Trial>) -> Result<(), String> {
    for trial in &trials {
        match trial.seed % 5 {
            0 => check_all::<f32>(&mut node, trial)?,
            1 => check_all::<f64>(&mut node, trial)?,
            2 => check_all::<i32>(&mut node, trial)?,
            3 => check_all::<i64>(&mut node, trial)?,
            _ => check_all::<u8>(&mut node, trial)?,
        }
    }
    Ok(())
}

const PRIMES: [usize; 8] = [2, 3, 7, 31, 127, 4_099, 16_411, 65_537];

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0usize), Just(1usize), (0..PRIMES.len()).prop_map(|at| PRIMES[at]), 0usize..40, 0usize..50_000,]
}

#[test]
fn all_collectives_do_what_one_process_would_compute() {
    let trial = || {
        let parts = (lengths(), 0usize..7, any::<u8>(), any::<u64>());
        parts.prop_map(|(length, root, how, seed)| Trial { length, root, how, seed })
    };
    for size in 1..=7 {
        let mut runner = TestRunner::new(Config { cases: 2, failure_persistence: None, ..Config::default() });
        // A ring takes longer to start than a trial: each does many.
        let result = runner.run(&prop::collection::vec(trial(), 12), |trials| {
            let done = Ring::builder().size(size).try_run(check_trials, trials).wait();
            done.map(drop).map_err(|error| TestCaseError::fail(error.to_string()))
        });
        result.unwrap_or_else(|error| panic!("{size} nodes: {error}"));
    }
}

#[test]
fn arrays_longer_than_any_buffer_go_through_all_collectives() {
    for (size, seed) in [(2, 0), (3, 5), (4, 4), (3, 3)] {
        let trials = vec![Trial { length: LONG, root: 1, how: 0, seed }];
        Ring::builder().size(size).try_run(check_trials, trials).wait().unwrap();
    }
}

#[test]
fn results_are_the_same_on_all_ranks_and_in_all_runs_bit_for_bit() {
    fn reduce(mut node: RingNode, length: usize) -> fiber::Result<Vec<u32>> {
        // Sums of these depend on the order in which they are added up.
        let mut data: Vec<f32> = (0..length).map(|at| ((at * 31 + node.rank() * 17 + 1) as f32).recip()).collect();
        node.all_reduce(&mut data, Reduction::Sum)?;
        Ok(data.into_iter().map(f32::to_bits).collect())
    }
    for (size, length) in [(3, 1_000), (3, 50_000), (5, 70_001), (7, 77)] {
        let runs: Vec<_> = (0..2).map(|_| Ring::builder().size(size).try_run(reduce, length).wait().unwrap()).collect();
        let first = &runs[0][0];
        assert!(runs.iter().flatten().all(|bits| bits == first), "{size} nodes, {length} elements");
    }
}

/// Where a node of a test dies.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Phase {
    Starting,
    Before,
    InCollective,
    BetweenValues,
    After,
}

#[test]
fn a_node_that_dies_in_any_phase_ends_the_run_with_one_error_that_names_it() {
    static PHASE: std::sync::Mutex<Option<Phase>> = std::sync::Mutex::new(None);
    fn initialise(phase: Phase) {
        *PHASE.lock().unwrap() = Some(phase);
        if let Phase::Starting = phase {
            die()
        }
    }
    fn work(mut node: RingNode, phase: Phase) -> fiber::Result<()> {
        let victim = node.rank() == 1;
        if let (Phase::Before, true) = (phase, victim) {
            die()
        }
        node.barrier()?;
        if let (Phase::InCollective, true) = (phase, victim) {
            // The others are in the midst of the next one by then: it needs this rank.
            node.send_right(&())?;
            node.recv_left::<()>()?;
            die()
        }
        if let Phase::InCollective = phase {
            node.send_right(&())?;
            node.recv_left::<()>()?;
        }
        let mut data = vec![1.0f32; LONG];
        node.all_reduce(&mut data, Reduction::Sum)?;
        node.send_right(&1)?;
        if let (Phase::BetweenValues, true) = (phase, victim) {
            die()
        }
        node.recv_left::<i32>()?;
        if let Phase::BetweenValues = phase {
            node.send_left(&2)?;
            node.recv_right::<i32>()?;
        }
        if let (Phase::After, true) = (phase, victim) {
            die()
        }
        Ok(())
    }
    for phase in [Phase::Before, Phase::InCollective, Phase::BetweenValues, Phase::After] {
        let error = Ring::builder().name("mortal").size(3).try_run(work, phase).wait().unwrap_err();
        let Error::RankDied { ring, rank: 1, exit, .. } = &error else { panic!("{phase:?}: {error}") };
        assert_eq!((ring.as_str(), &exit.reason), ("mortal", &ExitReason::Signal(9)), "{phase:?}");
        assert!(error.to_string().contains("checkpoint"), "{error}");
    }
    let ring = Ring::builder().name("unborn").size(3).initializer(initialise, Phase::Starting);
    let error = ring.try_run(work, Phase::Before).wait().unwrap_err();
    assert!(matches!(&error, Error::RankDied { ring, .. } if ring == "unborn"), "{error}");
}

#[test]
fn a_killed_ring_goes_on_from_the_last_checkpoint_and_gives_the_same_result() {
    fn steps(mut node: RingNode, deaths: Option<(PathBuf, u64)>) -> fiber::Result<(Vec<u64>, u64)> {
        let (first, mut state) = node.restored::<(u64, Vec<f64>)>()?.unwrap_or((0, vec![1.0; 20_000]));
        for step in first..10 {
            if let Some((file, at)) = &deaths
                && *at == step
                && node.rank() == 2
            {
                die_once(file);
            }
            let mut joined: Vec<f64> = state.iter().map(|x| (x + node.rank() as f64).recip()).collect();
            node.all_reduce(&mut joined, Reduction::Mean)?;
            state.iter_mut().zip(joined).for_each(|(x, joined)| *x = 0.5 * *x + joined);
            if step % 2 == 1 {
                node.checkpoint(&(step + 1, &state))?;
            }
        }
        Ok((state.into_iter().map(f64::to_bits).collect(), first))
    }
    let undisturbed = Ring::builder().size(3).try_run(steps, None).wait().unwrap();
    assert!(undisturbed.iter().all(|(bits, first)| *first == 0 && *bits == undisturbed[0].0));
    for (at, from) in [(0, 0), (3, 2), (7, 6), (9, 8)] {
        let place = tempfile::tempdir().unwrap();
        let ring = Ring::builder().size(3);
        if at < 2 {
            // Nobody has taken a checkpoint yet.
            let error = ring.try_run(steps, Some((place.path().join("died"), at))).wait().unwrap_err();
            assert!(matches!(error, Error::RankDied { rank: 2, .. }), "{error}");
            continue;
        }
        let disturbed = ring.try_run(steps, Some((place.path().join("died"), at))).wait().unwrap();
        for (rank, (bits, first)) in disturbed.iter().enumerate() {
            assert_eq!(*first, from, "killed at step {at}");
            assert_eq!(*bits, undisturbed[rank].0, "killed at step {at}");
        }
    }
}

#[test]
fn a_checkpoint_that_not_all_had_taken_does_not_count() {
    fn work(mut node: RingNode, file: PathBuf) -> fiber::Result<Option<String>> {
        if let Some(state) = node.restored::<String>()? {
            return Ok(Some(state));
        }
        node.checkpoint(&format!("first of {}", node.rank()))?;
        node.barrier()?;
        if node.rank() != 1 {
            node.checkpoint("second")?;
        }
        // The others' second one has been taken.
        node.barrier()?;
        if node.rank() == 1 {
            die_once(&file);
        }
        node.barrier()?;
        Ok(None)
    }
    let place = tempfile::tempdir().unwrap();
    let states = Ring::builder().size(3).try_run(work, place.path().join("died")).wait().unwrap();
    let first: Vec<_> = (0..3).map(|rank| Some(format!("first of {rank}"))).collect();
    assert_eq!(states, first);
}

#[test]
fn restarts_are_bounded() {
    fn mortal(mut node: RingNode) -> fiber::Result<()> {
        node.checkpoint(&1)?;
        node.barrier()?;
        if node.rank() == 1 {
            die()
        }
        node.barrier()
    }
    let ring = Ring::builder().name("hopeless").size(2).intensity(2, Duration::from_secs(60));
    let error = ring.try_run(mortal, ()).wait().unwrap_err();
    let Error::RankDied { rank: 1, verdict, .. } = &error else { panic!("{error}") };
    assert!(verdict.contains("more than 2 restarts"), "{error}");
}

/// A Python that has PyTorch with its gloo backend.
fn python_with_gloo() -> Option<&'static str> {
    let has_gloo = |python: &&str| {
        let asked =
            Command::new(python).args(["-c", "import torch.distributed as d; assert d.is_gloo_available()"]).output();
        asked.is_ok_and(|done| done.status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has_gloo)
}

#[test]
fn nodes_that_start_another_framework_tell_it_where_to_meet() {
    const SUM: &str = "import torch, torch.distributed as dist
dist.init_process_group('gloo')
x = torch.tensor([float(dist.get_rank() + 1)] * 3)
dist.all_reduce(x)
print(dist.get_world_size(), x.tolist())";
    fn start(node: RingNode, python: String) -> fiber::Result<String> {
        let mut command = node.command(python);
        // Gloo's own way of finding the address of this host asks the name service, which may not know it.
        command.args(["-c", SUM]).env("GLOO_SOCKET_IFNAME", "lo");
        let done = command.output().map_err(|error| Error::Config(error.to_string()))?;
        Ok(String::from_utf8_lossy(if done.status.success() { &done.stdout } else { &done.stderr }).trim().into())
    }
    let Some(python) = python_with_gloo() else {
        // Past the harness, which shows only what failing tests print.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: no python3 here has PyTorch with gloo (`apt-get install python3-torch`)"
        );
        return;
    };
    let printed = Ring::builder().size(3).try_run(start, python.to_string()).wait().unwrap();
    assert_eq!(printed, ["3 [6.0, 6.0, 6.0]"; 3]);
}

#[test]
fn the_environment_for_other_frameworks_is_the_usual_one() {
    let told = Ring::run(2, |node: RingNode| node.environment().map(|(name, value)| (name.to_string(), value)), ());
    let told = told.wait().unwrap();
    for (rank, environment) in told.iter().enumerate() {
        let names: Vec<&str> = environment.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"]);
        assert_eq!(environment[..2], told[0][..2]);
        assert_eq!((environment[2].1.clone(), environment[3].1.as_str()), (rank.to_string(), "2"));
        assert_ne!(environment[1].1, "0");
    }
}

/// What a ring whose ranks don't agree says.
fn disagreement<A: Serialize + DeserializeOwned, M, N>(
    size: usize,
    function: impl fiber::NodeFunction<A, M, Output: fiber::TryOutput<N>>,
    args: A,
) -> String
where
    N: 'static,
{
    let ring = Ring::builder().name("odd").size(size).deadline(Duration::from_millis(700));
    match ring.try_run(function, args).wait().map(drop) {
        Err(error @ Error::Ring { .. }) => error.to_string(),
        other => panic!("not an error of the ring: {other:?}"),
    }
}

#[test]
fn different_lengths_are_an_error_that_names_ranks_and_operation() {
    for base in [4, 100_000] {
        let text = disagreement(
            3,
            |mut node: RingNode, base: usize| {
                let mut data = vec![0.0f64; base + usize::from(node.rank() == 1)];
                node.all_reduce(&mut data, Reduction::Max)
            },
            base,
        );
        assert!(text.contains("all_reduce (max) of") && text.contains("rank 1"), "{text}");
        assert!(text.contains(&format!("{base} f64")) && text.contains(&format!("{} f64", base + 1)), "{text}");
    }
}

#[test]
fn different_operations_types_and_reductions_are_errors_that_name_them() {
    let text = disagreement(
        2,
        |mut node: RingNode| match node.rank() {
            0 => node.all_reduce(&mut [1i32], Reduction::Sum),
            _ => node.barrier(),
        },
        (),
    );
    assert!(text.contains("all_reduce (sum) of 1 i32") && text.contains("barrier"), "{text}");
    let text = disagreement(
        2,
        |mut node: RingNode| match node.rank() {
            0 => node.all_reduce(&mut [1i32; 2], Reduction::Sum),
            _ => node.all_reduce(&mut [1i64], Reduction::Product),
        },
        (),
    );
    assert!(text.contains("(sum) of 2 i32") && text.contains("(product) of 1 i64"), "{text}");
}

#[test]
fn a_rank_that_never_arrives_is_named_after_the_deadline() {
    let text = disagreement(
        3,
        |mut node: RingNode| {
            if node.rank() == 2 {
                // It will be ended.
                loop {
                    std::thread::park();
                }
            }
            node.all_reduce(&mut [1.0f32; 8], Reduction::Sum)
        },
        (),
    );
    assert!(text.contains("all_reduce (sum) of 8 f32") && text.contains("rank 2 is in its own code"), "{text}");
    assert!(text.contains("ranks 0 and 1 are in"), "{text}");
}

#[test]
fn a_rank_whose_function_has_ended_is_not_waited_for_until_the_deadline() {
    let ring = Ring::builder().size(2).try_run(
        |mut node: RingNode| {
            node.barrier()?;
            match node.rank() {
                0 => Ok(()),
                _ => node.recv::<()>(0),
            }
        },
        (),
    );
    let text = ring.wait().unwrap_err().to_string();
    assert!(text.contains("the function of rank 0 has ended"), "{text}");
}

#[test]
fn a_panic_ends_the_run_and_is_told_with_its_rank() {
    let ring = Ring::builder().size(3).try_run(
        |mut node: RingNode| {
            assert!(node.rank() != 1, "not today");
            node.barrier()
        },
        (),
    );
    match ring.wait().unwrap_err() {
        Error::Task { index: 1, failure, .. } => {
            assert_eq!(failure.kind, FailureKind::Panicked);
            assert!(failure.message.contains("not today"), "{failure}");
        }
        other => panic!("{other}"),
    }
}

/// Goes on until it is killed, and then once more.
fn until_killed(mut node: RingNode, ready: PathBuf) -> fiber::Result<u32> {
    if node.restored::<()>()?.is_some() {
        return Ok(std::process::id());
    }
    node.checkpoint(&())?;
    node.barrier()?;
    std::fs::write(ready.join(node.rank().to_string()), "").unwrap();
    loop {
        node.barrier()?;
    }
}

fn wait_for_files(place: &Path, count: usize) {
    while std::fs::read_dir(place).unwrap().count() < count {
        std::thread::yield_now();
    }
}

#[test]
fn a_node_that_is_killed_from_outside_is_started_again_with_all_others() {
    let place = tempfile::tempdir().unwrap();
    let ring = Ring::builder().size(3).try_run(until_killed, place.path().to_path_buf());
    let pids = ring.started().wait().unwrap();
    assert_eq!(ring.pid(1), Some(pids[1]));
    wait_for_files(place.path(), 3);
    ring.kill(1);
    let later = ring.wait().unwrap();
    assert!(later.iter().all(|pid| !pids.contains(pid)));
}

#[test]
fn dropping_the_handle_ends_all_nodes() {
    let place = tempfile::tempdir().unwrap();
    let ring = Ring::builder().size(3).try_run(until_killed, place.path().to_path_buf());
    let pids = ring.started().wait().unwrap();
    drop(ring);
    let gone = |pid: u32| !Path::new(&format!("/proc/{pid}/exe")).exists();
    while !pids.iter().all(|pid| gone(*pid)) {
        std::thread::yield_now();
    }
}

#[test]
fn what_can_not_be_is_refused_with_its_remedy() {
    let nobody = Ring::builder().size(0).run(|_: RingNode| (), ()).wait().unwrap_err();
    assert!(matches!(nobody, Error::Invalid { what: "size", .. }), "{nobody}");
    let ranks =
        Ring::builder().name("small").size(2).run(|mut node: RingNode| node.send(2, &0).unwrap_err().to_string(), ());
    assert!(ranks.wait().unwrap().iter().all(|error| error.contains("its ranks are 0 to 1")));
}

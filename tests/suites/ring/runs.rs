//! Runs: one function on each node, and results by rank.

use std::time::Duration;

use fiber::{Error, Reduction, Ring, RingNode, error::FailureKind};
use fiber_test_support::wait::wait_until;
use serde::{Deserialize, Serialize};

#[test]
fn results_are_in_the_order_of_ranks_and_each_node_knows_its_neighbours() {
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
            members: node.addresses().collect::<std::collections::HashSet<_>>().len(),
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
fn a_function_can_be_async_take_several_arguments_and_follow_an_initializer() {
    static SEED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    async fn add(mut node: RingNode, a: i64, b: i64) -> fiber::Result<i64> {
        let mut sum = [a + b + SEED.load(std::sync::atomic::Ordering::SeqCst) as i64];
        node.all_reduce(&mut sum, Reduction::Sum)?;
        Ok(sum[0])
    }
    let ring = Ring::builder()
        .size(2)
        .initializer(|seed: u64| SEED.store(seed, std::sync::atomic::Ordering::SeqCst), 100);
    assert_eq!(ring.try_run(add, (20, 3)).wait().unwrap(), [246, 246]);
}

#[test]
fn a_rank_without_a_time_limit_sleeps_while_it_waits() {
    fn main_thread_sleeps(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('S')
    }
    let meet = |mut node: RingNode| -> fiber::Result<String> {
        if node.rank() == 1 {
            node.send(0, &std::process::id())?;
            return node.recv(0);
        }
        let waiting: u32 = node.recv(1)?;
        wait_until("the other rank sleeps", || main_thread_sleeps(waiting));
        node.send(1, "go on")?;
        Ok("it slept".to_string())
    };
    let ring = Ring::builder().size(2).timeout(Duration::MAX).try_run(meet, ());
    assert_eq!(ring.wait().unwrap(), ["it slept", "go on"]);
}

#[test]
fn a_panic_ends_the_run_with_an_error_that_has_its_rank() {
    let line = line!() + 1;
    let ring = Ring::builder().size(3).try_run(
        |mut node: RingNode| {
            assert!(node.rank() != 1, "not today");
            node.barrier()
        },
        (),
    );
    match ring.wait().unwrap_err() {
        Error::Task { index: 1, failure, function } => {
            assert_eq!(failure.kind, FailureKind::Panicked);
            let place = format!("::{{closure@{}:{line}}}", file!());
            assert!(function.ends_with(&place), "{function}");
            assert!(failure.message.contains("not today"), "{failure}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn an_invalid_size_or_rank_is_an_error_that_says_what_is_valid() {
    let empty = Ring::builder().size(0).run(|_: RingNode| (), ()).wait().unwrap_err();
    assert!(matches!(empty, Error::Invalid { method: "RingBuilder::size", .. }), "{empty}");
    let endless = Ring::builder().size(usize::MAX).run(|_: RingNode| (), ()).wait().unwrap_err();
    assert!(endless.to_string().contains("there can be 100000"), "{endless}");
    let ranks = Ring::builder()
        .name("small")
        .size(2)
        .run(|mut node: RingNode| node.send(2, &0).unwrap_err().to_string(), ());
    assert!(ranks.wait().unwrap().iter().all(|error| error.contains("its ranks are 0 to 1")));
}

//! Nodes that die, and rings that are killed.

use std::path::{Path, PathBuf};

use fiber::{Error, Reduction, Ring, RingNode, error::ExitReason};
use fiber_test_support::wait::wait_until;
use serde::{Deserialize, Serialize};

use super::{LONG, die};

/// When the victim dies.
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
    fn initialize(phase: Phase) {
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
            // The other ranks are then in the next collective, which needs this rank.
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
        let Error::RankDied { name: ring, rank: 1, exit, .. } = &error else {
            panic!("{phase:?}: {error}")
        };
        assert_eq!((ring.as_str(), &exit.reason), ("mortal", &ExitReason::Signal(9)), "{phase:?}");
        assert!(error.to_string().contains("checkpoint"), "{error}");
    }
    let ring = Ring::builder().name("unborn").size(3).initializer(initialize, Phase::Starting);
    let error = ring.try_run(work, Phase::Before).wait().unwrap_err();
    assert!(matches!(&error, Error::RankDied { name, .. } if name == "unborn"), "{error}");
}

/// Runs until it is killed. After the restart it returns.
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
    wait_until("a file of each rank", || std::fs::read_dir(place).unwrap().count() >= count);
}

#[test]
fn after_the_kill_of_one_rank_all_ranks_are_restarted() {
    let place = tempfile::tempdir().unwrap();
    let ring = Ring::builder().size(3).try_run(until_killed, place.path().to_path_buf());
    let pids = ring.started().wait().unwrap();
    assert_eq!(ring.pid(1), Some(pids[1]));
    wait_for_files(place.path(), 3);
    ring.kill_rank(1);
    let later = ring.wait().unwrap();
    assert!(later.iter().all(|pid| !pids.contains(pid)));
}

fn wait_until_gone(pids: &[u32]) {
    let is_gone = |pid: &u32| !Path::new(&format!("/proc/{pid}/exe")).exists();
    wait_until("the end of all ranks", || pids.iter().all(is_gone));
}

#[test]
fn dropping_the_handle_kills_all_nodes() {
    let place = tempfile::tempdir().unwrap();
    let ring = Ring::builder().size(3).try_run(until_killed, place.path().to_path_buf());
    let pids = ring.started().wait().unwrap();
    drop(ring);
    wait_until_gone(&pids);
}

#[test]
fn killing_a_ring_kills_all_nodes_and_ends_the_run_with_an_error() {
    let place = tempfile::tempdir().unwrap();
    let ring = Ring::builder().name("stopped").size(3);
    let ring = ring.try_run(until_killed, place.path().to_path_buf());
    let pids = ring.started().wait().unwrap();
    wait_for_files(place.path(), 3);
    ring.kill();
    let error = ring.wait().unwrap_err();
    assert!(matches!(&error, Error::Ring { name, .. } if name == "stopped"), "{error}");
    assert!(error.to_string().contains("it was killed"), "{error}");
    wait_until_gone(&pids);
}

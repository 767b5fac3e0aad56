//! Checkpoints, and runs that continue from them.

use std::path::PathBuf;
use std::time::Duration;

use fiber::{Error, Reduction, Ring, RingNode};

use super::{die, die_once};

#[test]
fn a_restarted_ring_continues_from_the_last_checkpoint_with_the_same_result() {
    fn steps(mut node: RingNode, deaths: Option<(PathBuf, u64)>) -> fiber::Result<(Vec<u64>, u64)> {
        // The socket has room for all checkpoints, so a killed rank has sent those that it took.
        let (first, mut state) =
            node.restored::<(u64, Vec<f64>)>()?.unwrap_or((0, vec![1.0; 2_000]));
        for step in first..10 {
            if let Some((file, at)) = &deaths
                && *at == step
                && node.rank() == 2
            {
                die_once(file);
            }
            let mut joined: Vec<f64> =
                state.iter().map(|x| (x + node.rank() as f64).recip()).collect();
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
            // No rank has taken a checkpoint yet.
            let error =
                ring.try_run(steps, Some((place.path().join("died"), at))).wait().unwrap_err();
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
fn a_checkpoint_counts_only_when_all_ranks_have_taken_it() {
    fn work(mut node: RingNode, file: PathBuf) -> fiber::Result<Option<String>> {
        if let Some(state) = node.restored::<String>()? {
            return Ok(Some(state));
        }
        node.checkpoint(&format!("first of {}", node.rank()))?;
        node.barrier()?;
        if node.rank() != 1 {
            node.checkpoint("second")?;
        }
        // The other ranks have taken their second checkpoint.
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
fn a_ring_that_needs_too_many_restarts_fails() {
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
    let Error::RankDied { rank: 1, reason, .. } = &error else { panic!("{error}") };
    assert!(reason.to_string().contains("more than 2 restarts"), "{error}");
}

//! Values that nodes send each other.

use std::path::PathBuf;

use fiber::{Reduction, Ring, RingNode};
use fiber_test_support::tricky::{Tricky, tricky};

use super::die_once;

#[test]
fn values_of_any_size_arrive_in_the_order_in_which_they_were_sent() {
    fn pass(mut node: RingNode) -> fiber::Result<bool> {
        let sizes = [0, 1, 10_000, 3_000_000, 5];
        // All ranks send before they receive, and do not block each other.
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
        // From each rank to each other, received in another order than sent.
        for to in 0..node.size() {
            node.send(to, &format!("{} to {to}", node.rank()))?;
        }
        for from in (0..node.size()).rev() {
            right &= node.recv::<String>(from)? == format!("{from} to {}", node.rank());
        }
        Ok(right)
    }
    for size in [1, 2, 3, 5] {
        assert_eq!(
            Ring::builder().size(size).try_run(pass, ()).wait().unwrap(),
            vec![true; size],
            "{size} nodes"
        );
    }
}

#[test]
fn values_and_collectives_can_be_mixed() {
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

#[test]
fn nested_options_and_units_arrive_unchanged() {
    type Options = Vec<Option<Option<Tricky>>>;
    fn pass(
        mut node: RingNode,
        options: Options,
        file: PathBuf,
    ) -> fiber::Result<(Options, Option<Option<()>>)> {
        if let Some(state) = node.restored::<Option<Option<()>>>()? {
            return Ok((options, state));
        }
        for option in &options {
            node.send_right(option)?;
        }
        for option in &options {
            assert_eq!(node.recv_left::<Option<Option<Tricky>>>()?, *option);
        }
        node.checkpoint(&Some(None::<()>))?;
        node.barrier()?;
        die_once(&file);
        node.barrier()?;
        unreachable!("the ring starts again")
    }
    let place = tempfile::tempdir().unwrap();
    let options = vec![None, Some(None), Some(Some(tricky()))];
    let results = Ring::builder()
        .size(2)
        .try_run(pass, (options.clone(), place.path().join("died")))
        .wait()
        .unwrap();
    assert_eq!(results, vec![(options, Some(None)); 2]);
}

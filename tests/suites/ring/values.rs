//! Values that nodes send each other.

use fiber::{Reduction, Ring, RingNode};

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

//! A ring: ranked processes fit a line to points together, each with a share of the points.

use fiber::prelude::*;

const POINTS: usize = 10_000;
const ROUNDS: u32 = 200;

/// Returns slope and intercept. Every rank of the ring runs this function.
fn fit(mut node: RingNode, rounds: u32) -> fiber::Result<[f64; 2]> {
    // After the death of a rank, all ranks go on from their last common checkpoint.
    let (first, mut line) = node.restored()?.unwrap_or((0, [0.0; 2]));
    for round in first..rounds {
        let mut gradient = gradient(line, node.rank(), node.size());
        node.all_reduce(&mut gradient, Reduction::Mean)?;
        line = [line[0] - gradient[0], line[1] - gradient[1]];
        node.checkpoint(&(round + 1, line))?;
    }
    Ok(line)
}

/// Returns the gradient of the squared error over the points of one rank.
fn gradient([slope, intercept]: [f64; 2], rank: usize, size: usize) -> [f64; 2] {
    let share = (rank..POINTS).step_by(size);
    let count = share.len() as f64;
    share.fold([0.0; 2], |sum, point| {
        let x = point as f64 / POINTS as f64;
        let error = slope * x + intercept - (3.0 * x + 1.0);
        [sum[0] + error * x / count, sum[1] + error / count]
    })
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let lines = Ring::builder()
        .name("fit")
        .size(4)
        .try_run(fit, ROUNDS)
        .wait()?; // or `.await`
    println!("slope {:.3}, intercept {:.3}", lines[0][0], lines[0][1]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Lets this test binary start processes: once in a test binary.
    fiber::test_harness!();

    #[test]
    fn all_ranks_find_the_line() {
        let lines = Ring::builder()
            .size(3)
            .try_run(fit, ROUNDS)
            .wait()
            .expect("no rank fails");
        assert_eq!(lines, vec![lines[0]; 3]);
        let [slope, intercept] = lines[0];
        assert!(
            (slope - 3.0).abs() < 0.1 && (intercept - 1.0).abs() < 0.1,
            "{lines:?}"
        );
    }
}

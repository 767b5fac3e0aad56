//! All-reduce of `f32` on a ring.

use std::time::{Duration, Instant};

use fiber::{Reduction, Ring, RingNode};

use crate::bare;
use crate::measure::{median, seconds};
use crate::table::{Row, Table};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
pub(crate) const SAMPLES: usize = 9;
pub(crate) const NODES: [usize; 2] = [2, 4];
/// The arrays: bytes, name, and how many all-reduces make one sample.
pub(crate) const SIZES: [(usize, &str, usize); 3] =
    [(KIB, "1 KiB", 500), (MIB, "1 MiB", 20), (64 * MIB, "64 MiB", 1)];

/// Seconds of one all-reduce, for each sample.
fn all_reduce(mut node: RingNode, bytes: usize, each: usize) -> fiber::Result<Vec<f64>> {
    let mut data = vec![1.0f32; bytes / size_of::<f32>()];
    let mut samples = Vec::with_capacity(SAMPLES);
    for sample in 0..=SAMPLES {
        data.fill(1.0);
        node.barrier()?;
        let start = Instant::now();
        for _ in 0..each {
            node.all_reduce(&mut data, Reduction::Max)?;
        }
        let time = start.elapsed().as_secs_f64() / each as f64;
        // The first one warms up.
        if sample > 0 {
            samples.push(time);
        }
    }
    Ok(samples)
}

pub(super) fn rings(table: &mut Table) -> anyhow::Result<()> {
    let ping = bare::unix_ping()?;
    for nodes in NODES {
        for (bytes, size, each) in SIZES {
            let samples = Ring::builder().size(nodes).try_run(all_reduce, (bytes, each)).wait()?;
            let samples = samples[0].iter().map(|time| Duration::from_secs_f64(*time)).collect();
            let time = median(samples);
            eprintln!("  {size} over {nodes}: {time:?}");
            let row = Row::new(format!("all-reduce of {size} over {nodes} nodes"), seconds(time));
            table.push(if bytes < MIB {
                // Small arrays take one step.
                row.beside("bare", seconds(ping)).at_most(2.0, "bare")
            } else {
                row.at_most(1.0, "Open MPI").at_most(1.0, "gloo")
            });
        }
    }
    Ok(())
}

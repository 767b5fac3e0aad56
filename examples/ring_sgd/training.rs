//! Training by stochastic gradient descent, the gradient of each batch in shards.

use std::ops::Range;

use fastrand::Rng;
use fiber::{Reduction, RingNode};
use serde::{Deserialize, Serialize};

use super::digits::Split;
use super::network::Network;

/// The parameters of a training.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) epochs: usize,
    pub(crate) batch: usize,
    pub(crate) rate: f32,
    pub(crate) hidden: usize,
    pub(crate) seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { epochs: 20, batch: 60, rate: 0.5, hidden: 32, seed: 7 }
    }
}

/// The result of a training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trained {
    pub(crate) weights: Vec<f32>,
    /// The mean loss over this rank's shards, for each epoch.
    pub(crate) losses: Vec<f32>,
    /// The fraction of the test images that are classified correctly.
    pub(crate) accuracy: f32,
}

/// A checkpoint: the number of finished epochs, the weights, and the losses.
type Checkpoint = (usize, Vec<f32>, Vec<f32>);

/// Trains on one rank. All ranks take the same batches. Each computes the gradient of its shard,
/// and all make the same step with the sum. It calls `report` after each epoch.
pub(crate) fn train(
    node: &mut RingNode,
    data: &Split,
    plan: &Plan,
    mut report: impl FnMut(usize) -> fiber::Result<()>,
) -> fiber::Result<Trained> {
    let mut network = Network::new(data.train.images.ncols(), plan.hidden, plan.seed);
    let (first, weights, mut losses) = match node.restored::<Checkpoint>()? {
        Some(checkpoint) => checkpoint,
        None => (0, network.weights.clone(), Vec::new()),
    };
    network.weights = weights;
    for epoch in first..plan.epochs {
        let (mut loss, mut seen) = (0.0, 0);
        for batch in batches(data, plan, epoch) {
            let own = &batch[node.segment(batch.len())];
            let (mut gradient, own_loss) = network.gradient(&data.train, own);
            (loss, seen) = (loss + own_loss, seen + own.len());
            node.all_reduce(&mut gradient, Reduction::Sum)?;
            network.step(&gradient, plan.rate / batch.len() as f32);
        }
        losses.push(loss / seen.max(1) as f32);
        node.checkpoint(&(epoch + 1, &network.weights, &losses))?;
        report(epoch + 1)?;
    }
    Ok(Trained { accuracy: network.accuracy(&data.test), weights: network.weights, losses })
}

/// Trains in one process, with each batch in as many shards as a ring of this size has ranks.
pub(crate) fn train_alone(data: &Split, plan: &Plan, shards: usize) -> Vec<f32> {
    let mut network = Network::new(data.train.images.ncols(), plan.hidden, plan.seed);
    for epoch in 0..plan.epochs {
        for batch in batches(data, plan, epoch) {
            let shard = |rank| &batch[segment(batch.len(), shards, rank)];
            let mut gradient = network.gradient(&data.train, shard(0)).0;
            for rank in 1..shards {
                let other = network.gradient(&data.train, shard(rank)).0;
                gradient.iter_mut().zip(other).for_each(|(sum, other)| *sum += other);
            }
            network.step(&gradient, plan.rate / batch.len() as f32);
        }
    }
    network.weights
}

/// As [`RingNode::segment`].
fn segment(length: usize, size: usize, rank: usize) -> Range<usize> {
    let start = |rank: usize| rank * (length / size) + rank.min(length % size);
    start(rank)..start(rank + 1)
}

/// Returns the images of each batch of an epoch, shuffled by the seed.
fn batches(data: &Split, plan: &Plan, epoch: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..data.train.labels.len()).collect();
    Rng::with_seed(plan.seed ^ (epoch as u64 + 1) << 32).shuffle(&mut order);
    order.chunks(plan.batch).map(<[usize]>::to_vec).collect()
}

/// Returns a random number from `-limit` to `limit`.
pub(crate) fn small(random: &mut Rng, limit: f32) -> f32 {
    limit * (2.0 * random.f32() - 1.0)
}

//! The `ring_sgd` example: a ring trains the same weights as one process.

use fiber::{Ring, RingNode};

#[path = "../../examples/ring_sgd/digits.rs"]
mod digits;
#[path = "../../examples/ring_sgd/network.rs"]
mod network;
#[path = "../../examples/ring_sgd/training.rs"]
mod training;

use training::{Plan, Trained, train, train_alone};

const EPOCHS: usize = 12;

fn plan() -> Plan {
    Plan { epochs: EPOCHS, ..Plan::default() }
}

fn work(mut node: RingNode) -> anyhow::Result<Trained> {
    let data = digits::uci()?;
    Ok(train(&mut node, &data, &plan(), |_| Ok(()))?)
}

#[test]
fn a_ring_trains_the_same_weights_as_one_process_with_the_same_batches() {
    let data = digits::uci().unwrap();
    for size in [1, 2, 3] {
        let trained = Ring::builder().size(size).try_run(work, ()).wait().unwrap();
        let alone = train_alone(&data, &plan(), size);
        for (rank, one) in trained.iter().enumerate() {
            assert!(one.weights == alone, "rank {rank} of {size} has different weights");
            assert!(
                one.losses.last() < one.losses.first(),
                "rank {rank} of {size} does not learn: {:?}",
                one.losses
            );
            assert!(
                one.accuracy > 0.85,
                "rank {rank} of {size} has an accuracy of {}",
                one.accuracy
            );
        }
    }
}

#[test]
fn mnist_is_read_in_idx_format() {
    let place = tempfile::tempdir().unwrap();
    let head = |dimensions: &[u32]| {
        let mut bytes = vec![0, 0, 8, dimensions.len() as u8];
        dimensions.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
        bytes
    };
    for (name, count) in [("train", 3u32), ("t10k", 1)] {
        let mut images = head(&[count, 2, 2]);
        images.extend((0..count * 4).map(|pixel| pixel as u8));
        let mut labels = head(&[count]);
        labels.extend((0..count).map(|label| label as u8));
        std::fs::write(place.path().join(format!("{name}-images-idx3-ubyte")), images).unwrap();
        std::fs::write(place.path().join(format!("{name}-labels-idx1-ubyte")), labels).unwrap();
    }
    let split = digits::mnist(place.path()).unwrap();
    assert_eq!(split.train.images.dim(), (3, 4));
    assert_eq!(split.train.images[[2, 3]], 11.0 / 255.0);
    assert_eq!(split.test.labels.to_vec(), [0]);
}

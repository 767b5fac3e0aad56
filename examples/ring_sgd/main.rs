//! Data-parallel training on a ring: each rank computes the gradient of its shard of a batch, and
//! all-reduce sums them.
//!
//! ```text
//! cargo run --release -p fiber-examples --features science --example ring_sgd -- --nodes 4 --epochs 20
//! cargo run --release -p fiber-examples --features science --example ring_sgd -- --mnist path/to/mnist --hidden 128
//! ```
//!
//! Kill a node while it runs (`kill -9`): all nodes restart from the last checkpoint, and the
//! result is the same.

mod digits;
mod network;
mod training;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use digits::{Split, mnist, uci};
use fiber::prelude::*;
use fiber::sync::Value;
use indicatif::{ProgressBar, ProgressStyle};
use training::{Plan, Trained, train, train_alone};

#[derive(Parser)]
struct Options {
    /// Number of nodes in the ring [default: one for each core].
    #[arg(long)]
    nodes: Option<usize>,
    /// Number of passes over all training images.
    #[arg(long, default_value_t = Plan::default().epochs)]
    epochs: usize,
    /// Number of images in a batch, over all nodes.
    #[arg(long, default_value_t = Plan::default().batch)]
    batch: usize,
    /// Number of hidden units.
    #[arg(long, default_value_t = Plan::default().hidden)]
    hidden: usize,
    /// The learning rate.
    #[arg(long, default_value_t = Plan::default().rate)]
    rate: f32,
    /// Directory with MNIST in IDX format, to train on instead of the UCI digits.
    #[arg(long)]
    mnist: Option<PathBuf>,
    /// Also train on the same batches in this process, and compare the weights.
    #[arg(long)]
    compare: bool,
}

fn load(mnist_directory: Option<PathBuf>) -> anyhow::Result<Split> {
    mnist_directory.map_or_else(uci, |directory| mnist(&directory))
}

fn work(
    mut node: RingNode,
    plan: Plan,
    mnist_directory: Option<PathBuf>,
    done: Value<usize>,
) -> anyhow::Result<Trained> {
    let data = load(mnist_directory)?;
    let first = node.rank() == 0;
    let report = |epochs| if first { done.set(epochs).wait() } else { Ok(()) };
    Ok(train(&mut node, &data, &plan, report)?)
}

#[fiber::main]
fn main() -> anyhow::Result<()> {
    let Options { nodes, epochs, batch, hidden, rate, mnist, compare } = Options::parse();
    let plan = Plan { epochs, batch, hidden, rate, ..Plan::default() };
    // An unreadable data set is an error before the ring starts.
    let data = load(mnist.clone())?;
    let done = Value::new(0)?;
    let mut ring = Ring::builder().name("sgd");
    if let Some(nodes) = nodes {
        ring = ring.size(nodes);
    }
    let run = ring.try_run(work, (plan, mnist, done.clone()));
    let bar = ProgressBar::new(epochs as u64).with_message("epochs");
    bar.set_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}")?);
    let training = std::thread::spawn(move || run.wait());
    while !training.is_finished() {
        bar.set_position(done.get().wait()? as u64);
        std::thread::park_timeout(Duration::from_millis(50));
    }
    bar.finish_and_clear();
    let trained = training.join().expect("`RingRun::wait` does not panic")?;
    for (rank, Trained { losses, .. }) in trained.iter().enumerate() {
        let text: Vec<String> = losses.iter().map(|loss| format!("{loss:.4}")).collect();
        println!("rank {rank}: loss of each epoch: {}", text.join(" "));
    }
    println!("test accuracy: {:.2} %", 100.0 * trained[0].accuracy);
    if compare {
        let alone = train_alone(&data, &plan, trained.len());
        let other = |one: f32, other: f32| (one - other).abs() / one.abs().max(1.0);
        let most = |weights: &[f32]| {
            weights.iter().zip(&alone).map(|(a, b)| other(*a, *b)).fold(0.0, f32::max)
        };
        let most = trained.iter().map(|trained| most(&trained.weights)).fold(0.0, f32::max);
        println!("the weights differ from those of one process by {most} at most");
    }
    Ok(())
}

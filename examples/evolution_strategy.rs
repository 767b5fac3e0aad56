//! An evolution strategy learns to keep the pole on its cart upright.
//!
//! Each generation tries the current policy with many small random changes, in pairs of opposite
//! sign, and moves it towards those that did better (T. Salimans, J. Ho, X. Chen, S. Sidor and I.
//! Sutskever, "Evolution Strategies as a Scalable Alternative to Reinforcement Learning", 2017).
//! The changes are pieces of one table of random numbers that every worker has been given once, so
//! that a task's argument says only where in the table its piece begins.
//!
//! ```text
//! cargo run --release --example evolution_strategy [-- --generations 50 --plot learning.svg]
//! ```

mod cartpole;

use std::path::PathBuf;

use cartpole::{Action, CartPole, MAX_STEPS, State};
use clap::Parser;
use fiber::prelude::*;
use plotters::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Learns to balance a pole, on a pool of worker processes.
#[derive(Parser)]
struct Options {
    /// Worker processes; by default one for each core.
    #[arg(long)]
    processes: Option<usize>,
    /// How many generations to go on at most; it ends sooner when the pole is kept up.
    #[arg(long, default_value_t = 50)]
    generations: usize,
    /// Where to write a plot of the learning curve.
    #[arg(long, default_value = "learning.svg")]
    plot: PathBuf,
}

/// A weight for each number of the state: the cart is pushed to the right if the weighted sum is
/// positive.
type Policy = [f64; 4];

const TABLE: usize = 100_000;
/// Pairs of opposite changes in a generation.
const PAIRS: usize = 50;
/// How large the changes are.
const SIGMA: f64 = 0.1;
const LEARNING_RATE: f64 = 0.2;
/// Episodes that a policy is tried for.
const EPISODES: u64 = 3;

fn decide(policy: &Policy, state: &State) -> Action {
    let sum: f64 = policy.iter().zip(state).map(|(weight, number)| weight * number).sum();
    if sum > 0.0 { Action::Right } else { Action::Left }
}

/// How many steps a policy keeps the pole up, on average.
fn try_out(policy: &Policy, seed: u64) -> f64 {
    let episode = |number| {
        let mut environment = CartPole::new(seed + number);
        let mut steps = 1;
        while !environment.step(decide(policy, &environment.state())).done {
            steps += 1;
        }
        f64::from(steps)
    };
    (0..EPISODES).map(episode).sum::<f64>() / EPISODES as f64
}

/// A task: a policy is tried with a change, and with its opposite.
fn try_pair(
    table: Broadcast<Vec<f64>>,
    policy: Policy,
    place: usize,
    seed: u64,
) -> fiber::Result<(f64, f64)> {
    let table = table.get()?;
    let changed = |sign: f64| {
        std::array::from_fn(|index| policy[index] + sign * SIGMA * table[place + index])
    };
    Ok((try_out(&changed(1.0), seed), try_out(&changed(-1.0), seed)))
}

/// A normally distributed number, by the method of Box and Muller (1958).
fn normal(random: &mut impl Rng) -> f64 {
    let (radius, angle): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[fiber::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let builder = match options.processes {
        Some(processes) => Pool::builder().processes(processes),
        None => Pool::builder(),
    };
    let pool = builder.start().await?;
    let mut random = SmallRng::seed_from_u64(2017);
    let table: Vec<f64> = (0..TABLE).map(|_| normal(&mut random)).collect();
    let shared = pool.broadcast(table.clone())?;
    let mut policy = Policy::default();
    let mut curve = Vec::new();
    for generation in 1..=options.generations {
        let places: Vec<usize> =
            (0..PAIRS).map(|_| random.random_range(0..TABLE - policy.len())).collect();
        let seed = random.random::<u32>().into();
        let tasks: Vec<_> =
            places.iter().map(|place| (shared.clone(), policy, *place, seed)).collect();
        let rewards =
            pool.try_map(try_pair, tasks).progress(format!("generation {generation}")).await?;

        let all = rewards.iter().flat_map(|(up, down)| [*up, *down]);
        let mean = all.clone().sum::<f64>() / (2 * PAIRS) as f64;
        let spread = (all.map(|reward| (reward - mean).powi(2)).sum::<f64>() / (2 * PAIRS) as f64)
            .sqrt()
            .max(1e-9);
        for (place, (up, down)) in places.iter().zip(&rewards) {
            let better = (up - down) / spread;
            for (index, weight) in policy.iter_mut().enumerate() {
                *weight += LEARNING_RATE / (2.0 * PAIRS as f64 * SIGMA)
                    * better
                    * table[place + index]
                    * SIGMA;
            }
        }
        let reached = try_out(&policy, 1_000_000);
        curve.push((mean, reached));
        println!(
            "generation {generation}: {mean:.1} steps on average, {reached:.1} with what was learnt"
        );
        if reached >= f64::from(MAX_STEPS) {
            break;
        }
    }
    plot(&options.plot, &curve)?;
    println!("the learning curve is in {}", options.plot.display());
    Ok(())
}

fn plot(path: &std::path::Path, curve: &[(f64, f64)]) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, (800, 500)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(20)
        .caption("Steps that the pole stays up", ("sans-serif", 20))
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(1..curve.len().max(2), 0.0..f64::from(MAX_STEPS))?;
    chart.configure_mesh().x_desc("generation").y_desc("steps").draw()?;
    let lines = [("with what was learnt", BLUE), ("on average, with changes", RED)];
    for (line, (label, colour)) in lines.into_iter().enumerate() {
        let points = curve.iter().enumerate().map(|(generation, (mean, reached))| {
            (generation + 1, if line == 0 { *reached } else { *mean })
        });
        chart
            .draw_series(LineSeries::new(points, colour))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}

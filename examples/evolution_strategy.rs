//! An evolution strategy that learns to balance a pole on a cart.
//!
//! Each generation evaluates the current policy with many small random perturbations, in pairs of
//! opposite sign, and moves it towards the better ones (T. Salimans, J. Ho, X. Chen, S. Sidor and
//! I. Sutskever, "Evolution Strategies as a Scalable Alternative to Reinforcement Learning", 2017).
//! The perturbations are slices of one table of random numbers. Each worker gets the table once, by
//! `broadcast`; a task's argument is only an offset into it.
//!
//! ```text
//! cargo run --release -p fiber-examples --features science --example evolution_strategy
//! cargo run --release -p fiber-examples --features science --example evolution_strategy \
//!     -- --generations 50 --plot learning.svg
//! ```

mod cartpole;

use std::path::PathBuf;

use cartpole::{Action, CartPole, MAX_STEPS, State};
use clap::Parser;
use fastrand::Rng;
use fiber::prelude::*;
use plotters::prelude::*;

/// Learns to balance a pole, on a pool of worker processes.
#[derive(Parser)]
struct Options {
    /// Worker processes (default: one a core).
    #[arg(long)]
    processes: Option<usize>,
    /// Generations at most. The program ends earlier when the pole stays up.
    #[arg(long, default_value_t = 50)]
    generations: usize,
    /// File for a plot of the learning curve (SVG).
    #[arg(long, default_value = "learning.svg")]
    plot: PathBuf,
}

/// A weight for each number of the state. A positive weighted sum pushes the cart to the right.
type Policy = [f64; 4];

const TABLE: usize = 100_000;
/// Pairs of opposite perturbations in a generation.
const PAIRS: usize = 50;
/// Standard deviation of the perturbations.
const SIGMA: f64 = 0.1;
const LEARNING_RATE: f64 = 0.2;
/// Episodes in which a policy is evaluated.
const EPISODES: u64 = 3;

fn decide(policy: &Policy, state: &State) -> Action {
    let sum: f64 = policy.iter().zip(state).map(|(weight, number)| weight * number).sum();
    if sum > 0.0 { Action::Right } else { Action::Left }
}

/// Returns the mean number of steps for which a policy keeps the pole up.
fn evaluate(policy: &Policy, seed: u64) -> f64 {
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

/// Evaluates a policy with a perturbation, and with its opposite. This is the pool's task.
fn evaluate_pair(
    table: Broadcast<Vec<f64>>,
    policy: Policy,
    offset: usize,
    seed: u64,
) -> fiber::Result<(f64, f64)> {
    let table = table.get()?;
    let perturbed = |sign: f64| {
        std::array::from_fn(|index| policy[index] + sign * SIGMA * table[offset + index])
    };
    Ok((evaluate(&perturbed(1.0), seed), evaluate(&perturbed(-1.0), seed)))
}

/// Returns a normally distributed number (Box and Muller, 1958).
fn normal(random: &mut Rng) -> f64 {
    let (radius, angle): (f64, f64) = (random.f64(), random.f64());
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
    let mut random = Rng::with_seed(2017);
    let table: Vec<f64> = (0..TABLE).map(|_| normal(&mut random)).collect();
    let shared = pool.broadcast(table.clone())?;
    let mut policy = Policy::default();
    let mut curve = Vec::new();
    for generation in 1..=options.generations {
        let offsets: Vec<usize> =
            (0..PAIRS).map(|_| random.usize(0..TABLE - policy.len())).collect();
        let seed = u64::from(random.u32(..));
        let tasks: Vec<_> =
            offsets.iter().map(|offset| (shared.clone(), policy, *offset, seed)).collect();
        let rewards =
            pool.try_map(evaluate_pair, tasks).progress(format!("generation {generation}")).await?;

        let all = rewards.iter().flat_map(|(up, down)| [*up, *down]);
        let mean = all.clone().sum::<f64>() / (2 * PAIRS) as f64;
        let spread = (all.map(|reward| (reward - mean).powi(2)).sum::<f64>() / (2 * PAIRS) as f64)
            .sqrt()
            .max(1e-9);
        for (offset, (up, down)) in offsets.iter().zip(&rewards) {
            let better = (up - down) / spread;
            for (index, weight) in policy.iter_mut().enumerate() {
                *weight += LEARNING_RATE / (2.0 * PAIRS as f64 * SIGMA)
                    * better
                    * table[offset + index]
                    * SIGMA;
            }
        }
        let reached = evaluate(&policy, 1_000_000);
        curve.push((mean, reached));
        println!(
            "generation {generation}: {mean:.1} steps on average, {reached:.1} with the learnt \
             policy"
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
        .caption("Steps for which the pole stays up", ("sans-serif", 20))
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(1..curve.len().max(2), 0.0..f64::from(MAX_STEPS))?;
    chart.configure_mesh().x_desc("generation").y_desc("steps").draw()?;
    let lines = [("learnt policy", BLUE), ("mean of the perturbed policies", RED)];
    for (line, (label, color)) in lines.into_iter().enumerate() {
        let points = curve.iter().enumerate().map(|(generation, (mean, reached))| {
            (generation + 1, if line == 0 { *reached } else { *mean })
        });
        chart
            .draw_series(LineSeries::new(points, color))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}

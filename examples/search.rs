//! Searches the settings with which gradient descent fits a curve best: takes results as they come,
//! and cancels the rest when more of them change little.
//!
//! ```text
//! cargo run --release -p fiber-examples --example search -- 500    # settings to try at most
//! ```

use fiber::prelude::*;
use serde::{Deserialize, Serialize};

const POINTS: usize = 400;
const STEPS: usize = 2_000;
/// The coefficients of the curve's polynomial that a setting finds.
const DEGREE: usize = 6;
/// The search ends when so many settings in a row were no better.
const PATIENCE: usize = 60;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Setting {
    rate: f64,
    momentum: f64,
    decay: f64,
}

impl Setting {
    fn draw(random: &mut fastrand::Rng) -> Setting {
        // Rates and decays differ by their magnitudes.
        let mut magnitude = |from: f64, to: f64| 10_f64.powf(from + random.f64() * (to - from));
        let (rate, decay) = (magnitude(-3.0, 0.5), magnitude(-6.0, -1.0));
        Setting { rate, decay, momentum: random.f64() }
    }
}

/// Points of a noisy curve: those to learn from, and those that judge.
#[derive(Serialize, Deserialize)]
struct Data {
    learned: Vec<(f64, f64)>,
    judging: Vec<(f64, f64)>,
}

impl Data {
    fn draw(random: &mut fastrand::Rng) -> Data {
        let mut point = || {
            let x = random.f64() * 2.0 - 1.0;
            (x, (3.0 * x).sin() + (random.f64() - 0.5) / 5.0)
        };
        let mut points = || (0..POINTS / 2).map(|_| point()).collect();
        Data { learned: points(), judging: points() }
    }
}

fn value(coefficients: &[f64; DEGREE], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

/// Returns the mean squared error on the judging points after the descent.
fn error_of(setting: Setting, data: &Data) -> f64 {
    let (mut coefficients, mut speed) = ([0.0; DEGREE], [0.0; DEGREE]);
    for _ in 0..STEPS {
        let mut gradient = coefficients.map(|coefficient| setting.decay * coefficient);
        for (x, y) in &data.learned {
            let error = value(&coefficients, *x) - y;
            let mut power = error / data.learned.len() as f64;
            for part in &mut gradient {
                *part += power;
                power *= x;
            }
        }
        for ((coefficient, speed), part) in coefficients.iter_mut().zip(&mut speed).zip(gradient) {
            *speed = setting.momentum * *speed - setting.rate * part;
            *coefficient += *speed;
        }
    }
    let squares = data.judging.iter().map(|(x, y)| (value(&coefficients, *x) - y).powi(2));
    let error = squares.sum::<f64>() / data.judging.len() as f64;
    // A descent with too large steps diverges.
    if error.is_finite() { error } else { f64::MAX }
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let most = match std::env::args().nth(1).map(|most| most.parse::<usize>()) {
        None => 500,
        Some(Ok(most)) if most > 0 => most,
        Some(_) => {
            eprintln!("usage: search [SETTINGS], where SETTINGS is a number of at least 1");
            std::process::exit(2);
        }
    };
    let mut random = fastrand::Rng::with_seed(7);
    // Each worker gets the points once.
    let pool = Pool::builder().build()?.with(Data::draw(&mut random));
    let settings: Vec<_> = (0..most).map(|_| Setting::draw(&mut random)).collect();
    let calls: Vec<_> = settings.iter().map(|setting| pool.apply(error_of, *setting)).collect();
    let (mut best, mut tried, mut unchanged) = (None, 0, 0);
    for (place, error) in fiber::as_completed(calls).wait() {
        let error = error?;
        (tried, unchanged) = (tried + 1, unchanged + 1);
        if best.is_none_or(|(_, least)| error < least) {
            println!("{tried:4} settings: error {error:.5} with {:?}", settings[place]);
            (best, unchanged) = (Some((place, error)), 0);
        }
        if unchanged == PATIENCE {
            // The calls that are left are dropped with the loop, which cancels them.
            break;
        }
    }
    println!("{tried} of {most} settings were tried");
    Ok(())
}

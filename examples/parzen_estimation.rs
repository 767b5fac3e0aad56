//! Estimates a probability density with windows of many widths: one `apply` for each width.
//!
//! The estimate at a point is the share of samples inside a window around it, divided by the
//! window's volume (E. Parzen, "On Estimation of a Probability Density Function and Mode", 1962).
//! The samples are normally distributed in two dimensions: the true density at the centre is
//! 1 / 2π ≈ 0.159.
//!
//! ```text
//! cargo run --release -p fiber-examples --example parzen_estimation
//! ```

use fastrand::Rng;
use fiber::prelude::*;

const SAMPLES: usize = 10_000;
const WIDTHS: usize = 102;

/// Returns two independent, normally distributed numbers (Box and Muller, 1958).
fn sample(random: &mut Rng) -> (f64, f64) {
    let (radius, angle): (f64, f64) = (random.f64(), random.f64());
    let radius = (-2.0 * (1.0 - radius).ln()).sqrt();
    (radius * (std::f64::consts::TAU * angle).cos(), radius * (std::f64::consts::TAU * angle).sin())
}

/// Estimates the density at the centre with a square window of this width.
fn estimate(samples: Broadcast<Vec<(f64, f64)>>, width: f64) -> fiber::Result<(f64, f64)> {
    let samples = samples.get()?;
    let inside =
        samples.iter().filter(|(x, y)| x.abs() <= width / 2.0 && y.abs() <= width / 2.0).count();
    Ok((width, inside as f64 / samples.len() as f64 / (width * width)))
}

#[fiber::main]
async fn main() -> fiber::Result<()> {
    let mut random = Rng::with_seed(1962);
    let pool = Pool::builder().start().await?;
    let samples = pool.broadcast((0..SAMPLES).map(|_| sample(&mut random)).collect())?;
    let widths = (0..WIDTHS).map(|step| 0.1 + 0.02 * step as f64);
    let estimates: Vec<_> =
        widths.map(|width| pool.try_apply(estimate, (samples.clone(), width))).collect();
    println!("true density: {:.4}", 1.0 / std::f64::consts::TAU);
    for estimate in estimates {
        let (width, density) = estimate.await?;
        println!("width {width:.2}: {density:.4}");
    }
    Ok(())
}

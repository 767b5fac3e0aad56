//! Three stages over large images, which go from worker to worker without a copy.
//!
//! ```text
//! cargo run --release -p fiber-examples --example image_pipeline -- --images 50
//! ```

use std::time::Instant;

use fiber::prelude::*;

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;

/// An image of stripes, as a camera would deliver it: one byte a pixel.
fn photograph(number: usize) -> Array<u8> {
    Array::build(WIDTH * HEIGHT, |pixels| {
        for (row, line) in pixels.chunks_exact_mut(WIDTH).enumerate() {
            line.fill(if (row / 40 + number).is_multiple_of(2) { 40 } else { 200 });
        }
    })
}

fn to_brightness(image: Array<u8>) -> Array<f32> {
    Array::build(image.len(), |brightness| {
        brightness.iter_mut().zip(&image).for_each(|(out, pixel)| *out = f32::from(*pixel) / 255.0);
    })
}

/// The difference of each pixel to the one below it.
fn find_edges(image: Array<f32>) -> Array<f32> {
    Array::build(image.len(), |edges| {
        let below = image[WIDTH..].iter();
        edges.iter_mut().zip(image.iter().zip(below)).for_each(|(edge, (pixel, below))| {
            *edge = (pixel - below).abs();
        });
    })
}

fn count_edges(edges: Array<f32>) -> usize {
    edges.iter().filter(|edge| **edge > 0.5).count() / WIDTH
}

/// Returns the number of images that the command line asks for.
fn images() -> Option<usize> {
    let mut arguments = lexopt::Parser::from_env();
    let mut images = 24;
    while let Some(argument) = arguments.next().ok()? {
        match argument {
            lexopt::Arg::Long("images") => {
                images = arguments.value().ok()?.to_str()?.parse().ok()?
            }
            _ => return None,
        }
    }
    Some(images)
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let Some(images) = images() else {
        eprintln!("usage: image_pipeline [--images NUMBER]");
        std::process::exit(2);
    };
    let pool = Pool::builder().build()?;
    let start = Instant::now();

    // The elements stay in the memory of the worker that wrote them; the next worker reads them
    // there.
    let photographs = (0..images).map(photograph);
    let bright = pool.map(to_brightness, photographs).progress("brightness").wait()?;
    let edges = pool.map(find_edges, bright).progress("edges").wait()?;
    let counts = pool.map(count_edges, edges).progress("counts").wait()?;

    let (total, time) = (counts.iter().sum::<usize>(), start.elapsed());
    // Written and read: one byte a pixel, then four, then four.
    let bytes = (images * WIDTH * HEIGHT * 2 * (1 + 4 + 4)) as f64;
    let rate = bytes / time.as_secs_f64() / 1e9;
    println!("{total} edges in {images} images: {time:.1?}, {rate:.1} GB/s");
    Ok(())
}

//! Multiplies two matrices in blocks: each block of the product is a task that takes a row of blocks
//! of the one and a column of the other. The blocks stay in shared memory, and this process sees
//! the sum of the product's diagonal alone.
//!
//! ```text
//! cargo run --release -p fiber-examples --example matrix_product -- 1024
//! ```

use fiber::prelude::*;
use fiber::{Array, Output};

/// Rows and columns of a block.
const SIZE: usize = 128;

/// Makes the block at this place of a matrix whose element `(r, c)` is `(r × a + c × b) mod 7`.
fn block(row: usize, column: usize, (a, b): (usize, usize)) -> Array<f64> {
    let element =
        |index| ((row * SIZE + index / SIZE) * a + (column * SIZE + index % SIZE) * b) % 7;
    (0..SIZE * SIZE).map(|index| element(index) as f64).collect::<Vec<_>>().into()
}

/// Multiplies a row of blocks with a column of blocks.
fn product(row: Vec<Array<f64>>, column: Vec<Array<f64>>) -> Array<f64> {
    let mut product = vec![0.0; SIZE * SIZE];
    for (left, right) in row.iter().zip(&column) {
        for (result, left) in product.chunks_mut(SIZE).zip(left.chunks(SIZE)) {
            for (factor, right) in left.iter().zip(right.chunks(SIZE)) {
                result.iter_mut().zip(right).for_each(|(sum, right)| *sum += factor * right);
            }
        }
    }
    product.into()
}

fn trace(blocks: Vec<Array<f64>>) -> f64 {
    let diagonal = |block: &Array<f64>| (0..SIZE).map(|i| block[i * SIZE + i]).sum::<f64>();
    blocks.iter().map(diagonal).sum()
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let size = std::env::args().nth(1).map_or(Ok(512), |size| size.parse::<usize>());
    let Some(blocks) = size.ok().filter(|size| *size > 0).map(|size| size.div_ceil(SIZE)) else {
        eprintln!("usage: matrix_product [SIZE], where SIZE is a number above 0");
        std::process::exit(2);
    };
    let pool = Pool::builder().build()?;
    let matrix = |factors: (usize, usize)| -> Vec<Vec<Output<Array<f64>>>> {
        let row = |row| pool.map(block, (0..blocks).map(move |column| (row, column, factors)));
        (0..blocks).map(|index| row(index).outputs()).collect()
    };
    let (left, right) = (matrix((3, 1)), matrix((1, 5)));
    let column = |column: usize| right.iter().map(|row| row[column].clone()).collect::<Vec<_>>();
    let mut diagonal = Vec::new();
    let mut others = Vec::new();
    for (place, row) in left.iter().enumerate() {
        for other in 0..blocks {
            let block = pool.apply(product, (row.clone(), column(other))).output();
            if place == other { diagonal.push(block) } else { others.push(block) }
        }
    }
    println!("trace: {}", pool.apply(trace, diagonal).wait()?);
    fiber::as_completed(others).wait().try_for_each(|(_, block)| block.map(drop))
}

//! Counts the ways to place N queens on an N × N board so that none attacks another: tasks make
//! tasks for the first rows, and each of these counts the rest by itself.
//!
//! ```text
//! cargo run --release -p fiber-examples --example queens -- 12
//! ```

use fiber::prelude::*;

/// In so many rows, each place of a queen is a task of its own.
const ROWS_OF_TASKS: usize = 2;

/// Whether a queen in this column of the next row attacks none of those in the rows before.
fn is_safe(queens: &[usize], column: usize) -> bool {
    let row = queens.len();
    queens
        .iter()
        .enumerate()
        .all(|(other_row, other)| *other != column && other.abs_diff(column) != row - other_row)
}

fn boards_with_one_more(queens: &[usize], size: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..size)
        .filter(|column| is_safe(queens, *column))
        .map(|column| queens.iter().copied().chain([column]).collect())
}

fn count(queens: Vec<usize>, size: usize) -> u64 {
    if queens.len() == size {
        return 1;
    }
    boards_with_one_more(&queens, size).map(|queens| count(queens, size)).sum()
}

fn count_with_tasks(queens: Vec<usize>, size: usize) -> fiber::Result<u64> {
    if queens.len() >= ROWS_OF_TASKS.min(size) {
        return Ok(count(queens, size));
    }
    let boards: Vec<_> = boards_with_one_more(&queens, size).map(|queens| (queens, size)).collect();
    let counts = Pool::current()?.try_map(count_with_tasks, boards).wait()?;
    Ok(counts.iter().sum())
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let size = match std::env::args().nth(1).map(|size| size.parse::<usize>()) {
        None => 10,
        Some(Ok(size)) if size <= 20 => size,
        Some(_) => {
            eprintln!("usage: queens [SIZE], where SIZE is a number up to 20");
            std::process::exit(2);
        }
    };
    let pool = Pool::builder().build()?;
    let ways = pool.try_apply(count_with_tasks, (Vec::<usize>::new(), size)).wait()?;
    println!("{ways} ways to place {size} queens");
    Ok(())
}

//! Counts the words of files with a tree of tasks: the counts of single files never come back to
//! this process's code, which asks for the sum of all alone.
//!
//! ```text
//! cargo run -p fiber-examples --example word_count -- src/lib.rs README.md
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;

use fiber::prelude::*;

type Counts = BTreeMap<String, u64>;

fn count(path: String) -> io::Result<Counts> {
    let mut counts = Counts::new();
    for word in fs::read_to_string(path)?.split(|letter: char| !letter.is_alphanumeric()) {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    counts.remove("");
    Ok(counts)
}

fn merge(mut all: Counts, other: Counts) -> Counts {
    for (word, count) in other {
        *all.entry(word).or_default() += count;
    }
    all
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let pool = Pool::builder().build()?;
    let Some(counts) = pool.try_map(count, files).reduce(merge).wait()? else {
        println!("name files to count");
        return Ok(());
    };
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (word, count) in counts.iter().take(10) {
        println!("{count:>10} {word}");
    }
    Ok(())
}

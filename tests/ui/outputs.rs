use fiber::{Output, Pool};

fn length(text: String) -> usize {
    text.len()
}

fn longest(texts: Vec<String>, least: u8) -> usize {
    texts.len().max(least.into())
}

fn refuse(pool: &Pool, number: Output<u64>) {
    let _ = pool.apply(length, number.clone());
    let _ = pool.map(length, [number.clone()]);
    let _ = pool.apply(longest, (vec![number], 1));
}

fn main() {}

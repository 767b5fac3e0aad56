//! Tasks that take the values of others.

use fiber::{Array, Error, Journal, Output, Pool, Result};
use fiber_test_support::scenario;

use super::{items, journal, note, variable};

fn leaf(x: u64) -> std::result::Result<u64, String> {
    note(format!("leaf {x}"));
    if x == 3 && variable("MENDED").is_empty() { Err("three".to_string()) } else { Ok(x / 10) }
}

fn join(one: u64, other: u64) -> u64 {
    note(format!("join {one} {other}"));
    one + other
}

fn finish(total: u64, leaves: Vec<u64>, factor: u64) -> u64 {
    note("finish");
    assert_eq!(leaves.iter().sum::<u64>(), total);
    total * factor
}

/// Sums tenths of the items in a tree.
#[scenario("graph")]
fn graph() -> Result<()> {
    let journal = if variable("KEEP").is_empty() { journal() } else { journal().keep_failures() };
    let pool = Pool::new(2)?;
    let durable = pool.durable(journal);
    let pool_of_leaves = if variable("PLAIN_LEAVES").is_empty() { &durable } else { &pool };
    let leaves = pool_of_leaves.try_map(leaf, items()).outputs();
    let mut row = leaves.clone();
    while row.len() > 1 {
        let pairs: Vec<_> = row.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        row = durable.map(join, pairs).outputs();
    }
    let total = durable.apply(finish, (row.remove(0), leaves, 2));
    match total.wait() {
        Ok(total) => println!("total {total}"),
        Err(error) => println!("failed: {error}"),
    }
    println!("recorded {}", pool.stats().tasks.recorded);
    Ok(())
}

/// Merges tenths of the items.
#[scenario("reduce")]
fn reduce() -> Result<()> {
    let pool = Pool::new(2)?;
    let total = pool.durable(journal()).try_map(leaf, items()).reduce(join).wait()?;
    println!("total {total:?} recorded {}", pool.stats().tasks.recorded);
    Ok(())
}

type Mixed = (String, Array<u32>, Vec<u64>, Array<u32>);

/// Passes large values of many kinds. The tasks that make them run for each version.
#[scenario("large graph")]
fn large_graph() -> Result<()> {
    let pool = Pool::new(2)?;
    let (makers, takers) = (
        pool.durable(journal().version(variable("VERSION"))),
        pool.durable(Journal::at(variable(crate::sweep::JOURNAL)).call("takers")),
    );
    let make = |size: usize| -> Mixed {
        note("make");
        let array = Array::from((0..size as u32).collect::<Vec<_>>());
        ("é".repeat(size), array.clone(), (0..size as u64).collect(), array)
    };
    let take = |mixed: Vec<Mixed>, array: Array<f64>| -> Array<f64> {
        note("take");
        assert!(mixed.iter().all(|(text, array, list, _)| {
            text.chars().count() == array.len() && array.len() == list.len()
        }));
        array.iter().map(|x| x + mixed.len() as f64).collect()
    };
    let array = pool.put(Array::from(vec![1.5; 100_000]))?;
    let mixed = makers.map(make, [10, 20_000, 100_000]).outputs();
    let taken: Output<Array<f64>> = takers.apply(take, (mixed, array.clone())).output();
    let sum = |array: Array<f64>| {
        note("sum");
        array.iter().sum::<f64>()
    };
    println!("sums {:?}", makers.map(sum, [taken, array]).wait()?);
    println!("recorded {}", pool.stats().tasks.recorded);
    Ok(())
}

/// Takes values with and without handles.
#[scenario("graph of handles")]
fn graph_of_handles() -> Result<()> {
    let pool = Pool::new(1)?;
    let durable = pool.durable(journal());
    let queue = fiber::Queue::<u64>::new()?;
    let put = |x: u64, queue: Option<fiber::Queue<u64>>| x + u64::from(queue.is_some());
    let five = pool.put(5)?;
    let problem = durable.apply(put, (five.clone(), Some(queue.clone()))).wait().unwrap_err();
    assert!(matches!(problem, Error::Invalid { .. }));
    println!("argument: {problem}");
    let problem = durable.apply(put, (five.clone(), pool.put(Some(queue))?)).wait().unwrap_err();
    println!("put: {problem}");
    println!("none: {}", durable.apply(put, (five, pool.put(None)?)).wait()?);
    Ok(())
}

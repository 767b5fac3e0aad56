//! State that workers share: a map, a list, a value and a lock.
//!
//! ```text
//! cargo run -p fiber-examples --example shared_data
//! ```

use fiber::prelude::*;
use fiber::sync::{List, Lock, Map, Value};

const TEXT: &str = "the quick brown fox jumps over the lazy dog while the other dog sleeps";

fn count(word: String, counts: Map<String, u32>, longest: Value<String>) -> fiber::Result<()> {
    counts.update(&word, |count| *count.get_or_insert(0) += 1).wait()?;
    longest
        .update(move |longest| {
            if word.len() > longest.len() {
                longest.clone_from(&word);
            }
        })
        .wait()?;
    Ok(())
}

/// Reads and changes the list in two steps; the lock makes them one.
fn sign(name: String, guests: List<String>, lock: Lock) -> fiber::Result<()> {
    let _held = lock.lock().wait()?;
    let number = guests.len().wait()? + 1;
    guests.push(format!("{number}. {name}")).wait()
}

#[fiber::main]
async fn main() -> fiber::Result<()> {
    let pool = Pool::builder().processes(3).start().await?;

    let (counts, longest) = (Map::new()?, Value::new(String::new())?);
    let words: Vec<_> =
        TEXT.split(' ').map(|word| (word.to_string(), counts.clone(), longest.clone())).collect();
    pool.try_map(count, words).await?;
    for (word, count) in counts.entries().await?.into_iter().filter(|(_, count)| *count > 1) {
        println!("{word}: {count} times");
    }
    println!("one of the longest words: {}", longest.get().await?);

    let (guests, lock) = (List::new()?, Lock::new()?);
    let names = ["Ada", "Edsger", "Grace", "Robin"]
        .map(|name| (name.to_string(), guests.clone(), lock.clone()));
    pool.try_map(sign, names).await?;
    println!("{}", guests.to_vec().await?.join(", "));
    Ok(())
}

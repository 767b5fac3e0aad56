//! Several producers and consumers share one queue. Killing a consumer loses no job.
//!
//! ```text
//! cargo run -p fiber-examples --example queue
//! ```

use std::time::Duration;

use fiber::prelude::*;
use fiber::{Queue, sync::Map};

fn produce(producer: u32, jobs: Queue<String>) {
    for n in 0..20 {
        jobs.put(format!("job {n} of producer {producer}")).wait().expect("the queue is there");
    }
}

/// Takes jobs until the queue closes, and counts them.
fn consume(consumer: u32, jobs: Queue<String>, done: Map<u32, u32>) {
    while let Ok(job) = jobs.get_acknowledged().wait() {
        std::thread::sleep(Duration::from_millis(5));
        done.update(&consumer, |count| *count.get_or_insert(0) += 1)
            .wait()
            .expect("the map is there");
        job.acknowledge().wait().expect("the queue is there");
    }
}

fn main() -> fiber::Result<()> {
    fiber::init();
    let (jobs, done) = (Queue::new()?, Map::new()?);
    let consumers =
        [0, 1, 2].map(|consumer| Process::spawn(consume, (consumer, jobs.clone(), done.clone())));
    let producers = [0, 1].map(|producer| Process::spawn(produce, (producer, jobs.clone())));
    for producer in producers {
        producer.wait()?;
    }

    println!("killing a consumer while it works");
    consumers[0].kill();
    jobs.join().wait()?;
    jobs.close().wait()?;
    for (consumer, count) in done.entries().wait()? {
        println!("consumer {consumer} did {count} jobs");
    }
    for consumer in consumers.into_iter().skip(1) {
        consumer.wait()?;
    }
    Ok(())
}

//! A sweep of many tasks that is killed and started again.

use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;

use fiber::{Pool, Result};
use fiber_test_support::scenario;

use super::{items, journal, variable};
use crate::sweep::RAN;

/// The result of a task: a little work, and a result that only its argument can give.
pub(crate) fn simulate(task: u64) -> u64 {
    static RAN_FILE: OnceLock<File> = OnceLock::new();
    let file = || File::options().create(true).append(true).open(variable(RAN)).expect("it opens");
    RAN_FILE.get_or_init(file).write_all(&task.to_le_bytes()).expect("there is room");
    task.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
}

/// The name of the file in which the program writes which results it has.
pub(crate) const SEEN: &str = "TEST_SEEN";

#[scenario("sweep")]
fn sweep() -> Result<()> {
    let tasks = items()[0];
    let pool = Pool::new(2)?.durable(journal().call("sweep"));
    println!("begun");
    if variable("FORM") == "map" {
        let results = pool.map(simulate, 0..tasks).wait()?;
        assert_eq!(results.len() as u64, tasks);
        (0..).zip(results).for_each(|(task, result)| check(task, result));
    } else {
        let mut seen = File::options().create(true).append(true).open(variable(SEEN)).unwrap();
        for (task, result) in (0..).zip(pool.imap(simulate, 0..tasks)) {
            check(task, result?);
            seen.write_all(&task.to_le_bytes()).unwrap();
        }
    }
    pool.stop().wait()?;
    println!("complete");
    Ok(())
}

fn check(task: u64, result: u64) {
    assert_eq!(result, task.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17), "{task}");
}

//! The last lines of a process in a host are in errors, as those of others.

use fiber::{Error, Pool};

#[test]
fn the_last_lines_of_a_dead_worker_are_in_the_error() {
    let pool = Pool::builder().processes(2).processes_per_job(2).build().unwrap();
    let task = || {
        eprintln!("about to die");
        std::process::abort();
    };
    let error = pool.apply(task, ()).wait().unwrap_err();
    assert!(matches!(error, Error::WorkerDied { .. }), "{error}");
    assert!(error.to_string().contains("about to die"), "{error}");
}

//! Logs of tasks.

use std::io::Write;
use std::sync::{Barrier, Mutex};

use fiber::Pool;
use tracing_subscriber::EnvFilter;

/// The filter that lets through the errors of this program alone.
const ERRORS: &str = concat!(env!("CARGO_CRATE_NAME"), "=error");
/// The log of this worker.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn log_with(filter: String) {
    let filter = EnvFilter::new(filter);
    tracing_subscriber::fmt().with_writer(|| Log).with_ansi(false).with_env_filter(filter).init();
}

/// Returns the line about `subject` in this worker's log.
fn logged(subject: &str) -> String {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    let line = log.lines().find(|line| line.contains(subject));
    line.unwrap_or_else(|| panic!("nothing about {subject} in {log}")).to_string()
}

fn complain(x: u64) -> String {
    tracing::error!("item {x}.");
    logged(&format!("item {x}."))
}

async fn complain_later(x: u64) -> String {
    let ms = std::time::Duration::from_millis(1);
    tokio::time::sleep(ms).await;
    tracing::error!("item {x}.");
    logged(&format!("item {x}."))
}

#[test]
fn what_a_task_logs_has_its_pool_function_index_and_worker() {
    let builder = Pool::builder().name("grumblers").processes(2);
    let pool = builder.initializer(log_with, ERRORS.into()).build().unwrap();
    let sync = pool.map(complain, 100..120).wait().unwrap();
    let later = pool.map(complain_later, 200..220).wait().unwrap();
    for (lines, function) in [(sync, "complain"), (later, "complain_later")] {
        for (index, line) in lines.iter().enumerate() {
            let span = format!(
                "ERROR task{{pool=\"grumblers\" function=\"{}::{function}\" index={index} \
                 worker=\"worker-",
                module_path!()
            );
            let (_, worker) = line.split_once(&span).unwrap_or_else(|| panic!("{line}"));
            assert!(worker.starts_with("1\"}: ") || worker.starts_with("2\"}: "), "{line}");
        }
    }
}

#[test]
fn each_thread_of_a_worker_logs_the_index_of_its_own_task() {
    fn complain_together(x: u64) -> String {
        static BOTH_RUN: Barrier = Barrier::new(2);
        BOTH_RUN.wait();
        complain(x)
    }
    let builder = Pool::builder().processes(1).threads_per_worker(2);
    let pool = builder.initializer(log_with, ERRORS.into()).build().unwrap();
    for (index, line) in pool.map(complain_together, 0..20).wait().unwrap().iter().enumerate() {
        assert!(line.contains(&format!(" index={index} worker=\"worker-1\"}}: ")), "{line}");
    }
}

#[test]
fn a_task_that_panicked_leaves_no_span_behind() {
    fn complain_unless_zero(x: u64) -> String {
        assert!(x > 0, "zero");
        complain(x)
    }
    let builder = Pool::builder().processes(1);
    let pool = builder.initializer(log_with, ERRORS.into()).build().unwrap();
    pool.apply(complain_unless_zero, 0).wait().unwrap_err();
    let line = pool.apply(complain_unless_zero, 1).wait().unwrap();
    assert_eq!(line.matches("task{").count(), 1, "{line}");
}

#[test]
fn tasks_that_a_filter_excludes_have_no_span() {
    fn is_outside_of_spans(_: u64) -> bool {
        tracing::Span::current().is_none()
    }
    let builder = Pool::builder().processes(1);
    let pool = builder.initializer(log_with, "another_program=trace".into()).build().unwrap();
    assert!(pool.apply(is_outside_of_spans, 0).wait().unwrap());
}

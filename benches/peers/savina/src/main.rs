//! The Savina benchmarks with ractor and kameo, in one process and in two.
//!
//! ```text
//! savina-peers FRAMEWORK PROGRAM PART     # the program in a part of its size, three times
//! ```
//!
//! It prints a line of JSON, as `../protocol.py` describes it.

mod kameo_local;
#[cfg(feature = "remote")]
mod kameo_remote;
mod nodes;
mod programs;
mod ractor_cluster;
mod ractor_local;
mod stage;

use std::process::{Command, Stdio};
use std::time::Duration;

use programs::Program;

/// How often a program is measured, after it was run once.
const REPEATS: usize = 3;

/// Where the versions of all frameworks are.
const LOCK: &str = include_str!("../Cargo.lock");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [framework, name, part, node @ ..] = &*arguments else {
        return usage("there are too few arguments");
    };
    let program = part.parse().ok().and_then(|part| Program::named(name, part));
    let Some(program) = program else { return usage("there is no such program") };
    let runtime = tokio::runtime::Runtime::new().expect("it starts threads");
    let seconds: Vec<f64> = match (&**framework, node) {
        ("ractor", []) => repeat(|| runtime.block_on(ractor_local::run(&program))),
        ("kameo", []) => repeat(|| runtime.block_on(kameo_local::run(&program))),
        ("ractor_cluster", [node, rest @ ..]) => {
            return runtime.block_on(ractor_cluster::be(&program, node, rest));
        }
        #[cfg(feature = "remote")]
        ("kameo_remote", [node, ..]) => return runtime.block_on(kameo_remote::be(&program, node)),
        ("ractor_cluster" | "kameo_remote", []) => repeat(|| run_node(&arguments)),
        _ => return usage("there is no such framework"),
    };
    let version = version(framework.trim_end_matches("_remote"));
    let (count, middle) = (program.count(), median(seconds.clone()));
    println!(
        "{{\"case\": {name:?}, \"library\": {framework:?}, \"version\": {version:?}, \
         \"seconds\": {middle}, \"count\": {count}, \"rate\": {}, \"values\": {seconds:?}}}",
        count as f64 / middle
    );
}

fn usage(problem: &str) {
    eprintln!("{problem}: savina-peers FRAMEWORK PROGRAM PART");
    std::process::exit(2);
}

fn repeat(mut run: impl FnMut() -> Duration) -> Vec<f64> {
    run();
    (0..REPEATS).map(|_| run().as_secs_f64()).collect()
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Runs a program once in processes of its own, the first of which prints the seconds.
fn run_node(arguments: &[String]) -> Duration {
    let mut first = Command::new(std::env::current_exe().expect("it has a path"));
    let output = first.args(arguments).arg("0").stderr(Stdio::inherit()).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "the first process ended with {}", output.status);
    let printed = String::from_utf8_lossy(&output.stdout);
    let seconds = printed.lines().last().and_then(|line| line.trim().parse().ok());
    Duration::from_secs_f64(seconds.expect("it prints the seconds"))
}

fn version(framework: &str) -> String {
    let name = format!("name = \"{framework}\"\nversion = \"");
    let (_, rest) = LOCK.split_once(&name).unwrap_or_default();
    rest.split('"').next().unwrap_or_default().to_string()
}

//! Checks that a seed determines the effects of a state machine.

use std::process::Command;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Asks a test of another process to print the hash of its traces.
const ASKED: &str = "FIBER_TEST_TRACE";
const PREFIX: &str = "hash of the traces: ";

/// Draws a value of a strategy, which the seed determines.
pub fn drawn<S: Strategy>(seed: u64, strategy: S) -> S::Value {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    strategy.new_tree(&mut runner).expect("the strategy rejects nothing").current()
}

/// Checks that `trace` returns the same for the same seed: again, and in another process. `test`
/// is the full name of the test that calls this, with its crate.
pub fn assert_repeatable(test: &str, trace: impl Fn(u64) -> Vec<String>) {
    let mut hasher = blake3::Hasher::new();
    for seed in 0..25 {
        let once = trace(seed);
        assert_eq!(once, trace(seed), "the traces of seed {seed} differ");
        for line in once {
            hasher.update(line.as_bytes()).update(b"\n");
        }
    }
    let hash = hasher.finalize().to_hex();
    if std::env::var_os(ASKED).is_some() {
        return println!("{PREFIX}{hash}");
    }
    let (_, name) = test.split_once("::").expect("the name begins with its crate");
    let program = std::env::current_exe().expect("the test has a program");
    let mut other = Command::new(program);
    let output = other.args([name, "--exact", "--nocapture"]).env(ASKED, "1").output();
    let output = output.expect("the test runs once more");
    let text = String::from_utf8_lossy(&output.stdout);
    let theirs = text.split_once(PREFIX).map(|(_, rest)| &rest[..hash.len()]);
    assert_eq!(theirs, Some(&*hash), "the traces of another process differ:\n{text}");
}

//! The examples that promise to lose nothing, as programs that are killed.

mod bank;
#[path = "../../examples/bank/main.rs"]
mod bank_program;
mod chat;
#[path = "../../examples/chat/main.rs"]
mod chat_program;
mod http;

use std::process::ExitCode;

use fiber_test_support::{Test, run_scenario, run_tests};

fn main() -> ExitCode {
    run_scenario(|| {}).unwrap_or_else(|| run_tests(|_: &Test| false))
}

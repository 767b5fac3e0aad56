//! The command `fiber`.

use std::process::ExitCode;

fn main() -> ExitCode {
    fiber_cli::main()
}

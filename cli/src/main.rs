//! The command `fiber`.

fn main() -> std::process::ExitCode {
    fiber_cli::main()
}

//! Prints `docs/configuration.md`; `make reference` writes it.

fn main() {
    // Makes sure that the sections of backends are linked.
    fiber_backends::run_if_helper();
    print!("{}", fiber_core::Config::page());
}

//! Prints `docs/configuration.md`; `make reference` writes it.

fn main() {
    print!("{}", fiber_core::Config::page());
}

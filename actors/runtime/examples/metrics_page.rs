//! Prints `docs/metrics.md`; `make reference` writes it.

fn main() {
    print!("{}", fiber_actors::metrics_page());
}

//! Prints `docs/metrics.md`; `make reference` writes it.

fn main() {
    print!("{}", fiber_runtime::metrics_page());
}

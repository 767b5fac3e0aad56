//! The benchmarks: ten cases that guard promises, beside what the machine gives by itself.
//!
//! ```text
//! make bench                     # all cases
//! make bench ARGS="noop queue"   # some cases
//! ```
//!
//! `benches/peers` has these and more cases beside other libraries and engines.

mod bare;
mod cases;
mod measure;
mod table;

fn main() -> anyhow::Result<()> {
    // Before `init`: these processes are not fiber's.
    bare::serve_if_asked();
    fiber::init();
    cases::run(&cases::CASES)?.print()
}

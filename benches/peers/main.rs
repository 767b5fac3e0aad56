//! More benchmarks: the suite and more cases, beside other libraries, on engines, and at a large
//! scale.
//!
//! ```text
//! make bench-all                    # all cases
//! make bench-all ARGS="noop graph"  # some cases
//! ```
//!
//! For `BENCH_PEERS` and `BENCH_PYTHON` see `libraries.rs`. Cases of engines that do not answer are
//! left out: `make cluster-up` starts them.

#[path = "../suite/bare.rs"]
mod bare;
mod cases;
mod collectives;
mod libraries;
#[path = "../suite/measure.rs"]
mod measure;
#[path = "../suite/cases/mod.rs"]
mod suite;
#[path = "../suite/table.rs"]
mod table;

fn main() -> anyhow::Result<()> {
    // Before `init`: these processes are not fiber's.
    bare::serve_if_asked();
    cases::serve_if_asked();
    fiber::init();
    if let Some(answer) = cases::asked() {
        return answer();
    }
    let mut run = suite::run(suite::CASES.iter().chain(&cases::CASES))?;
    libraries::measure(&mut run.table);
    collectives::measure(&mut run.table);
    run.print()
}

//! Many workers in few containers or pods, beside as many containers or pods.

use std::time::Instant;

use fiber::Pool;
use serde::{Deserialize, Serialize};

use super::Engine;
use crate::table::{Figure, Row};

const WORKERS: usize = 32;
const IN_A_JOB: usize = 8;

/// Seconds until all workers were ready. Each is measured once: they differ by a multiple.
#[derive(Serialize, Deserialize)]
pub(super) struct Ready {
    together: f64,
    apart: f64,
}

impl Ready {
    pub(super) fn measure(engine: &dyn Engine) -> anyhow::Result<Ready> {
        let ready = |per_job: usize| -> anyhow::Result<f64> {
            engine.settle()?;
            let start = Instant::now();
            let pool = Pool::builder().processes(WORKERS).processes_per_job(per_job).build()?;
            pool.wait_until_ready().wait()?;
            let time = start.elapsed();
            pool.kill();
            pool.join().wait()?;
            Ok(time.as_secs_f64())
        };
        Ok(Ready { together: ready(IN_A_JOB)?, apart: ready(1)? })
    }

    /// The name of the other figure in the row.
    pub(super) fn others(what: &str) -> String {
        format!("{WORKERS} {what}")
    }

    /// The row, beside as many `what` with a worker each.
    pub(super) fn row(&self, what: &str) -> Row {
        let Ready { together, apart } = *self;
        eprintln!("  {WORKERS} ready: in {what} of {IN_A_JOB} {together:.3} s, alone {apart:.3} s");
        let name = format!("{WORKERS} workers ready in {what} with {IN_A_JOB} each");
        let others = Ready::others(what);
        Row::new(name, Figure::Seconds(together)).beside(others, Figure::Seconds(apart))
    }
}

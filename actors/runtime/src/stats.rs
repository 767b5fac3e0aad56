//! Statistics of this process and the processes below it, and the events of its pools.
//!
//! [`stats()`](crate::runtime::stats()) returns the statistics. Pools, queues, actors and rings
//! count anyway. A call takes about 3 µs for each worker.
//!
//! # Examples
//! ```
//! # fiber::init();
//! let pool = fiber::Pool::builder().name("squares").processes(2).build()?;
//! pool.map(|x: u64| x * x, 0..100).wait()?;
//! for pool in fiber::stats()?.report.pools {
//!     println!("{}: {} tasks done, {} wait", pool.name, pool.tasks.done, pool.tasks.waiting);
//! }
//! # Ok::<(), fiber::Error>(())
//! ```

pub use fiber_core::stats::*;

pub use crate::events::{EventStream, events};

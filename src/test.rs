//! Tests of programs: probes, paused time, and sessions within the test's process.
//!
//! - A [`Probe`] is an actor that keeps what it gets. Its address goes wherever an actor is
//!   expected, and the test says what has to arrive, and what must not.
//! - [`pause_time`] stops the time of the actors of the test's thread. Their timers (`run_later`,
//!   `run_interval`) wait until the test lets the time pass, which takes no time.
//! - [`session`] runs a program whose processes are threads, which start faster, with names, groups
//!   and statistics of its own.
//!
//! [`test_harness!`](crate::test_harness) lets a test start real processes, and [`fiber::sim`][sim]
//! plays a program in simulated worlds, with faults.
//!
#![doc = concat!("[sim]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/simulation.md")]
//!
//! # Examples
//! ```
//! # fiber::init();
//! use std::time::Duration;
//!
//! use fiber::prelude::*;
//! use fiber::test::{Probe, pause_time};
//!
//! /// Reminds somebody each day.
//! struct Reminder(Recipient<Remind>);
//!
//! #[fiber::message]
//! #[derive(Debug, PartialEq)]
//! struct Remind;
//!
//! impl Actor for Reminder {
//!     type Context = Context<Self>;
//!
//!     fn started(&mut self, context: &mut Context<Self>) {
//!         context.run_interval(DAY, |reminder, _| reminder.0.do_send(Remind));
//!     }
//! }
//!
//! const DAY: Duration = Duration::from_secs(24 * 60 * 60);
//!
//! System::new().block_on(async {
//!     let mut time = pause_time();
//!     let probe = Probe::new()?;
//!     let _reminder = Reminder(probe.recipient()).start();
//!     time.advance(DAY - Duration::from_secs(1)).await;
//!     probe.expect_none(Duration::ZERO).await?;
//!     time.advance(Duration::from_secs(1)).await;
//!     assert_eq!(probe.expect(Duration::from_secs(10)).await?, Remind);
//!     fiber::Result::<()>::Ok(())
//! })?;
//! # Ok::<(), fiber::Error>(())
//! ```

mod probe;
mod session;
mod time;

pub use self::probe::{Call, Probe};
pub use self::session::session;
pub use self::time::{PausedTime, pause_time};

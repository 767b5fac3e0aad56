//! Actors and task functions on supervised processes, started from one binary.
//!
//! A program written for one machine defines plain functions and [actix](https://docs.rs/actix)
//! actors; fiber runs them in worker processes that it supervises. A worker that dies is replaced,
//! and only its unfinished tasks run again.
//!
//! ```
//! use fiber::prelude::*;
//!
//! fn square(x: u64) -> u64 {
//!     x * x
//! }
//!
//! #[fiber::main]
//! async fn main() -> fiber::Result<()> {
//!     let pool = Pool::builder().processes(2).start().await?;
//!     assert_eq!(pool.map(square, 0..5).await?, [0, 1, 4, 9, 16]);
//!     Ok(())
//! }
//! ```
//!
//! - [`Pool`]: task functions on many processes: `apply`, `map`, `imap`, `imap_unordered`, and
//!   their `try_` forms.
//! - [`Ring`]: ranked processes that work together, with collectives and recovery from checkpoints.
//! - [`Process`]: one function in a process of its own.
//! - [`Queue`], [`Pipe`], [`sync`]: what processes share, by handles that travel.
//! - [`Supervisor`]: actix actors and processes that are restarted when they fail, as in
//!   Erlang/OTP; [`tree`] shows all.
//! - [`Config`]: how it all runs, from code, environment and `fiber.toml`.
//!
//! A task function is any `fn`, or any closure that captures nothing: its code travels as a place
//! in the binary, so all processes run the same build. [`init`] has to be the first thing that
//! `main` does; [`main`] sees to that.

pub use fiber_actors::supervisor::{self, Supervisor, Tree, tree};
pub use fiber_actors::sync;
pub use fiber_actors::{
    ActorPool, ActorPoolBuilder, Alone, Apply, AsyncManager, Blocking, Broadcast, Call, Delivery,
    Element, Elements, Get, Imap, ImapUnordered, Keep, ManagerBuilder, Map, NoSnapshots,
    NodeFunction, Pipe, PipeReceiver, PipeSender, Pool, PoolBuilder, Process, ProcessBuilder,
    ProcessHandle, Put, Queue, Reduction, RemoteAddr, RemoteMessage, RemoteRecipient, Rendezvous,
    Reply, Ring, RingBuilder, RingNode, RingRun, Routing, Snapshot, Snapshots, SyncManager,
    active_children, init, suspend_progress,
};
pub use fiber_core::{
    Arguments, Awaited, Conclusion, Conclusions, Config, Diverging, Error, Exit, ExitReason,
    Failure, FailureKind, Fallible, Function, Kind, Later, LinkKind, Many, Meta, One, Output,
    OutputMode, OwnedNotBorrowed, Plain, Portable, Result, Tries, TryOutput, Values,
};
pub use fiber_macros::{main, meta};

/// What most programs use.
pub mod prelude {
    pub use crate::{
        AsyncManager, Broadcast, Meta, Pool, Process, Reduction, RemoteAddr, Ring, RingNode,
        Supervisor,
    };
}

/// [`init`], with changes to the configuration that count over environment and file.
///
/// # Examples
/// ```
/// fiber::init_with(|config| config.processes = 2);
/// assert_eq!(fiber::Pool::builder().build()?.apply(|| 7, ()).wait()?, 7);
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn init_with(changes: impl Fn(&mut Config) + Send + Sync + 'static) {
    init();
    Config::set(changes);
}

/// Makes the test binary of a file under `tests/` (or of a crate's unit tests) able to host fiber's
/// processes.
///
/// It stands once, at the top of the file. A test harness has a `main` of its own, so this runs
/// [`init`] before it.
///
/// ```
/// fiber::test_harness!();
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! test_harness {
    () => {
        $crate::__private::ctor::declarative::ctor! {
            #[ctor]
            fn fiber_test_harness() {
                $crate::init();
            }
        }
    };
}

/// For the macros.
#[doc(hidden)]
pub mod __private {
    pub use ctor;
    pub use fiber_actors::block_on_main;
    pub use fiber_core::{Meta, MetaOf, inventory};
}

/// The README's examples run with the other tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// So do those of the page about rings.
#[cfg(doctest)]
#[doc = include_str!("../docs/ring.md")]
pub struct Rings;

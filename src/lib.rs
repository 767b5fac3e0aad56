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

pub use fiber_actors::{actix, init, supervisor, sync};
pub use fiber_core::Meta;
pub use fiber_macros::{main, meta};

#[doc(no_inline)]
pub use self::{
    actor_pool::ActorPool,
    config::Config,
    error::{Error, Result},
    manager::{AsyncManager, SyncManager},
    pipe::Pipe,
    pool::{Broadcast, Pool},
    process::Process,
    queue::Queue,
    remote::RemoteAddr,
    reply::Reply,
    ring::{Reduction, Ring, RingNode},
    supervisor::{Supervisor, tree},
};

/// Pools of worker processes, and the calls that they run.
pub mod pool {
    #[cfg(feature = "progress")]
    pub use fiber_actors::suspend_progress;
    pub use fiber_actors::{
        ApplyCall, Blocking, Broadcast, ImapCall, ImapUnorderedCall, MapCall, Pool, PoolBuilder,
    };
}

/// One function in a process of its own.
pub mod process {
    pub use fiber_actors::{Process, ProcessBuilder, ProcessHandle, active_children};
}

/// Ranked processes that work together, with collectives.
pub mod ring {
    pub use fiber_actors::{
        Number, Reduction, Rendezvous, Ring, RingBuilder, RingFunction, RingNode, RingRun,
    };
}

/// Actors in processes of their own, which fiber restarts.
pub mod manager {
    pub use fiber_actors::{
        AsyncManager, ManagerBuilder, NoSnapshots, Snapshot, SnapshotPolicy, Snapshots, SyncManager,
    };
}

/// Several managed actors behind one handle.
pub mod actor_pool {
    pub use fiber_actors::{ActorPool, ActorPoolBuilder, Routing};
}

/// Queues between processes.
pub mod queue {
    pub use fiber_actors::{Delivery, Get, Put, Queue, QueueStream};
}

/// Pipes between two processes.
pub mod pipe {
    pub use fiber_actors::{Pipe, PipeReceiver, PipeSender};
}

/// Addresses of actors in other processes.
pub mod remote {
    pub use fiber_actors::{RemoteAddr, RemoteMessage, RemoteRecipient, SendError};
}

/// The future of an answer.
pub mod reply {
    pub use fiber_actors::Reply;
}

/// What can go wrong, and how processes end.
pub mod error {
    pub use fiber_core::{
        Cause, CloseReason, Error, Exit, ExitReason, Failure, FailureKind, PoolEndReason, Result,
        RingEndReason,
    };
}

/// The configuration of a program.
pub mod config {
    pub use fiber_core::{Config, LinkKind, OutputMode};
}

/// Task functions: the traits that bound what they take and return.
///
/// Type parameters named `M` and `N` in this crate are *markers*, which live here too: the compiler
/// infers them from the function, and no program names them.
pub mod task {
    pub use fiber_actors::Alone;
    pub use fiber_core::{
        Arguments, AsResult, AsTermination, AsValue, Diverging, Fallible, Function, FutureOf, Many,
        One, Output, OutputKind, OwnedNotBorrowed, Plain, Portable, Termination, TryOutput,
    };
}

/// The names that most programs use.
pub mod prelude {
    pub use crate::pipe::{Pipe, PipeReceiver, PipeSender};
    pub use crate::{
        AsyncManager, Broadcast, Error, Meta, Pool, Process, Queue, Reduction, RemoteAddr, Ring,
        RingNode,
    };
}

/// Calls [`init`], and registers changes to the configuration, which count over environment and
/// file. Several calls apply in their order.
///
/// # Panics
/// If fiber has read the configuration already, which it does for the first pool, process or other
/// object of fiber.
///
/// # Examples
/// ```
/// fiber::init_with(|config| config.processes = 2);
/// assert_eq!(fiber::Pool::builder().build()?.apply(|| 7, ()).wait()?, 7);
/// # Ok::<(), fiber::Error>(())
/// ```
#[track_caller]
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

/// The programs of README and documents run with the other tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/guide.md")]
    struct Guide;
    #[doc = include_str!("../docs/coming-from.md")]
    struct ComingFrom;
    #[doc = include_str!("../docs/ring.md")]
    struct Rings;
    #[doc = include_str!("../docs/docker.md")]
    struct Docker;
}

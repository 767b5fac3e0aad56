//! State and synchronization that processes share.
//!
//! Each object lives in the process that made it, on fiber's own thread there: it answers even
//! while the program computes. Its handles are `Clone + Serialize + Deserialize`. They work in
//! every process of the program: as arguments of tasks, fields of messages, elements of queues, or
//! values of other shared objects.
//!
//! - **Lifetime.** An object ends with its last handle in any process, or with the process that
//!   made it. Operations on an object that has ended fail with
//!   [`Error::OwnerEnded`](fiber_core::Error::OwnerEnded). A handle that is stored in another
//!   object of this module, or that the program encodes itself, keeps its object alive until the
//!   process that made the object ends.
//! - **Deaths.** The locks and permits of a process that dies are released, and its pending
//!   requests are withdrawn. The next holder learns of the death from [`Guard::was_abandoned`]. A
//!   process whose link to the object's process is lost counts as dead, also if it lives: its
//!   guards then hold nothing.
//! - **Waiting.** Every operation is sent at once and returns a
//!   [`Reply`](fiber_runtime::reply::Reply): a future for any runtime, with `.wait()` for code that
//!   is not async and `.timeout(limit)`. Dropping a reply withdraws a request that still waits, as
//!   for a lock.
//! - **Order.** The requests of one process to one object are handled in the order in which they
//!   were made.
//! - **Cost.** An operation is one round trip between two processes, without the parent in between.
//!   In the process that made the object it is a function call under a lock, without a message.

mod barrier;
mod condition;
mod event;
mod list;
mod lock;
mod map;
mod namespace;
mod permits;
mod rwlock;
mod semaphore;
mod state;
mod value;

pub use barrier::Barrier;
pub use condition::{Condition, ConditionGuard};
pub use event::Event;
pub use list::List;
pub use lock::Lock;
pub use map::Map;
pub use namespace::Namespace;
pub use permits::Guard;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub(crate) use state::generic_handle;
pub use value::Value;

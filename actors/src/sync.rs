//! State and synchronisation that processes share.
//!
//! Each object lives in the process that made it: on fiber's own thread there, so that it answers
//! whatever the program does. Its handles are `Clone + Serialize + Deserialize`: as arguments of
//! tasks, fields of messages, elements of queues or values of other shared objects they work in
//! every process of the program.
//!
//! - **Lifetime.** An object ends with its last handle in any process, or with the process that
//!   made it: a handle that is used after that says so
//!   ([`Error::OwnerEnded`](fiber_core::Error::OwnerEnded)). A handle that is stored in another
//!   object of this module, or that the program encodes itself, keeps its object until the process
//!   ends that made it.
//! - **Deaths.** What a process holds (a lock, permits, a place in a queue of waiters) is given
//!   back when it dies, and the next holder is told: [`Guard::was_abandoned`].
//! - **Waiting.** Every operation is sent at once and gives a [`Waiting`]: a future for any
//!   runtime, with `.wait()` for code that is not async and `.timeout(limit)`. Dropping it takes
//!   back what has not happened: who waits for a lock no longer waits.
//! - **Order.** Requests of one process to one object are handled in the order in which they were
//!   made.

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
mod shared;
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
pub use value::Value;

pub use crate::objects::Waiting;

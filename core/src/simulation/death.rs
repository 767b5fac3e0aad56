//! The end of a dead head's waits.

use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::pin;

use super::world;

/// The panic by which a thread leaves a wait when its process has died.
#[derive(Debug)]
pub struct Died;

/// Waits for a future. If this thread's process is a head that dies, the wait ends with a panic:
/// nothing else ends it, since a real process would be gone.
pub(crate) async fn until_death<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        // A thread that unwinds already goes on to its end.
        if !std::thread::panicking() && world().is_some_and(|world| world.has_died(context.waker()))
        {
            resume_unwind(Box::new(Died));
        }
        future.as_mut().poll(context)
    })
    .await
}

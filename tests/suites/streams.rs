//! Streams of tasks and of actors' handlers.

mod deaths;
mod handlers;
mod passing;
mod tasks;

use fiber::sync::Event;
use fiber::{Error, Pool, Sender};

/// Sends the numbers up to `end`.
fn count(end: u64, out: Sender<u64>) -> fiber::Result<()> {
    (0..end).try_for_each(|n| out.send(n).wait())
}

/// Sends numbers until the consumer is gone, and then sets the event.
fn endless(ended: Event, out: Sender<u64>) {
    for n in 0.. {
        if let Err(error) = out.send(n).wait() {
            assert!(matches!(error, Error::Closed { .. }), "{error}");
            break;
        }
    }
    ended.set().wait().unwrap();
}

fn pool(processes: usize) -> Pool {
    Pool::new(processes).unwrap()
}

//! The start of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fiber_core::entry::Entry;
use fiber_core::{Error, Function, Meta, OutputKind, Portable, Result, shortage, task_entry};

use super::Pool;
use super::batch::Order;
use super::calls::Accepted;
use super::exchange::Exchange;
use super::feeder::{encode, feed, feed_one, submit_while_blocked};
use super::state::Cancellation;

impl Pool {
    /// Submits one task.
    pub(super) fn submit_one<F, A, M, K>(&self, function: F, args: &A) -> Result<Accepted>
    where
        F: Function<A, M>,
        A: Portable,
        K: OutputKind<F::Output>,
    {
        let _ = function;
        let mut encoded = Vec::with_capacity(64);
        let keep_alive = encode(args, &mut encoded, self.state().max_message)?;
        let exchange = self.begin(task_entry::<F, A, M, K>(), Order::Together, Meta::of::<F>())?;
        exchange.keep_alive.add(0, keep_alive);
        feed_one(self.state(), &exchange, encoded);
        Ok((exchange, Arc::clone(self.state())))
    }

    /// Starts a thread that submits a task for each item. Returns also the number of items, if it
    /// is known.
    pub(super) fn submit<F, I, M, K>(
        &self,
        function: F,
        items: I,
        order: Order,
    ) -> (Result<Accepted>, Option<u64>)
    where
        F: Function<I::Item, M>,
        I: IntoIterator<Item: Portable, IntoIter: Send + 'static>,
        K: OutputKind<F::Output>,
    {
        let _ = function;
        let items = items.into_iter();
        let length = match items.size_hint() {
            (least, Some(most)) if least == most => Some(least as u64),
            _ => None,
        };
        let entry = task_entry::<F, I::Item, M, K>();
        let call = self.begin(entry, order, Meta::of::<F>()).and_then(|exchange| {
            let state = Arc::clone(self.state());
            let (feeding, pool) = (Arc::clone(&exchange), Arc::clone(&state));
            let feeder = std::thread::Builder::new().name("fiber-feed".into());
            match feeder.spawn(move || feed(&pool, &feeding, items)) {
                Ok(_) => {
                    let (pool, fed) = (Arc::downgrade(&state), Arc::clone(&exchange));
                    state.runtime.spawn(move || submit_while_blocked(pool, fed));
                    Ok((exchange, state))
                }
                Err(error) => {
                    state.cancel(exchange.id, Cancellation::LetFinish);
                    Err(Error::system(
                        "a thread for the items could not be started",
                        shortage::Explained(error),
                    ))
                }
            }
        });
        (call, length)
    }

    fn begin(&self, entry: &'static Entry, order: Order, meta: Meta) -> Result<Arc<Exchange>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let state = self.state();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let exchange = Exchange::new(state.runtime, id, entry.name(), order, self.buffer);
        let phase = state.phase.lock();
        state.check_open(&phase)?;
        // Under the lock of the phase, so that no call begins while the pool ends.
        let mut scheduler = state.scheduler.lock();
        scheduler.begin(exchange.id, Arc::clone(&exchange), entry.reference(), self.options);
        drop((scheduler, phase));
        state.ensure_started(meta);
        Ok(exchange)
    }
}

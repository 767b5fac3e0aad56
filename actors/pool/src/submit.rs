//! The start of calls.

use std::sync::Arc;

use fiber_core::{Error, Result, forks, shortage, start_user_thread};
use fiber_journal::CallForm;
use fiber_values::{Inputs, TypedEntry, slot};

use super::Pool;
use super::away::Origin;
use super::batch::Order;
use super::calls::{Accepted, Submitted};
use super::durable::called;
use super::exchange::Exchange;
use super::feeder::{encode, feed, feed_one, prepare, submit_while_blocked};
use super::state::Cancellation;

impl Pool {
    /// Submits one task, now or when the outputs among its arguments are there.
    pub(super) fn submit_one<A, P, M, T>(
        &self,
        function: TypedEntry<P, T>,
        args: A,
    ) -> Result<Accepted>
    where
        A: Inputs<P, M>,
    {
        let (pool, mut scratch) = (self.state(), Vec::with_capacity(64));
        pool.check_running()?;
        let (limit, is_durable) = (pool.max_message, self.options.journal.is_some());
        let (keep_alive, encoded) = encode(&args, &mut scratch, limit, is_durable)?;
        let exchange = self.begin(function, Order::Together, CallForm::Apply)?;
        exchange.keep_alive.add(0, keep_alive);
        let prepared = prepare(&exchange, &args, &mut scratch, limit, encoded);
        match prepared.and_then(|prepared| feed_one(pool, &exchange, prepared, scratch)) {
            Ok(()) => Ok((exchange, Arc::clone(pool))),
            Err(error) => {
                pool.cancel(exchange.id, Cancellation::LetFinish);
                Err(error)
            }
        }
    }

    /// Starts a thread that submits a task for each item.
    pub(super) fn submit<I, P, M, T>(
        &self,
        function: TypedEntry<P, T>,
        items: I,
        order: Order,
    ) -> Submitted
    where
        I: IntoIterator<Item: Inputs<P, M>, IntoIter: Send + 'static>,
    {
        let items = items.into_iter();
        let length = match items.size_hint() {
            (least, Some(most)) if least == most => Some(least as u64),
            _ => None,
        };
        let call = self.begin(function, order, CallForm::Map).and_then(|exchange| {
            let state = Arc::clone(self.state());
            let (feeding, pool) = (Arc::clone(&exchange), Arc::clone(&state));
            let run = move || {
                let _entered = pool.runtime.parts().enter();
                feed(&pool, &feeding, items);
            };
            match start_user_thread("fiber-feed", run) {
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

    fn begin<A, T>(
        &self,
        function: TypedEntry<A, T>,
        order: Order,
        form: CallForm,
    ) -> Result<Arc<Exchange>> {
        forks::check()?;
        let state = self.state();
        state.check_running()?;
        state.check_depth(slot::depth())?;
        let durable = match &self.options.journal {
            None => None,
            Some(journal) => {
                state.check_open(&state.life.lock())?;
                let called = called(&function, form);
                Some(journal.begin(state, &called, function.meta)?)
            }
        };
        let TypedEntry { entry, meta, .. } = function;
        let is_durable = durable.is_some();
        let (name, entry) = (entry.display_name(), entry.reference());
        let origin = Origin { pool: Arc::downgrade(state), entry, options: self.options.call };
        let exchange = Exchange::new(state, name, origin, order, self.options.buffer, durable);
        if is_durable {
            state.runtime.note_durable_call();
            if state.runtime.is_draining() {
                exchange.stop();
            }
        }
        let mut call = exchange.new_call();
        call.is_final = self.options.is_final.clone();
        let mut life = state.life.lock();
        state.check_open(&life)?;
        life.scheduler.begin(exchange.id, call);
        drop(life);
        // The first task of a durable call that has no outcome starts the workers.
        if !is_durable {
            state.ensure_started(meta);
        }
        Ok(exchange)
    }
}

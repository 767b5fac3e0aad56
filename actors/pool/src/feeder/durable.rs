//! The tasks of durable calls: those with a recorded outcome are not submitted.

use fiber_core::{Error, Result};
use fiber_values::blob::{self, Blobs};
use fiber_values::codec;
use fiber_values::transfer;
use fiber_values::{Inputs, Whole};

use super::{BLOCK_BYTES, Feeder, PREFIX, encode, feed_one, finish_encoding, name_arguments};
use crate::durable::{DurableCall, break_off};
use crate::exchange::Exchange;
use crate::state::PoolState;

/// Writes the length of a task's arguments and the encoded arguments into `scratch`. Bytes and
/// blobs depend on the arguments alone, so they identify the task in later runs of the program.
#[inline]
fn encode_alone<A: Inputs<P, M>, P, M>(
    arguments: &A,
    scratch: &mut Vec<u8>,
    limit: usize,
) -> Result<Blobs> {
    if !std::mem::needs_drop::<A>() {
        return encode(arguments, scratch, limit).map(|(_, blobs)| blobs);
    }
    scratch.clear();
    scratch.extend_from_slice(&[0; PREFIX]);
    let append = || transfer::repeatable(|| codec::append_alone(scratch, &Whole::new(arguments)));
    let ((blobs, _keep_alive), has_handles) = transfer::finding_handles(append);
    let blobs = blobs.map_err(name_arguments::<A>)?;
    if has_handles {
        return Err(has_a_handle::<A>());
    }
    finish_encoding::<A>(scratch, &blobs, limit)?;
    Ok(blobs)
}

/// Returns the error of arguments that mean nothing to another run of the program.
#[cold]
pub(super) fn has_a_handle<A>() -> Error {
    let problem = format!(
        "an argument of type `{}` has a handle (a queue, an address, a broadcast value …), which \
         names an object of this run of the program alone: pass what the task needs as a value",
        std::any::type_name::<A>()
    );
    Error::invalid("Pool::durable", problem)
}

/// Returns whether these arguments are encoded in another way for their transport.
fn is_large(encoded: &[u8], blobs: &Blobs) -> bool {
    !blobs.is_empty() || encoded.len() >= blob::MIN_LEN
}

/// Delivers the recorded outcome of the only task of a call, or submits the task.
pub(crate) fn feed_one_durable<A: Inputs<P, M>, P, M>(
    pool: &PoolState,
    exchange: &Exchange,
    call: &DurableCall,
    arguments: &A,
) -> Result<()> {
    let mut scratch = Vec::with_capacity(64);
    let blobs = encode_alone(arguments, &mut scratch, pool.max_message)?;
    let key = call.key(&scratch[PREFIX..], &blobs);
    if let Some(outcome) = call.find(key)? {
        exchange.set_total(1);
        exchange.add_recorded(call, 0, outcome);
        exchange.deliver_waiting();
        pool.finish_feeding(exchange.id, Some(0));
        return Ok(());
    }
    let blobs = if is_large(&scratch, &blobs) {
        encode(arguments, &mut scratch, pool.max_message)?.1
    } else {
        blobs
    };
    call.note_keys(0, vec![key]);
    pool.ensure_started(call.meta);
    feed_one(pool, exchange, scratch, blobs);
    Ok(())
}

impl Feeder<'_> {
    /// Delivers the recorded outcome of a task, or submits the task.
    pub(super) fn add_durable<A: Inputs<P, M>, P, M>(
        &mut self,
        call: &DurableCall,
        index: u64,
        item: &A,
    ) {
        let limit = self.pool.max_message;
        let mut blobs = match encode_alone(item, &mut self.scratch, limit) {
            Ok(blobs) => blobs,
            Err(error) => {
                self.leave_out();
                return self.exchange.fail(index, error);
            }
        };
        let key = call.key(&self.scratch[PREFIX..], &blobs);
        match call.find(key) {
            Ok(None) => {}
            Ok(Some(outcome)) => {
                self.leave_out();
                if self.exchange.add_recorded(call, index, outcome) {
                    self.check_at = self.fed;
                }
                return;
            }
            Err(error) => return break_off(self.pool, self.exchange, error),
        }
        if is_large(&self.scratch, &blobs) {
            match encode(item, &mut self.scratch, limit) {
                Ok((_, apart)) => blobs = apart,
                Err(error) => {
                    self.leave_out();
                    return self.exchange.fail(index, error);
                }
            }
        }
        if !std::mem::replace(&mut self.submits, true) {
            self.pool.ensure_started(call.meta);
        }
        if std::mem::take(&mut self.left_out) {
            self.exchange.open_at(index);
        }
        if self.scratch.len() >= BLOCK_BYTES || !blobs.is_empty() {
            call.note_keys(index, vec![key]);
            self.submit_alone(index, blobs);
        } else {
            self.add_to_open(Some(key));
        }
    }

    /// Leaves a task out of the open block, as [`skip`](Feeder::skip), in a row of such tasks.
    fn leave_out(&mut self) {
        if !std::mem::replace(&mut self.left_out, true) {
            self.submit_open();
        }
    }
}

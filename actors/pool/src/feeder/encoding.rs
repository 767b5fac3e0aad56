//! The encoded arguments of tasks, and the tasks of durable calls that a journal knows by them.

use std::any::type_name;
use std::mem::needs_drop;

use fiber_core::{Error, Result};
use fiber_journal::{Outcome, TaskKey};
use fiber_values::blob::{self, Blobs};
use fiber_values::codec;
use fiber_values::transfer::{self, KeepAlive};
use fiber_values::{Inputs, Parts, PartsBuilder, Whole};

use crate::durable::DurableCall;
use crate::exchange::Exchange;
use crate::run::{PREFIX, prefix};

/// The encoded arguments of a task.
pub(crate) enum Encoded {
    /// They are in the scratch, but for these blobs.
    Whole(Blobs),
    /// Outputs of other tasks are among them, which may not be there.
    Parts(Parts),
}

/// The way of a task after its arguments are encoded.
pub(crate) enum Prepared {
    /// It has to run. In a durable call it has a key.
    New(Blobs, Option<TaskKey>),
    /// It waits for outputs among its arguments.
    Held(Parts),
    /// The journal of its call has its outcome.
    Recorded(Outcome),
    /// The journal of its call can't be read.
    Unreadable(Error),
}

/// Writes the length of a task's arguments and the encoded arguments into `scratch`, if no outputs
/// are among them. In a durable call, bytes and blobs depend on the arguments alone, so they
/// identify the task in later runs of the program. Returns also what keeps objects alive.
#[inline]
pub(crate) fn encode<A: Inputs<P, M>, P, M>(
    arguments: &A,
    scratch: &mut Vec<u8>,
    limit: usize,
    is_durable: bool,
) -> Result<(KeepAlive, Encoded)> {
    if A::HAS_OUTPUTS {
        return encode_in_parts(arguments, is_durable);
    }
    scratch.clear();
    scratch.extend_from_slice(&[0; PREFIX]);
    // A handle has something to drop, and so has an array.
    let (blobs, keep_alive) = if !needs_drop::<A>() {
        codec::append(scratch, &Whole::new(arguments)).map_err(name_arguments::<A>)?;
        (Blobs::default(), KeepAlive::default())
    } else if is_durable {
        let append = || codec::append_alone(scratch, &Whole::new(arguments));
        let (appended, has_handles) = transfer::finding_handles(|| transfer::repeatable(append));
        let blobs = appended.0.map_err(name_arguments::<A>)?;
        if has_handles {
            return Err(has_a_handle::<A>());
        }
        (blobs, appended.1)
    } else {
        let append = || codec::append_apart(scratch, &Whole::new(arguments));
        let (blobs, keep_alive) = transfer::repeatable(append);
        (blobs.map_err(name_arguments::<A>)?, keep_alive)
    };
    let length = scratch.len() - PREFIX;
    codec::check_size(length + blobs.total_len(), limit as u64, || {
        format!("an argument of type `{}`", type_name::<A>())
    })?;
    scratch[..PREFIX].copy_from_slice(&prefix(length, false));
    Ok((keep_alive, Encoded::Whole(blobs)))
}

/// Looks up a task whose arguments are encoded in `scratch` and `encoded`, in a durable call.
#[inline]
pub(crate) fn prepare<A: Inputs<P, M>, P, M>(
    exchange: &Exchange,
    arguments: &A,
    scratch: &mut Vec<u8>,
    limit: usize,
    encoded: Encoded,
) -> Result<Prepared> {
    match (encoded, &exchange.durable) {
        (Encoded::Parts(parts), _) => Ok(Prepared::Held(parts)),
        (Encoded::Whole(blobs), None) => Ok(Prepared::New(blobs, None)),
        (Encoded::Whole(blobs), Some(call)) => look_up(call, arguments, scratch, limit, blobs),
    }
}

fn look_up<A: Inputs<P, M>, P, M>(
    call: &DurableCall,
    arguments: &A,
    scratch: &mut Vec<u8>,
    limit: usize,
    blobs: Blobs,
) -> Result<Prepared> {
    let key = call.key(&scratch[PREFIX..], &blobs);
    match call.find(key) {
        Ok(None) => {}
        Ok(Some(outcome)) => return Ok(Prepared::Recorded(outcome)),
        Err(error) => return Ok(Prepared::Unreadable(error)),
    }
    if blobs.is_empty() && scratch.len() < blob::MIN_LEN {
        return Ok(Prepared::New(blobs, Some(key)));
    }
    // Large arguments are encoded in another way for their transport.
    Ok(match encode(arguments, scratch, limit, false)?.1 {
        Encoded::Whole(blobs) => Prepared::New(blobs, Some(key)),
        Encoded::Parts(parts) => Prepared::Held(parts),
    })
}

/// Encodes arguments that have outputs among them. Those of a durable call have no handles.
fn encode_in_parts<A: Inputs<P, M>, P, M>(
    arguments: &A,
    is_durable: bool,
) -> Result<(KeepAlive, Encoded)> {
    let mut parts = PartsBuilder::default();
    let add = || transfer::repeatable(|| arguments.add(&mut parts));
    let ((added, keep_alive), has_handles) = transfer::finding_handles(add);
    added?;
    let parts = parts.build();
    if is_durable && (has_handles || parts.outputs().any(|cell| cell.has_handles())) {
        return Err(has_a_handle::<A>());
    }
    Ok((keep_alive, Encoded::Parts(parts)))
}

/// Lets an error name the arguments' own type.
#[cold]
fn name_arguments<A>(error: Error) -> Error {
    match error {
        Error::Encode { cause, .. } => Error::Encode { type_name: type_name::<A>(), cause },
        other => other,
    }
}

/// Returns the error of arguments that mean nothing to another run of the program.
#[cold]
fn has_a_handle<A>() -> Error {
    let problem = format!(
        "an argument of type `{}` has a handle (a queue, an address, a broadcast value …), which \
         names an object of this run of the program alone: pass what the task needs as a value",
        type_name::<A>()
    );
    Error::invalid("Pool::durable", problem)
}

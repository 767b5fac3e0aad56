//! Decoding of outcomes.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use fiber_core::{Error, Failure, FailureKind, Result};
use fiber_values::blob::Blobs;
use fiber_values::codec::{self, EncodedValue};
use serde::de::DeserializeOwned;

use crate::batch::ResultBatch;
use crate::durable::DurableCall;
use crate::run::{Items, PREFIX, Run};

/// An iterator that decodes the outcomes of consecutive tasks.
pub(super) struct Decoder<T> {
    function: &'static str,
    index: u64,
    end: u64,
    bytes: Bytes,
    blobs: Blobs,
    position: usize,
    /// The call, if its outcomes are recorded.
    durable: Option<Arc<DurableCall>>,
    value: PhantomData<fn() -> T>,
}

impl<T> Decoder<T> {
    pub(super) fn new(
        function: &'static str,
        run: Run,
        durable: Option<Arc<DurableCall>>,
    ) -> Decoder<T> {
        Decoder {
            function,
            index: run.start,
            end: run.end,
            bytes: run.arguments(),
            blobs: run.blobs().clone(),
            position: 0,
            durable,
            value: PhantomData,
        }
    }

    /// Returns the index of the next task.
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// Returns the outcomes that were not taken with their indexes, encoded as they are.
    pub(super) fn encoded(self) -> Vec<(u64, Result<EncodedValue>)> {
        let bytes = self.bytes.slice(self.position..);
        let is_alone = self.position == 0 && self.end - self.index == 1;
        let outcome = |((item, failed), index)| {
            if failed {
                return (index, Err(task_error(self.function, index, item)));
            }
            // A part would keep the memory of all of them.
            let copy = || Bytes::copy_from_slice(item);
            let bytes = if is_alone { bytes.slice_ref(item) } else { copy() };
            (index, Ok(EncodedValue { bytes, blobs: self.blobs.clone() }))
        };
        Items::new(&bytes).zip(self.index..self.end).map(outcome).collect()
    }

    /// Returns whether all outcomes were taken.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.index == self.end
    }
}

impl<T: DeserializeOwned> Iterator for Decoder<T> {
    type Item = Result<T>;

    #[inline]
    fn next(&mut self) -> Option<Result<T>> {
        if self.is_empty() {
            return None;
        }
        let index = self.index;
        self.index += 1;
        let Some((item, failed)) = Items::new(&self.bytes[self.position..]).next() else {
            let failure =
                Failure::new(FailureKind::Result, "the worker sent less than it announced");
            return Some(Err(Error::Task { function: self.function, index, failure }));
        };
        self.position += PREFIX + item.len();
        if !failed {
            let value = codec::decode_with(item, &self.blobs);
            return Some(value.map_err(|error| match &self.durable {
                Some(call) => call.unreadable(error),
                None => error,
            }));
        }
        Some(Err(task_error(self.function, index, item)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.index) as usize;
        (left, Some(left))
    }
}

/// Returns the failures in a batch.
pub(crate) fn failures(function: &'static str, batch: ResultBatch) -> Vec<Error> {
    let run = match batch {
        ResultBatch::Outcomes(run, _) => run,
        ResultBatch::Failed(_, error) => return vec![error],
    };
    let bytes = run.arguments();
    let failed = Items::new(&bytes).zip(run.start..run.end).filter(|((_, failed), _)| *failed);
    failed.map(|((item, _), index)| task_error(function, index, item)).collect()
}

/// Returns the outcomes in a batch with their indexes, encoded as they are.
pub(crate) fn encoded(
    function: &'static str,
    batch: ResultBatch,
) -> Vec<(u64, Result<EncodedValue>)> {
    match batch {
        ResultBatch::Outcomes(run, _) => Decoder::<()>::new(function, run, None).encoded(),
        ResultBatch::Failed(index, error) => vec![(index, Err(error))],
    }
}

fn task_error(function: &'static str, index: u64, item: &[u8]) -> Error {
    let failure =
        codec::decode(item).unwrap_or_else(|error| Failure::new(FailureKind::Result, error));
    Error::Task { function, index, failure }
}

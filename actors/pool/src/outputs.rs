//! Outputs of calls: outcomes that stay here until tasks or this program take them.

use std::future::poll_fn;
use std::sync::{Arc, Weak};

use fiber_core::{Error, Result, block_on};
use fiber_values::{Maker, MakingCall, Output, OutputCell};

use super::batch::ResultBatch;
use super::calls::{ActiveCall, encoded};
use super::exchange::{Exchange, Sink};

/// The cells of a call's outputs, by the indexes of its tasks. The handles own them.
pub(super) struct CallOutputs {
    /// The index of the first one.
    first: u64,
    cells: Vec<Weak<OutputCell>>,
    /// The result of all, which fails with the first of them.
    result: Option<Weak<OutputCell>>,
}

impl CallOutputs {
    pub(super) fn new(
        exchange: &Exchange,
        cells: &[Arc<OutputCell>],
        result: Option<&Arc<OutputCell>>,
    ) -> Arc<CallOutputs> {
        for (index, cell) in (0..).zip(cells) {
            cell.set_maker(exchange.maker(index));
        }
        let cells = cells.iter().map(Arc::downgrade).collect();
        Arc::new(CallOutputs { first: 0, cells, result: result.map(Arc::downgrade) })
    }

    /// Returns the output of one task, which has this index.
    pub(super) fn of_one(index: u64, cell: &Arc<OutputCell>) -> Arc<CallOutputs> {
        Arc::new(CallOutputs { first: index, cells: vec![Arc::downgrade(cell)], result: None })
    }

    /// Fails those from this index on that are not filled.
    fn end_from(&self, from: u64, error: &Error) {
        let left = self.cells.get(from as usize..).unwrap_or_default();
        for cell in left.iter().filter_map(Weak::upgrade) {
            self.fail_result(error);
            cell.fill(Err(error.clone()));
        }
    }

    fn fail_result(&self, error: &Error) {
        if let Some(result) = self.result.as_ref().and_then(Weak::upgrade) {
            result.fill(Err(error.clone()));
        }
    }
}

impl Exchange {
    /// Returns one of its tasks, as the maker of a value.
    pub(super) fn maker(&self, index: u64) -> Maker {
        let call = self.making.get_or_init(|| {
            let journal = self.durable.as_ref().map(|call| Arc::clone(&call.journal));
            Arc::new(MakingCall { number: self.id, function: self.function, journal })
        });
        Maker { call: Arc::clone(call), index }
    }
}

impl Sink for CallOutputs {
    fn take(&self, function: &'static str, batch: ResultBatch) {
        for (index, outcome) in encoded(function, batch) {
            if let Err(error) = &outcome {
                self.fail_result(error);
            }
            if let Some(cell) = self.cell(index) {
                cell.fill(outcome);
            }
        }
    }

    fn cell(&self, index: u64) -> Option<Arc<OutputCell>> {
        let place = index.checked_sub(self.first)?;
        self.cells.get(place as usize)?.upgrade()
    }

    fn set_total(&self, total: u64) {
        let problem = "the iterator has given fewer items than its `size_hint` said";
        self.end_from(total, &Error::invalid("MapCall::outputs", problem));
    }

    fn end(&self, error: &Error) {
        self.end_from(0, error);
    }
}

/// Returns the outputs of a call of `count` tasks. Each keeps the call until it is filled.
pub(super) fn outputs<T>(
    call: Result<ActiveCall>,
    count: u64,
    result: Option<&Arc<OutputCell>>,
) -> Vec<Output<T>> {
    let call = match call {
        Ok(call) => Arc::new(call),
        Err(error) => {
            let failed = || Output::of(OutputCell::filled(Err(error.clone())));
            return (0..count).map(|_| failed()).collect();
        }
    };
    let cell = || OutputCell::new(Arc::clone(&call) as Arc<_>);
    let cells: Vec<_> = (0..count).map(|_| cell()).collect();
    call.pass_to(CallOutputs::new(&call.exchange, &cells, result));
    cells.into_iter().map(Output::of).collect()
}

/// Returns the number of a call's tasks, which may be known only when its iterator has ended.
pub(super) fn count(call: &Result<ActiveCall>, length: Option<u64>) -> Result<u64> {
    match (length, call) {
        (Some(length), _) => Ok(length),
        (None, Ok(call)) => block_on(poll_fn(|context| call.exchange.poll_total(context))),
        (None, Err(error)) => Err(error.clone()),
    }
}

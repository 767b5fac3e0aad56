//! The description of one collective call, by which ranks check that all make the same one.

use super::number::{Number, NumberType};
use super::reduction::Reduction;

/// A collective operation. The discriminant is its byte on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Operation {
    Barrier = 0,
    Broadcast,
    Reduce,
    AllReduce,
    AllGather,
    ReduceScatter,
    Gather,
    Scatter,
}

const NAMES: [&str; 8] = [
    "barrier",
    "broadcast",
    "reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "gather",
    "scatter",
];
const NO_REDUCTION: u8 = u8::MAX;
const NO_ROOT: u32 = u32::MAX;

/// A collective call as one rank makes it. It has to be equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CollectiveCall {
    pub(super) operation: u8,
    pub(super) number_type: u8,
    pub(super) reduction: u8,
    pub(super) root: u32,
    /// Which of the rank's collective calls this is, counted from 1.
    pub(super) sequence: u64,
    /// The length of the data in elements.
    pub(super) length: u64,
}

impl CollectiveCall {
    pub(super) fn barrier(sequence: u64) -> CollectiveCall {
        CollectiveCall {
            operation: Operation::Barrier as u8,
            number_type: 0,
            reduction: NO_REDUCTION,
            root: NO_ROOT,
            sequence,
            length: 0,
        }
    }

    pub(super) fn new<T: Number>(
        operation: Operation,
        sequence: u64,
        length: usize,
    ) -> CollectiveCall {
        CollectiveCall {
            operation: operation as u8,
            number_type: T::TYPE as u8,
            length: length as u64,
            ..CollectiveCall::barrier(sequence)
        }
    }

    pub(super) fn with_reduction(self, reduction: Reduction) -> CollectiveCall {
        CollectiveCall { reduction: reduction as u8, ..self }
    }

    pub(super) fn with_root(self, root: usize) -> CollectiveCall {
        CollectiveCall { root: root as u32, ..self }
    }

    /// Describes the call for errors: `all_reduce (sum) of 1024 f32, its collective number 5`.
    pub(super) fn describe(&self) -> String {
        let mut words = NAMES.get(usize::from(self.operation)).copied().unwrap_or("?").to_string();
        if let Some(reduction) = Reduction::ALL.get(usize::from(self.reduction)) {
            words.push_str(&format!(" ({})", reduction.name()));
        }
        if self.root != NO_ROOT {
            words.push_str(&format!(" with root {}", self.root));
        }
        if self.operation != Operation::Barrier as u8 && self.operation != Operation::Scatter as u8
        {
            let number_type = NumberType::name(self.number_type);
            words.push_str(&format!(" of {} {number_type}", self.length));
        }
        words.push_str(&format!(", its collective number {}", self.sequence));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_names_operation_reduction_length_type_and_sequence() {
        let call = CollectiveCall::new::<f32>(Operation::AllReduce, 5, 1024)
            .with_reduction(Reduction::Sum);
        assert_eq!(call.describe(), "all_reduce (sum) of 1024 f32, its collective number 5");
    }
}

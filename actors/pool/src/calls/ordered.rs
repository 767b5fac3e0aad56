//! Results in the order of their tasks.

use fiber_core::{Result, SortedMap};
use serde::de::DeserializeOwned;

use super::decode::Decoder;

/// Collects the results of runs that arrive in any order.
///
/// A run that follows the results so far, as most do, is decoded into its place.
pub(super) struct Ordered<T> {
    results: Vec<T>,
    /// The results of runs that others precede, by the index of their first task.
    early: SortedMap<u64, Vec<T>>,
}

impl<T> Default for Ordered<T> {
    fn default() -> Ordered<T> {
        Ordered { results: Vec::new(), early: SortedMap::new() }
    }
}

impl<T: DeserializeOwned> Ordered<T> {
    /// Decodes the outcomes of a run.
    ///
    /// # Errors
    /// The first failure among them.
    pub(super) fn add(&mut self, outcomes: Decoder<T>) -> Result<()> {
        let first = outcomes.index();
        if first != self.results.len() as u64 {
            let mut early = Vec::new();
            append(&mut early, outcomes)?;
            self.early.insert(first, early);
            return Ok(());
        }
        append(&mut self.results, outcomes)?;
        while let Some(next) = self.early.remove(&(self.results.len() as u64)) {
            self.results.extend(next);
        }
        Ok(())
    }

    /// Takes the results after the last run.
    pub(super) fn take(&mut self) -> Vec<T> {
        debug_assert!(self.early.is_empty(), "a run is missing");
        std::mem::take(&mut self.results)
    }
}

fn append<T: DeserializeOwned>(results: &mut Vec<T>, outcomes: Decoder<T>) -> Result<()> {
    results.reserve(outcomes.size_hint().0);
    for result in outcomes {
        results.push(result?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fiber_core::{Error, Failure, FailureKind};
    use fiber_values::codec;

    use super::*;
    use crate::run::{Run, push_item};

    /// The outcomes of tasks that return their index; task `failed` fails.
    fn outcomes(tasks: std::ops::Range<u64>, failed: Option<u64>) -> Decoder<u64> {
        let mut bytes = Vec::new();
        for task in tasks.clone() {
            let failure = Failure::new(FailureKind::Returned, "no");
            let fails = failed == Some(task);
            let item = if fails { codec::encode(&failure) } else { codec::encode(&task) };
            push_item(&mut bytes, &item.unwrap(), fails);
        }
        Decoder::new("task", Run::new(1, tasks.start, tasks.end, bytes.into()), None)
    }

    #[test]
    fn results_of_runs_in_any_order_are_in_order() {
        for runs in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
            let mut results = Ordered::default();
            for run in runs {
                results.add(outcomes(run * 10..run * 10 + 10, None)).unwrap();
            }
            assert_eq!(results.take(), Vec::from_iter(0..40), "{runs:?}");
        }
        assert!(Ordered::<String>::default().take().is_empty());
    }

    #[test]
    fn a_failure_ends_the_results_in_a_run_of_any_place() {
        for start in [0, 10] {
            let failed = Ordered::default().add(outcomes(start..start + 10, Some(start + 5)));
            assert!(matches!(failed, Err(Error::Task { index, .. }) if index == start + 5));
        }
    }
}

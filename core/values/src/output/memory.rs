//! The memory of outputs: when it is short, values that are needed latest go to a file.
//!
//! The later of two values whose tasks wait for others is needed later, as tasks without inputs
//! begin in the order of their calls. A value that a task waits for, which has all other
//! inputs, is needed now.

use std::sync::{Arc, Weak};

use fiber_core::value_memory;
use parking_lot::Mutex;

use super::OutputCell;
use crate::spill;

/// A value of fewer bytes stays in memory: its place takes about as much.
pub(super) const MIN_SPILLED: usize = 256;
/// How many values that are needed now are looked at for one that is not.
const LOOK_AHEAD: usize = 64;
/// Below this number, entries of values that are gone do not matter.
const FEW: usize = 1024;

// Values leave the memory of the process, whichever session they are of.
static KEPT: Mutex<Kept> = Mutex::new(Kept { cells: Vec::new(), most: FEW });

/// The values in memory, the last one last.
struct Kept {
    cells: Vec<Weak<OutputCell>>,
    /// With how many entries those are removed that are gone.
    most: usize,
}

impl Kept {
    fn add(&mut self, cell: Weak<OutputCell>) {
        if self.cells.len() >= self.most {
            self.cells.retain(|cell| cell.strong_count() > 0);
            self.most = (2 * self.cells.len()).max(FEW);
        }
        self.cells.push(cell);
    }

    /// Takes the value that is needed last.
    fn take_last(&mut self) -> Option<Arc<OutputCell>> {
        let mut needed = Vec::new();
        let mut found = None;
        while let Some(cell) = self.cells.pop() {
            let Some(cell) = cell.upgrade() else { continue };
            if !cell.is_needed_now() {
                found = Some(cell);
                break;
            }
            needed.push(cell);
            if needed.len() == LOOK_AHEAD {
                break;
            }
        }
        // The last one of those that are needed now, if there are no others.
        let found = found.or_else(|| (!needed.is_empty()).then(|| needed.remove(0)));
        self.cells.extend(needed.iter().rev().map(Arc::downgrade));
        found
    }
}

/// Notes that a value has come, and makes room if memory is short.
pub(super) fn note(cell: &Arc<OutputCell>) {
    KEPT.lock().add(Arc::downgrade(cell));
    while value_memory::is_short() {
        spill::try_again();
        if !spill::is_possible() {
            return spill::warn_of_memory();
        }
        let Some(last) = KEPT.lock().take_last() else { return };
        last.spill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::EncodedValue;
    use crate::output::Dependent;

    /// A task that goes on waiting.
    struct Task;

    impl Dependent for Task {
        fn input_is_ready(self: Arc<Self>) {}
    }

    fn cell(dependents: &[&Arc<Task>]) -> Arc<OutputCell> {
        let cell = OutputCell::pending();
        for dependent in dependents {
            let dependent = Arc::downgrade(dependent) as Weak<dyn Dependent>;
            assert!(cell.tell(&dependent));
        }
        cell.fill(Ok(EncodedValue { bytes: vec![0; MIN_SPILLED].into(), ..Default::default() }));
        cell
    }

    #[test]
    fn what_is_needed_last_is_taken_first() {
        let (waits, starts) = (Arc::new(Task), Arc::new(Task));
        let cells = [cell(&[]), cell(&[&waits]), cell(&[&starts]), cell(&[&starts, &waits])];
        drop(starts);
        let mut kept = Kept { cells: Vec::new(), most: FEW };
        cells.iter().for_each(|cell| kept.add(Arc::downgrade(cell)));
        kept.add(Weak::new());
        let mut order = Vec::new();
        while let Some(taken) = kept.take_last() {
            order.push(cells.iter().position(|cell| Arc::ptr_eq(cell, &taken)).unwrap());
        }
        assert_eq!(order, [3, 1, 0, 2], "the one whose task starts is needed first");
        (0..2 * FEW).for_each(|_| kept.add(Weak::new()));
        assert!(kept.cells.len() <= FEW, "those that are gone are removed");
    }
}

//! Recipes: how values are made again that were lost with their machines.
//!
//! A recipe has the arguments of the task that made the value. It does not keep inputs that have
//! recipes themselves: an input that nothing else has is made again with it.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{OutputCell, afterwards};

/// Makes a value again.
pub trait Make: Send + Sync {
    /// Lets the task run again whose value fills the cell.
    fn make(&self, cell: &Arc<OutputCell>);
}

/// How one value is made again.
pub struct Recipe {
    /// The cell of the value, while anything has it.
    cell: Mutex<Weak<OutputCell>>,
    /// How many bytes it keeps, with the recipes of inputs.
    size: usize,
    /// There until it is dropped.
    make: Option<Box<dyn Make>>,
}

impl Recipe {
    /// Returns a recipe that keeps `size` bytes.
    pub fn new(make: impl Make + 'static, size: usize) -> Recipe {
        Recipe { cell: Mutex::default(), size, make: Some(Box::new(make)) }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn is_for(&self, cell: &Arc<OutputCell>) {
        *self.cell.lock() = Arc::downgrade(cell);
    }

    pub(super) fn make(&self, cell: &Arc<OutputCell>) {
        if let Some(make) = &self.make {
            make.make(cell);
        }
    }

    /// Returns the cell of the value, which is made again if nothing has it, or if it is lost.
    pub(crate) fn cell(self: &Arc<Recipe>) -> Arc<OutputCell> {
        let mut known = self.cell.lock();
        if let Some(cell) = known.upgrade() {
            drop(known);
            cell.make_again_if_lost();
            return cell;
        }
        let cell = OutputCell::pending();
        *known = Arc::downgrade(&cell);
        drop(known);
        let (recipe, made) = (Arc::clone(self), Arc::clone(&cell));
        afterwards(move || recipe.make(&made));
        cell
    }
}

/// Recipes of a chain have each other.
impl Drop for Recipe {
    fn drop(&mut self) {
        let make = self.make.take();
        afterwards(move || drop(make));
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recipe").field("size", &self.size).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;

    use super::*;
    use crate::blob::{Answer, Blob, CopyElsewhere};
    use crate::codec::EncodedValue;

    const LEN: usize = 5;

    /// A copy on a machine that sends it at once, and how often that was.
    #[derive(Default)]
    struct Far(AtomicUsize);

    impl CopyElsewhere for Far {
        fn is_lost(&self) -> bool {
            false
        }

        fn fetch(&self, answer: Answer) {
            self.0.fetch_add(1, Ordering::Relaxed);
            answer(Some(Bytes::from_static(&[0; LEN])));
        }
    }

    struct NotMade;

    impl Make for NotMade {
        fn make(&self, _: &Arc<OutputCell>) {
            unreachable!("its value is there");
        }
    }

    /// Fills a cell with a value of [`LEN`] bytes on another machine. Returns whether it has come to
    /// this process, and whether a recipe is kept for it.
    fn fill(recipe: Option<usize>) -> (bool, bool) {
        let (far, cell) = (Arc::new(Far::default()), OutputCell::pending());
        if let Some(size) = recipe {
            cell.will_have(Recipe::new(NotMade, size));
        }
        let blobs = vec![Blob::away(LEN, 1, Arc::clone(&far) as Arc<_>)].into();
        cell.fill(Ok(EncodedValue { bytes: Bytes::new(), blobs }));
        let is_here = cell.value().is_some_and(|value| value.is_ok_and(|it| it.blobs.are_here()));
        assert_eq!(usize::from(is_here), far.0.load(Ordering::Relaxed), "it comes once");
        (is_here, cell.recipe().is_some())
    }

    #[test]
    fn a_value_that_is_smaller_than_its_recipe_comes_in_place_of_it() {
        assert_eq!(fill(Some(LEN - 1)), (false, true));
        assert_eq!(fill(Some(LEN)), (false, true));
        assert_eq!(fill(Some(LEN + 1)), (true, false));
        assert_eq!(fill(None), (true, false));
    }
}

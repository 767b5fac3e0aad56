//! The items whose commands have no outcome yet.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::items::{Item, Items};
use super::template::Template;

/// Expands items to commands, and remembers which of them are under way. The pool takes the
/// commands on a thread of its own.
pub(super) struct Commands {
    items: Items,
    template: Template,
    pending: Pending,
}

impl Commands {
    pub(super) fn new(items: Items, template: Template, pending: Pending) -> Commands {
        Commands { items, template, pending }
    }
}

impl Iterator for Commands {
    type Item = Vec<Vec<u8>>;

    fn next(&mut self) -> Option<Vec<Vec<u8>>> {
        match self.items.next()? {
            Ok(item) => {
                let command = self.template.expand(&item);
                self.pending.add(item, &command);
                Some(command)
            }
            Err(error) => {
                self.pending.lock().error = Some(error);
                None
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

/// The items that were taken and have no outcome.
#[derive(Clone)]
pub(super) struct Pending(Arc<Mutex<Inner>>);

struct Inner {
    items: BTreeMap<u64, (Item, Vec<Vec<u8>>)>,
    /// The numbers of the items, by their commands, if outcomes come in any order.
    by_command: Option<HashMap<Vec<Vec<u8>>, VecDeque<u64>>>,
    error: Option<anyhow::Error>,
}

impl Pending {
    pub(super) fn new(in_order: bool) -> Pending {
        let by_command = (!in_order).then(HashMap::new);
        let inner = Inner { items: BTreeMap::new(), by_command, error: None };
        Pending(Arc::new(Mutex::new(inner)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, item: Item, command: &[Vec<u8>]) {
        let mut inner = self.lock();
        if let Some(numbers) = &mut inner.by_command {
            numbers.entry(command.to_vec()).or_default().push_back(item.number);
        }
        inner.items.insert(item.number, (item, command.to_vec()));
    }

    /// Removes the item of an outcome, with its command: that with the same command, or the next
    /// one in order. Items with equal commands have equal rights.
    pub(super) fn take(&self, command: &[Vec<u8>]) -> Option<(Item, Vec<Vec<u8>>)> {
        let mut inner = self.lock();
        let Some(by_command) = &mut inner.by_command else {
            return inner.items.pop_first().map(|(_, taken)| taken);
        };
        let numbers = by_command.get_mut(command)?;
        let number = numbers.pop_front()?;
        if numbers.is_empty() {
            by_command.remove(command);
        }
        inner.items.remove(&number)
    }

    /// Removes the item of this number, with its command.
    pub(super) fn take_number(&self, number: u64) -> Option<(Item, Vec<Vec<u8>>)> {
        let mut inner = self.lock();
        let taken = inner.items.remove(&number);
        if let Some(by_command) = &mut inner.by_command {
            by_command.retain(|_, numbers| {
                numbers.retain(|other| *other != number);
                !numbers.is_empty()
            });
        }
        taken
    }

    /// Takes the error that has ended the items.
    pub(super) fn take_error(&self) -> Option<anyhow::Error> {
        self.lock().error.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::items::Fields;

    fn command(word: &str) -> Vec<Vec<u8>> {
        vec![word.into()]
    }

    fn pending(in_order: bool) -> Pending {
        let pending = Pending::new(in_order);
        for (number, word) in (1..).zip(["a", "b", "a", "c"]) {
            pending.add(Item { number, fields: Fields::Text(word.into()) }, &command(word));
        }
        pending
    }

    fn number(taken: Option<(Item, Vec<Vec<u8>>)>) -> Option<u64> {
        taken.map(|(item, _)| item.number)
    }

    #[test]
    fn outcomes_in_order_belong_to_the_next_item() {
        let pending = pending(true);
        for expected in [1, 2, 3, 4] {
            assert_eq!(number(pending.take(&command("any"))), Some(expected));
        }
        assert_eq!(number(pending.take(&command("any"))), None);
    }

    #[test]
    fn outcomes_without_order_belong_to_the_item_of_their_command() {
        let pending = pending(false);
        assert_eq!(number(pending.take(&command("b"))), Some(2));
        assert_eq!(number(pending.take_number(1)), Some(1));
        assert_eq!(number(pending.take(&command("a"))), Some(3));
        assert_eq!(number(pending.take(&command("a"))), None);
        assert_eq!(number(pending.take(&command("c"))), Some(4));
    }
}

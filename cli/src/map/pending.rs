//! The items whose commands have no outcome yet.

use std::collections::{HashMap, VecDeque};
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
#[derive(Clone, Default)]
pub(super) struct Pending(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// The items of each command, in their order.
    items: HashMap<Vec<Vec<u8>>, VecDeque<Item>>,
    error: Option<anyhow::Error>,
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, item: Item, command: &[Vec<u8>]) {
        self.lock().items.entry(command.to_vec()).or_default().push_back(item);
    }

    /// Removes the first item of a command, whose outcome has come. Items with equal commands have
    /// equal rights.
    pub(super) fn take(&self, command: &[Vec<u8>]) -> Option<Item> {
        self.lock().remove(command, 0)
    }

    /// Removes the item of this number, with its command.
    pub(super) fn take_number(&self, number: u64) -> Option<(Item, Vec<Vec<u8>>)> {
        let mut inner = self.lock();
        let (command, place) = inner.items.iter().find_map(|(command, items)| {
            let place = items.iter().position(|item| item.number == number)?;
            Some((command.clone(), place))
        })?;
        Some((inner.remove(&command, place)?, command))
    }

    /// Takes the error that has ended the items.
    pub(super) fn take_error(&self) -> Option<anyhow::Error> {
        self.lock().error.take()
    }
}

impl Inner {
    fn remove(&mut self, command: &[Vec<u8>], place: usize) -> Option<Item> {
        let items = self.items.get_mut(command)?;
        let item = items.remove(place);
        if items.is_empty() {
            self.items.remove(command);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::items::Fields;

    fn command(word: &str) -> Vec<Vec<u8>> {
        vec![word.into()]
    }

    fn pending() -> Pending {
        let pending = Pending::default();
        for (number, word) in (1..).zip(["a", "b", "a", "c"]) {
            pending.add(Item { number, fields: Fields::Text(word.into()) }, &command(word));
        }
        pending
    }

    #[test]
    fn outcomes_belong_to_the_first_item_of_their_command() {
        let pending = pending();
        let taken = |word| pending.take(&command(word)).map(|item| item.number);
        for (word, number) in [("c", 4), ("a", 1), ("b", 2), ("a", 3)] {
            assert_eq!(taken(word), Some(number), "{word}");
        }
        assert_eq!(taken("a"), None);
    }

    #[test]
    fn a_task_without_an_outcome_belongs_to_its_number() {
        let pending = pending();
        let lost = |number| pending.take_number(number).map(|(item, of)| (item.number, of));
        assert_eq!(lost(1), Some((1, command("a"))));
        assert_eq!(pending.take(&command("a")).map(|item| item.number), Some(3));
        assert_eq!(lost(3), None);
        assert_eq!(lost(4), Some((4, command("c"))));
    }
}

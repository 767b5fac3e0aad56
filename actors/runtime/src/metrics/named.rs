//! Which queues and actors have series of their own. A program may make any number, with any names.

use std::collections::BTreeMap;

use super::totals::NAMED;

/// The label of those without series of their own.
pub(super) const OTHERS: &str = "(others)";

/// The names that exist, and whether they have series of their own. A name keeps what it got while
/// something has it: if it changed, its counters would count twice.
#[derive(Debug, Default)]
pub(super) struct Named(BTreeMap<String, bool>);

impl Named {
    /// Returns each item with the label for its name.
    pub(super) fn label<'a, T>(
        &mut self,
        items: &'a [T],
        name: impl Fn(&'a T) -> &'a str,
    ) -> Vec<(&'a T, &'a str)> {
        let before = std::mem::take(&mut self.0);
        let known = |item: &'a T| Some((name(item).to_string(), *before.get(name(item))?));
        self.0 = items.iter().filter_map(known).collect();
        let mut named = self.0.values().filter(|is_named| **is_named).count();
        let mut label = |name: &'a str| {
            let is_named = *self.0.entry(name.to_string()).or_insert_with(|| {
                named += 1;
                named <= NAMED
            });
            if is_named { name } else { OTHERS }
        };
        items.iter().map(|item| (item, label(name(item)))).collect()
    }
}

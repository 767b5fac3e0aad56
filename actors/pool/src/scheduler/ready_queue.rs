//! The order in which calls are served.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fiber_core::SortedMap;

use super::call::Call;
use crate::run::CallId;

/// Calls with tasks to hand out. Those around which most tasks wait are first, so that what has
/// begun ends before more begins, and then those that have received least time.
#[derive(Default)]
pub(super) struct ReadyQueue {
    /// Some calls may have been cancelled.
    calls: BinaryHeap<Reverse<(Reverse<u32>, u64, CallId)>>,
    /// Whether the memory of values is scarce: tasks that take outputs of others go before those
    /// that make some.
    is_scarce: bool,
}

impl ReadyQueue {
    /// Adds a call, if it has tasks and is not there.
    pub(super) fn add<C: Clone>(&mut self, id: CallId, call: &mut Call<C>) {
        if call.has_tasks() && !std::mem::replace(&mut call.is_queued, true) {
            let frees_memory = call.options.comes_first || (self.is_scarce && call.takes_outputs);
            let rank = 2 * call.depth + u32::from(frees_memory);
            self.calls.push(Reverse((Reverse(rank), call.served, id)));
        }
    }

    /// Returns the first call.
    pub(super) fn first<C>(&mut self, calls: &SortedMap<CallId, Call<C>>) -> Option<CallId> {
        while let Some(Reverse((.., id))) = self.calls.peek() {
            if calls.contains_key(id) {
                return Some(*id);
            }
            self.calls.pop();
        }
        None
    }

    /// Returns the time that the first call has received; 0 if there is none. A call that is new or
    /// was throttled does not catch up on it.
    pub(super) fn served<C>(&mut self, calls: &SortedMap<CallId, Call<C>>) -> u64 {
        self.first(calls).and_then(|id| calls.get(&id)).map_or(0, |call| call.served)
    }

    /// Removes the first call.
    pub(super) fn remove_first<C>(&mut self, call: &mut Call<C>) {
        self.calls.pop();
        call.is_queued = false;
    }

    /// Adapts the order to how many more bytes values may take in this process, of `limit` in all.
    pub(super) fn set_memory<C: Clone>(
        &mut self,
        room: u64,
        limit: u64,
        calls: &mut SortedMap<CallId, Call<C>>,
    ) {
        let enough = if self.is_scarce { limit / 8 * 5 } else { limit / 2 };
        let is_scarce = room < enough;
        if std::mem::replace(&mut self.is_scarce, is_scarce) == is_scarce {
            return;
        }
        self.calls.clear();
        for (id, call) in calls.iter_mut() {
            if std::mem::take(&mut call.is_queued) {
                self.add(*id, call);
            }
        }
    }
}

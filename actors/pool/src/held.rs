//! Tasks that wait for inputs: they are submitted when all outputs among their arguments are there.
//!
//! The call owns its tasks, a task its inputs, and an input knows the tasks that wait for it. So a
//! call that is cancelled lets go of its tasks, and these of inputs that nothing else needs.

use std::any::Any;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use fiber_core::{Error, SortedMap};
use fiber_values::blob::Blobs;
use fiber_values::{Dependent, OutputCell, Parts, afterwards, codec};
use parking_lot::Mutex;

use super::exchange::Exchange;
use super::run::{Run, encode_parts};
use super::state::PoolState;

/// So many tasks of a call, and so many of their inputs, tell what its tasks wait for.
const MAX_LOOKED_AT: usize = 100;
const MAX_INPUTS: usize = 64 << 10;
/// The most functions that are named.
const MAX_NAMED: usize = 8;

/// The tasks of a call that wait for inputs.
#[derive(Default)]
pub(super) struct HeldTasks(Mutex<Blocks>);

/// Tasks by their indexes. Neighbours share an entry of the map, because each takes an allocation.
#[derive(Default)]
struct Blocks {
    blocks: SortedMap<u64, [Option<Arc<HeldTask>>; BLOCK as usize]>,
    count: u64,
}

/// How many neighbours share an entry.
const BLOCK: u64 = 4;

/// A task that waits for inputs.
struct HeldTask {
    exchange: Weak<Exchange>,
    index: u64,
    parts: Parts,
    /// How many inputs are not there, and one until all are counted.
    missing: AtomicUsize,
}

impl Blocks {
    fn insert(&mut self, task: Arc<HeldTask>) {
        let (block, place) = (task.index / BLOCK, (task.index % BLOCK) as usize);
        if !self.blocks.contains_key(&block) {
            self.blocks.insert(block, Default::default());
        }
        let tasks = self.blocks.get_mut(&block).expect("it was just added");
        self.count += u64::from(tasks[place].replace(task).is_none());
    }

    fn remove(&mut self, index: u64) -> Option<Arc<HeldTask>> {
        let (block, place) = (index / BLOCK, (index % BLOCK) as usize);
        let tasks = self.blocks.get_mut(&block)?;
        let task = tasks[place].take()?;
        if tasks.iter().all(Option::is_none) {
            self.blocks.remove(&block);
        }
        self.count -= 1;
        Some(task)
    }

    /// Returns the tasks in their order.
    fn iter(&self) -> impl Iterator<Item = &Arc<HeldTask>> {
        self.blocks.values().flat_map(|tasks| tasks.iter().flatten())
    }
}

impl HeldTasks {
    pub(super) fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// Returns the functions whose values the next tasks wait for, those of most values first.
    pub(super) fn waits_for(&self) -> Vec<String> {
        let held = self.0.lock();
        let inputs = held.iter().take(MAX_LOOKED_AT).flat_map(|task| task.parts.outputs());
        let mut counts = Vec::<(&str, u64)>::new();
        for function in inputs.take(MAX_INPUTS).filter_map(|cell| cell.missing()) {
            match counts.iter_mut().find(|(counted, _)| *counted == function) {
                Some((_, count)) => *count += 1,
                None => counts.push((function, 1)),
            }
        }
        counts.sort_by_key(|(_, count)| Reverse(*count));
        counts.into_iter().take(MAX_NAMED).map(|(function, _)| function.to_string()).collect()
    }

    /// Lets go of the tasks.
    pub(super) fn clear(&self) {
        let held = std::mem::take(&mut *self.0.lock());
        if held.count > 0 {
            // They may own the last handles of their inputs, and these their calls.
            afterwards(move || drop(held));
        }
    }
}

/// Submits a task when all its inputs are there.
pub(super) fn submit_when_ready(exchange: &Arc<Exchange>, index: u64, parts: Parts) {
    let missing = AtomicUsize::new(1);
    let task = Arc::new(HeldTask { exchange: Arc::downgrade(exchange), index, parts, missing });
    exchange.held.0.lock().insert(Arc::clone(&task));
    task.wait_for(OutputCell::tell);
    // A call that has been stopped meanwhile has let go of its earlier tasks alone.
    if exchange.is_stopped() {
        return exchange.held.clear();
    }
    task.input_is_ready();
}

/// Takes out the task that waits for the value of this one, if it is the only one and waits for
/// nothing else. Returns it with the cell of the value.
pub(super) fn take_follower(before: &Exchange, index: u64) -> Option<(ReadyTask, Arc<OutputCell>)> {
    let cell = before.sink()?.cell(index)?;
    let task: Arc<HeldTask> = cell.only_dependent()?.as_task()?.downcast().ok()?;
    let exchange = task.exchange.upgrade()?;
    let pool = exchange.origin.pool.upgrade()?;
    let is_one = task.missing.load(Ordering::Acquire) == 1;
    if !is_one || exchange.durable.is_some() || task.parts.size() > SHORT {
        return None;
    }
    // As for a task whose inputs are there: without it, the call has been stopped.
    exchange.held.0.lock().remove(task.index)?;
    let (index, parts) = (task.index, task.parts.clone());
    Some((ReadyTask { pool, exchange, index, parts }, cell))
}

impl Dependent for HeldTask {
    fn as_task(self: Arc<Self>) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self)
    }

    fn input_is_ready(self: Arc<Self>) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let Some(exchange) = self.exchange.upgrade() else { return };
        let Some(pool) = exchange.origin.pool.upgrade() else { return };
        // A recorded outcome is found by the bytes of the inputs.
        if exchange.durable.is_some() {
            self.missing.store(1, Ordering::Release);
            self.wait_for(OutputCell::tell_when_here);
            if self.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
                return;
            }
        }
        let held = exchange.held.0.lock().remove(self.index);
        // Without it, the call has been stopped.
        if held.is_some() {
            self.submit(&pool, exchange);
        }
    }
}

/// A task whose inputs are there.
pub(super) struct ReadyTask {
    pub(super) pool: Arc<PoolState>,
    pub(super) exchange: Arc<Exchange>,
    pub(super) index: u64,
    pub(super) parts: Parts,
}

impl ReadyTask {
    /// Submits the task: now, or with others that become ready [`together`].
    pub(super) fn submit(self) {
        let mut task = Some(self);
        let _ = GATHERED.try_with(|gathered| {
            if let Some(gathered) = &mut *gathered.borrow_mut() {
                gathered.extend(task.take());
            }
        });
        if let Some(ReadyTask { pool, exchange, index, parts }) = task {
            let counted = exchange.count(parts.size());
            pool.submit(&exchange, Run::with_parts(exchange.id, index, counted, parts));
        }
    }

    /// Returns the encoded arguments, if they are short, and the task can run with others.
    fn short_arguments(&self) -> Option<Vec<u8>> {
        let has_handles = || self.parts.outputs().any(|cell| cell.has_handles());
        if self.exchange.durable.is_some() || self.parts.size() > SHORT || has_handles() {
            return None;
        }
        let (bytes, blobs) = encode_parts(&self.parts)?;
        blobs.is_empty().then_some(bytes)
    }
}

/// Arguments of at most so many bytes are copied, so that tasks go to workers together.
const SHORT: usize = 1 << 10;
/// The most tasks that become one run.
const MOST: u64 = 64;

thread_local! {
    /// The tasks that have become ready on this thread, while they are gathered.
    static GATHERED: RefCell<Option<Vec<ReadyTask>>> = const { RefCell::new(None) };
}

/// Delivers outcomes, and submits those tasks together that become ready by them.
pub(super) fn together(deliver: impl FnOnce()) {
    /// Submits them also after a panic.
    struct Submit;
    impl Drop for Submit {
        fn drop(&mut self) {
            submit_all(GATHERED.take().unwrap_or_default());
        }
    }

    let is_within = GATHERED.try_with(|gathered| {
        let mut gathered = gathered.borrow_mut();
        let is_within = gathered.is_some();
        gathered.get_or_insert_default();
        is_within
    });
    // A thread that ends may have lost it.
    let is_within = is_within.unwrap_or(true);
    let _submit = (!is_within).then(|| Submit);
    deliver();
}

/// Submits tasks, neighbours with short arguments as one run.
fn submit_all(tasks: Vec<ReadyTask>) {
    let mut tasks = tasks.into_iter().peekable();
    while let Some(first) = tasks.next() {
        let Some(mut bytes) = first.short_arguments() else {
            first.submit();
            continue;
        };
        let mut end = first.index + 1;
        while let Some(next) = tasks.peek()
            && Arc::ptr_eq(&next.exchange, &first.exchange)
            && next.index == end
            && end - first.index < MOST
            && let Some(more) = next.short_arguments()
        {
            bytes.extend_from_slice(&more);
            end += 1;
            tasks.next();
        }
        let bytes = first.exchange.store(bytes, &Blobs::default());
        let run = Run::new(first.exchange.id, first.index, end, bytes);
        first.pool.submit(&first.exchange, run);
    }
}

impl HeldTask {
    /// Counts the inputs that are missing, which `tell` when they are there.
    fn wait_for(
        self: &Arc<HeldTask>,
        tell: impl Fn(&Arc<OutputCell>, &Weak<dyn Dependent>) -> bool,
    ) {
        let dependent = Arc::downgrade(self) as Weak<dyn Dependent>;
        for cell in self.parts.outputs() {
            self.missing.fetch_add(1, Ordering::Relaxed);
            if !tell(cell, &dependent) {
                self.missing.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn submit(&self, pool: &Arc<PoolState>, exchange: Arc<Exchange>) {
        let (function, index, limit) = (exchange.function, self.index, pool.max_message as u64);
        let problem = match self.parts.failure() {
            // The cause is that of the first task that has failed.
            Some(Error::InputFailed { cause, .. }) => {
                Some(Error::InputFailed { function, index, cause })
            }
            Some(cause) => Some(Error::InputFailed { function, index, cause: Arc::new(cause) }),
            None => codec::check_size(self.parts.size(), limit, || {
                format!("the arguments of task {index} (`{function}`) with their inputs")
            })
            .err(),
        };
        match problem {
            None => {
                pool.record_inputs(&exchange, index, &self.parts);
                let task = ReadyTask {
                    pool: Arc::clone(pool),
                    exchange,
                    index,
                    parts: self.parts.clone(),
                };
                task.submit_or_find();
            }
            Some(error) => {
                pool.skip(exchange.id);
                exchange.fail(index, error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_tasks_are_found_by_their_indexes() {
        let mut held = Blocks::default();
        let indexes = [7, 3, 4, 100, 0, 5];
        for index in indexes {
            let (exchange, parts, missing) = (Weak::new(), Parts::default(), AtomicUsize::new(1));
            held.insert(Arc::new(HeldTask { exchange, index, parts, missing }));
        }
        let all: Vec<_> = held.iter().map(|task| task.index).collect();
        assert_eq!((all, held.count), (vec![0, 3, 4, 5, 7, 100], 6));
        assert!(held.remove(6).is_none() && held.remove(50).is_none());
        for index in indexes {
            assert_eq!(held.remove(index).map(|task| task.index), Some(index));
            assert!(held.remove(index).is_none());
        }
        assert!(held.count == 0 && held.blocks.is_empty());
    }
}

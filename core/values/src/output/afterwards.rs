//! Steps that follow from others.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;

type Step = Box<dyn FnOnce()>;

thread_local! {
    /// The steps that are due on this thread, if it is within one or holds them back.
    static DUE: RefCell<Option<VecDeque<Step>>> = const { RefCell::new(None) };
}

/// Takes a step that follows from another, after that one: a chain of tasks would otherwise be as
/// deep on the stack as it is long.
pub fn afterwards(step: impl FnOnce() + 'static) {
    let mut step = Some(Box::new(step) as Step);
    let add = |due: &RefCell<Option<VecDeque<Step>>>| {
        if let Some(due) = &mut *due.borrow_mut() {
            due.extend(step.take());
        }
    };
    // Without thread-local values the thread is about to end, and takes it at once.
    let _ = DUE.try_with(add);
    let Some(step) = step else { return };
    let _behind = hold_back();
    step();
}

/// Holds the steps of this thread back that follow from others, until the result is dropped: they
/// may need a lock that the thread has.
pub fn hold_back() -> HeldBack {
    let is_first = DUE.try_with(|due| {
        let mut due = due.borrow_mut();
        let is_first = due.is_none();
        due.get_or_insert_default();
        is_first
    });
    HeldBack { is_first: is_first.unwrap_or(false), of_this_thread: PhantomData }
}

/// See [`hold_back`].
#[must_use]
#[derive(Debug)]
pub struct HeldBack {
    is_first: bool,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        /// Lets the next step be the first again, also after a panic.
        struct Last;
        impl Drop for Last {
            fn drop(&mut self) {
                let left = DUE.try_with(RefCell::take);
                drop(left);
            }
        }

        if !self.is_first {
            return;
        }
        let _last = Last;
        let next = || DUE.try_with(|due| due.borrow_mut().as_mut().and_then(VecDeque::pop_front));
        while !std::thread::panicking()
            && let Ok(Some(step)) = next()
        {
            step();
        }
    }
}

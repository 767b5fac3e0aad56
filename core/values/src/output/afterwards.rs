//! Steps that follow from others.

use std::cell::RefCell;
use std::collections::VecDeque;

type Step = Box<dyn FnOnce()>;

thread_local! {
    /// The steps that are due on this thread, if it is within one.
    static DUE: RefCell<Option<VecDeque<Step>>> = const { RefCell::new(None) };
}

/// Takes a step that follows from another, after that one: a chain of tasks would otherwise be as
/// deep on the stack as it is long.
pub fn afterwards(step: impl FnOnce() + 'static) {
    /// Lets the next step be the first again, also after a panic.
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            let left = DUE.try_with(RefCell::take);
            drop(left);
        }
    }

    let mut step = Some(Box::new(step) as Step);
    let add = |due: &RefCell<Option<VecDeque<Step>>>| match &mut *due.borrow_mut() {
        Some(due) => due.extend(step.take()),
        none => *none = Some(VecDeque::new()),
    };
    // Without thread-local values the thread is about to end, and takes it at once.
    let _ = DUE.try_with(add);
    let Some(step) = step else { return };
    let _last = Last;
    step();
    let next = || DUE.try_with(|due| due.borrow_mut().as_mut().and_then(VecDeque::pop_front));
    while let Ok(Some(step)) = next() {
        step();
    }
}

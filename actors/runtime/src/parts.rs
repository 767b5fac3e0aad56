//! The values that modules keep for a session, instead of statics.
//!
//! A process usually has one session, whose [`Parts`] are there from its start, before its runtime
//! is. A thread that works for another session [enters](Parts::enter) its parts, as a thread enters
//! a runtime of tokio. Objects keep the runtime with which they were made, so only the public edge
//! asks for the current session.
//!
//! Parts are never freed: addresses, guards and threads of users refer to them without a count, and
//! a process has one session, or a few in tests. The end of a session empties them.

use std::any::{Any, TypeId};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use parking_lot::RwLock;

/// The parts of the session that the process itself has.
static OF_PROCESS: Parts = Parts::new();

thread_local! {
    static CURRENT: Cell<&'static Parts> = const { Cell::new(&OF_PROCESS) };
}

type Value = &'static (dyn Any + Send + Sync);

/// One value of each type, made on first use.
pub struct Parts {
    values: RwLock<BTreeMap<TypeId, Value>>,
}

impl Parts {
    const fn new() -> Parts {
        Parts { values: RwLock::new(BTreeMap::new()) }
    }

    /// Makes the parts of another session.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn of_another_session() -> &'static Parts {
        Box::leak(Box::new(Parts::new()))
    }

    /// Returns whether these belong to a session beside that of the process.
    #[cfg(feature = "simulation")]
    pub(crate) fn is_simulated(&self) -> bool {
        !std::ptr::eq(self, &OF_PROCESS)
    }

    /// Returns the parts of this thread's session.
    pub fn current() -> &'static Parts {
        CURRENT.get()
    }

    /// Makes these parts the current ones of this thread, until the guard is dropped.
    pub fn enter(&'static self) -> Entered {
        Entered { outer: CURRENT.replace(self), of_this_thread: PhantomData }
    }

    /// Returns the part of a type. A look-up takes a lock and a search: code that runs for each
    /// message or task keeps the reference.
    pub fn get<T: Default + Send + Sync + 'static>(&self) -> &'static T {
        let id = TypeId::of::<T>();
        let known = self.values.read().get(&id).copied();
        let value = known.unwrap_or_else(|| {
            *self.values.write().entry(id).or_insert_with(|| Box::leak(Box::<T>::default()))
        });
        value.downcast_ref().expect("a value is stored under its type")
    }
}

/// Makes the outer parts the current ones again when it is dropped.
#[must_use]
pub struct Entered {
    outer: &'static Parts,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Calls(RwLock<u64>);

    fn count() -> u64 {
        let mut calls = Parts::current().get::<Calls>().0.write();
        *calls += 1;
        *calls
    }

    #[test]
    fn each_session_has_one_value_of_a_type() {
        assert_eq!((count(), count()), (1, 2));
        let other = Parts::of_another_session();
        {
            let _entered = other.enter();
            assert_eq!((count(), count(), count()), (1, 2, 3));
        }
        assert_eq!(count(), 3);
        assert_eq!(*other.get::<Calls>().0.read(), 3);
    }
}

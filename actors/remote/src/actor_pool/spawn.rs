//! Further actors in the processes of a pool.

use actix::{Actor, Context};
use fiber_core::Error;
use fiber_values::{Function, Portable, assert_captures_nothing};
use futures_util::future::try_join_all;

use super::ActorPool;
use crate::manager::AsyncManager;
use fiber_runtime::reply::Reply;

impl<A: Actor> ActorPool<A> {
    /// Starts one actor in the process of each actor of the pool, from the items in the order of
    /// [`managers`](ActorPool::managers), as [`AsyncManager::spawn`].
    ///
    /// They are managed actors of their own, which get no messages of the pool. If one of them
    /// can't start, the others stop.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are more or fewer items than actors; otherwise as
    /// [`ManagerBuilder::start`](crate::manager::ManagerBuilder::start).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [0, 0]).wait()?;
    /// let more = pool.spawn(Counter, [10, 20]).wait()?;
    /// assert_eq!(more[1].send(Add(1)).wait()?, 21);
    /// assert_eq!(more[1].pid(), pool.managers().nth(1).unwrap().pid());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F, Args, M>(
        &self,
        factory: F,
        items: impl IntoIterator<Item = Args>,
    ) -> Reply<Vec<AsyncManager<F::Output>>>
    where
        F: Function<Args, M>,
        F::Output: Actor<Context = Context<F::Output>>,
        Args: Portable + 'static,
        M: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let (items, managers): (Vec<_>, _) = (items.into_iter().collect(), &self.managers);
        if items.len() != managers.len() {
            let (items, actors) = (items.len(), managers.len());
            let problem = format!("it got {items} items for the {actors} actors of the pool");
            return Reply::failed(Error::invalid("ActorPool::spawn", problem));
        }
        let mut starting = Vec::with_capacity(items.len());
        // A closure would hide the caller, whose place names the factory.
        for (manager, item) in managers.iter().zip(items) {
            starting.push(manager.spawn(factory, item));
        }
        Reply::new(try_join_all(starting))
    }
}

//! Addresses whose messages are urgent, or have the deadline of a request.

use std::time::Instant;

use actix::Actor;
use fiber_runtime::mesh::current_deadline;

use super::addr::RemoteAddr;

/// Returns when the caller stops waiting whose request this thread handles.
///
/// There is a deadline if the address by which the caller has sent the message has a
/// [timeout](RemoteAddr::timeout), or if the caller handled a request with a deadline itself.
/// Handlers of managed actors know it while they run; the future that a handler returns does not,
/// so it takes it from the handler. [`RemoteAddr::inherit_deadline`] has an example.
pub fn deadline() -> Option<Instant> {
    current_deadline()
}

impl<A: Actor> RemoteAddr<A> {
    /// Returns the same address, whose messages a managed actor handles before all that are not
    /// urgent. They keep their order among each other.
    ///
    /// A handler that runs is not interrupted. Messages to an exported actor overtake those that
    /// are not in its mailbox yet.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// (0..1000).for_each(|_| counter.do_send(Add(1)));
    /// let soon = counter.addr().urgent().send(Add(0)).wait()?;
    /// assert!(soon <= counter.send(Add(0)).wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use]
    pub fn urgent(mut self) -> RemoteAddr<A> {
        self.untyped.urgent = true;
        self
    }

    /// Returns the same address, whose calls end when the request does that this thread handles:
    /// see [`deadline`]. It suits handlers that return a future. Calls that a handler sends before
    /// it returns have the deadline anyway.
    ///
    /// In another process the address is one without the deadline.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// use std::time::Duration;
    ///
    /// use fiber::{AsyncManager, RemoteAddr};
    ///
    /// /// Asks a counter.
    /// struct Front(RemoteAddr<Counter>);
    ///
    /// impl Actor for Front {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// #[fiber::message(Result<u64, String>)]
    /// struct Ask;
    ///
    /// impl Handler<Ask> for Front {
    ///     type Result = ResponseFuture<Result<u64, String>>;
    ///
    ///     fn handle(&mut self, _: Ask, _: &mut Context<Self>) -> Self::Result {
    ///         assert!(fiber::remote::deadline().is_some());
    ///         let counter = self.0.clone().inherit_deadline();
    ///         Box::pin(async move {
    ///             // It fails when the caller of `Ask` has given up.
    ///             counter.send(Add(1)).await.map_err(|error| error.to_string())
    ///         })
    ///     }
    /// }
    ///
    /// let counter = AsyncManager::start(Counter, 0).wait()?;
    /// let front = AsyncManager::start(Front, counter.addr()).wait()?;
    /// let front = front.addr().timeout(Duration::from_secs(10));
    /// assert_eq!(front.send(Ask).wait()?, Ok(1));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use]
    pub fn inherit_deadline(mut self) -> RemoteAddr<A> {
        self.untyped.deadline =
            [self.untyped.deadline, current_deadline()].into_iter().flatten().min();
        self
    }
}

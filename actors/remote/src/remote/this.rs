//! The address of the actor whose code runs.

use std::any::type_name;

use actix::Actor;
use fiber_core::{Error, Result};
use fiber_supervisor::own_addr;
use fiber_supervisor::supervisor::ChildRef;

use super::addr::RemoteAddr;

/// Returns the address of the managed or supervised actor of type `A` whose code runs on this thread.
///
/// It works in the actor's handlers, in `started` and `stopped`, in its timers, and in futures in its
/// context. The address of a supervised actor is that of [`RemoteAddr::export`].
///
/// # Errors
/// [`Error::Invalid`] if no such actor runs on this thread: an actor without a supervisor, an entity,
/// which has [`entities::this`](crate::entities::this), or code outside of actors.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::prelude::*;
///
/// /// Tells others where it is.
/// struct Host;
///
/// impl Actor for Host {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::message(RemoteAddr<Host>)]
/// struct Where;
///
/// #[fiber::handlers]
/// impl Host {
///     fn place(&mut self, _: Where) -> RemoteAddr<Host> {
///         fiber::this().expect("it is managed")
///     }
/// }
///
/// let host = AsyncManager::start(|()| Host, ()).wait()?;
/// assert_eq!(host.send(Where).wait()?, host.addr());
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn this<A: Actor>() -> Result<RemoteAddr<A>> {
    if let Some(managed) = own_addr::<RemoteAddr<A>>() {
        return Ok(managed);
    }
    let child = own_addr::<ChildRef<A>>().ok_or_else(|| {
        let problem = format!(
            "no managed or supervised actor of type `{}` runs on this thread",
            type_name::<A>()
        );
        Error::invalid("fiber::this", problem)
    })?;
    RemoteAddr::export(child)
}

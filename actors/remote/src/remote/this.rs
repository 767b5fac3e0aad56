//! The address of the actor whose code runs.

use std::any::type_name;
use std::sync::{Arc, OnceLock};

use actix::Actor;
use fiber_core::{Error, Result};
use fiber_supervisor::this_child;

use super::addr::RemoteAddr;
use super::untyped::UntypedAddr;
use fiber_runtime::runtime::Runtime;

/// The managed actor of this process.
#[derive(Default)]
pub(crate) struct Hosted(OnceLock<(Arc<str>, UntypedAddr)>);

impl Hosted {
    /// Sets the actor's name under its supervisor in this process, and its address.
    pub(crate) fn set(&self, path: Arc<str>, addr: UntypedAddr) {
        let _ = self.0.set((path, addr));
    }
}

/// Returns the address of the managed or supervised actor of type `A` whose code runs on this thread.
///
/// It works in the actor's handlers, in `started` and `stopped`, in its timers, and in futures in its
/// context. The address of a supervised actor is that of [`RemoteAddr::export`].
///
/// # Errors
/// [`Error::Invalid`] if no such actor runs on this thread: an actor without a supervisor, one of
/// [`Entities`](crate::entities::Entities), or code outside of actors.
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
    let child = this_child::<A>().ok_or_else(|| {
        let problem = format!(
            "no managed or supervised actor of type `{}` runs on this thread",
            type_name::<A>()
        );
        Error::invalid("fiber::this", problem)
    })?;
    match Runtime::get()?.part::<Hosted>().0.get() {
        Some((path, addr)) if **path == *child.path() => Ok(RemoteAddr::of(addr.clone())),
        _ => RemoteAddr::export(child),
    }
}

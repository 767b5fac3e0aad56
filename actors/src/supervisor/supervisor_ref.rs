//! References to supervisors.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use actix::{Actor, Recipient};
use fiber_core::{Error, ExitReason, Result};
use tokio::sync::oneshot;

use super::child_ref::ChildRef;
use super::directory::Listed;
use super::identity::{Down, Identity};
use super::mailbox::{Command, End};
use super::nested::SupervisorHandle;
use super::slot::Slot;
use super::spec::ChildSpec;
use crate::reply::Reply;

/// A running supervisor, or the current incarnation of one that is itself supervised.
///
/// Its replies can be awaited on any thread, in any runtime, and waited for without one. Dropping
/// it ends nothing.
#[derive(Clone)]
pub struct SupervisorRef {
    identity: Arc<Identity>,
    handle: SupervisorHandle,
    place: Place,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Below,
}

impl SupervisorRef {
    pub(super) fn root(identity: Arc<Identity>, handle: SupervisorHandle) -> SupervisorRef {
        SupervisorRef { identity, handle, place: Place::Root }
    }

    /// Its full name, with the supervisors above it: `app/workers`.
    pub fn path(&self) -> &str {
        self.identity.path()
    }

    /// Adds a child and waits until it has started. Children that are added at the same time start
    /// at the same time.
    ///
    /// # Errors
    /// [`Error::Start`] if it could not be started: it is forgotten then. [`Error::Invalid`] if its
    /// name is taken or wrong. [`Error::ActorStopped`] if the supervisor ends, or if the child was
    /// ended before it had started.
    pub fn add_child(&self, spec: ChildSpec) -> Reply<()> {
        let this = self.clone();
        Reply::begun(async move {
            let path = format!("{}/{}", this.path(), spec.name());
            let (answer, started) = oneshot::channel();
            this.command(Command::Add(spec, answer)).await?;
            match started.await {
                Ok(result) => result,
                Err(_) => Err(Error::ActorStopped { name: path, reason: ExitReason::Shutdown }),
            }
        })
    }

    /// Adds a child whose first start is like any other: if it fails, it is tried again. The reply
    /// comes before the start.
    pub(crate) fn add_child_in_background(&self, spec: ChildSpec) -> Reply<()> {
        let this = self.clone();
        Reply::begun(async move {
            let (answer, taken_in) = oneshot::channel();
            this.command(Command::Keep(spec, answer)).await?;
            let stopped =
                || Error::ActorStopped { name: this.path().into(), reason: ExitReason::Shutdown };
            taken_in.await.unwrap_or_else(|_| Err(stopped()))
        })
    }

    /// Ends a child as its specification says, waits until it has ended, and forgets it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such child, [`Error::ActorStopped`] if the supervisor has
    /// ended.
    pub fn stop_child(&self, name: &str) -> Reply<()> {
        self.end(name, End::Terminate)
    }

    /// Kills the current incarnation of a child and waits until it has ended. The child is then
    /// treated as if it had failed for this reason by itself: it is restarted if its specification
    /// says so. Does nothing to a child that is not alive at this moment.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such child, [`Error::ActorStopped`] if the supervisor has
    /// ended.
    pub fn kill_child(&self, name: &str, reason: ExitReason) -> Reply<()> {
        self.end(name, End::Kill(reason))
    }

    /// Ends all children in reverse order, then the supervisor itself, and waits until all that has
    /// been done.
    ///
    /// A supervisor that is itself supervised is then restarted if its specification says so: to
    /// end it for good, [stop](SupervisorRef::stop_child) it.
    ///
    /// # Errors
    /// None at present: a supervisor that has ended already is what was asked for.
    pub fn stop(&self) -> Reply<()> {
        let live = self.handle.slot.now();
        if let Some(live) = &live {
            live.addr.do_send(Command::Shutdown);
        }
        let this = self.clone();
        Reply::new(async move {
            if let Some(live) = live {
                live.exit().reason().await;
            }
            if this.place == Place::Root {
                this.handle.slot.ended().await;
            }
            Ok(())
        })
    }

    /// Waits until the supervisor has ended and will not be started again, and says why it ended.
    pub fn join(&self) -> Reply<ExitReason> {
        let slot = self.handle.slot.clone();
        Reply::new(async move { Ok(slot.ended().await) })
    }

    /// The actor of this name, or path (`workers/counter`).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such child, or if it is not an actor of this type.
    pub fn child<A: Actor>(&self, name: &str) -> Result<ChildRef<A>> {
        let listed = self.listed(name)?;
        let slot = typed::<Slot<A>>(name, &listed)?;
        Ok(ChildRef::new(listed.identity, slot))
    }

    /// The supervisor of this name, or path, below this one.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such child, or if it is not a supervisor.
    pub fn supervisor(&self, name: &str) -> Result<SupervisorRef> {
        let listed = self.listed(name)?;
        let handle = typed::<SupervisorHandle>(name, &listed)?;
        Ok(SupervisorRef {
            identity: listed.identity,
            handle: (*handle).clone(),
            place: Place::Below,
        })
    }

    /// What the child of this name, or path, [offers](super::Start::handle).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such child, or if it offers nothing of this type.
    pub fn handle<T: Any + Send + Sync>(&self, name: &str) -> Result<Arc<T>> {
        typed(name, &self.listed(name)?)
    }

    /// Tells `recipient` of the end of each incarnation of this supervisor from now on, exactly
    /// once each. If it has ended for good, it is told so at once.
    pub fn watch(&self, recipient: Recipient<Down>) {
        self.identity.watch(recipient);
    }

    /// Tells `recipient` of the end of each incarnation of a child from now on, exactly once each.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such child.
    pub fn watch_child(&self, name: &str, recipient: Recipient<Down>) -> Result<()> {
        self.listed(name)?.identity.watch(recipient);
        Ok(())
    }

    fn listed(&self, path: &str) -> Result<Listed> {
        match path.split_once('/') {
            None => self.handle.directory.find(self.path(), path),
            Some((first, rest)) => self.supervisor(first)?.listed(rest),
        }
    }

    fn end(&self, name: &str, how: End) -> Reply<()> {
        let (this, name) = (self.clone(), name.to_string());
        Reply::begun(async move {
            let (done, ending) = oneshot::channel();
            this.command(Command::End { name, how, done }).await?;
            match ending.await {
                Ok(ended) => {
                    // It resolves even if it is dropped: the child is gone then as well.
                    let _ = ended?.await;
                    Ok(())
                }
                // The supervisor ended before it could answer, and its children before it.
                Err(_) => Ok(()),
            }
        })
    }

    async fn command(&self, command: Command) -> Result<()> {
        self.handle.slot.send(self.path(), command).await
    }
}

fn typed<T: Any + Send + Sync>(name: &str, listed: &Listed) -> Result<Arc<T>> {
    let typed = listed.handle.clone().and_then(|handle| handle.downcast::<T>().ok());
    typed.ok_or_else(|| {
        let problem = format!("`{name}` is not a child of the type that was asked for");
        Error::invalid("SupervisorRef::child", problem)
    })
}

impl fmt::Debug for SupervisorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SupervisorRef").field(&self.path()).finish()
    }
}

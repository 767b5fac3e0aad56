//! References to supervisors.

use std::any::Any;
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use actix::{Actor, Recipient};
use fiber_core::{Error, ExitReason, Result};
use tokio::sync::oneshot;

use super::child_ref::ChildRef;
use super::directory::DirectoryEntry;
use super::driver::Command;
use super::identity::{Down, Identity};
use super::incarnation::Current;
use super::machine::StopMethod;
use super::nested::SupervisorHandle;
use super::spec::ChildSpec;
use fiber_runtime::reply::Reply;

/// A handle of a running supervisor.
///
/// If the supervisor is itself a child, the handle leads to its current incarnation. It works on
/// any thread, in any runtime and without one. Dropping it stops nothing: the supervisor runs until
/// it is [stopped](SupervisorRef::stop), gives up, or the program ends.
///
/// Requests are messages within this process. Each is sent when its method is called, except while
/// the supervisor itself is restarted: then it is sent when its reply is awaited.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Supervisor;
/// use fiber::supervisor::{ChildSpec, SupervisorRef};
///
/// let app: SupervisorRef = Supervisor::builder("app").start().wait()?;
/// let workers = ChildSpec::supervisor("workers", Supervisor::builder(""));
/// app.add_child(workers).wait()?;
/// assert_eq!(app.path(), "app");
/// assert_eq!(app.supervisor("workers")?.path(), "app/workers");
/// app.stop().wait()?;
/// assert!(app.join().wait()?.is_normal());
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone)]
pub struct SupervisorRef {
    identity: Arc<Identity>,
    handle: SupervisorHandle,
    /// Whether no other supervisor restarts it.
    is_top_level: bool,
}

impl SupervisorRef {
    pub(super) fn top_level(identity: Arc<Identity>, handle: SupervisorHandle) -> SupervisorRef {
        SupervisorRef { identity, handle, is_top_level: true }
    }

    /// Returns the full name, with the supervisors above: `app/workers`. [`SupervisorRef`] has an
    /// example.
    pub fn path(&self) -> &str {
        self.identity.path()
    }

    /// Adds a child. The reply comes when it has started.
    ///
    /// Children that are added at the same time start concurrently.
    ///
    /// # Errors
    /// [`Error::Start`] if the child could not start: it is removed then. [`Error::Invalid`] if its
    /// name is taken or wrong. [`Error::ActorStopped`] if the supervisor ends, or if the child was
    /// stopped before it had started.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Supervisor;
    /// use fiber::supervisor::ChildSpec;
    ///
    /// let app = Supervisor::builder("app").start().wait()?;
    /// app.add_child(ChildSpec::process("sleeper", || std::thread::park(), ())?).wait()?;
    /// app.stop_child("sleeper").wait()?;
    /// app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn add_child(&self, spec: ChildSpec) -> Reply<()> {
        let (this, current) = (self.clone(), self.handle.current.clone());
        let is_shared = spec.starts_on_shared_thread();
        let done = async move {
            let path = format!("{}/{}", this.path(), spec.name());
            let (answer, started) = oneshot::channel();
            this.command(Command::Add(spec, answer)).await?;
            match started.await {
                Ok(result) => result,
                Err(_) => Err(Error::ActorStopped { name: path, reason: ExitReason::Shutdown }),
            }
        };
        Reply::carried(done, move || is_shared && current.shares_this_thread())
    }

    /// Adds a child. The reply comes before its start, and a first start that fails is retried as
    /// any other.
    #[doc(hidden)]
    pub fn add_child_in_background(&self, spec: ChildSpec) -> Reply<()> {
        let this = self.clone();
        let done = async move {
            let (answer, added) = oneshot::channel();
            this.command(Command::AddInBackground(spec, answer)).await?;
            let stopped =
                || Error::ActorStopped { name: this.path().into(), reason: ExitReason::Shutdown };
            added.await.unwrap_or_else(|_| Err(stopped()))
        };
        Reply::carried(done, || false)
    }

    /// Stops a child as its specification says, and removes it. The reply comes at its end.
    /// [`add_child`](SupervisorRef::add_child) has an example.
    ///
    /// A child that does not end within its [deadline](super::ChildSpec::shutdown) is killed.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no child of this name, [`Error::ActorStopped`] if the
    /// supervisor has ended.
    pub fn stop_child(&self, name: &str) -> Reply<()> {
        self.end_child(name, StopMethod::Stop)
    }

    /// Kills the current incarnation of a child. The reply comes at its end.
    ///
    /// The supervisor treats that as a failure for this reason: it restarts the child if the
    /// specification says so. Does nothing to a child that is not alive at this moment.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no child of this name, [`Error::ActorStopped`] if the
    /// supervisor has ended.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Supervisor;
    /// use fiber::error::ExitReason;
    /// use fiber::supervisor::ChildSpec;
    ///
    /// let sleeper = ChildSpec::process("sleeper", || std::thread::park(), ())?;
    /// let app = Supervisor::builder("app").child(sleeper).start().wait()?;
    /// app.kill_child("sleeper", ExitReason::Failed("it hangs".into())).wait()?;
    /// assert_eq!(fiber::tree().find("app/sleeper").unwrap().restarts, 1);
    /// # app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn kill_child(&self, name: &str, reason: ExitReason) -> Reply<()> {
        self.end_child(name, StopMethod::Kill(reason))
    }

    /// Stops all children in reverse order, then the supervisor. The reply comes at its end.
    /// [`SupervisorRef`] has an example.
    ///
    /// The supervisor stops even if the reply is dropped. If it has ended already, the reply comes
    /// at once. A supervisor that is a child is restarted if its specification says so; to stop it
    /// for good, [stop the child](SupervisorRef::stop_child).
    pub fn stop(&self) -> Reply<()> {
        let incarnation = self.handle.current.get();
        if let Some(incarnation) = &incarnation {
            incarnation.addr.do_send(Command::Stop);
        }
        let (this, directory) = (self.clone(), self.handle.directory.clone());
        let done = async move {
            if let Some(incarnation) = incarnation {
                incarnation.exit().reason().await;
            }
            if this.is_top_level {
                this.handle.current.removed().await;
            }
            Ok(())
        };
        Reply::checked(done, move || directory.end_here())
    }

    /// Waits until the supervisor has ended for good, and returns the reason. Asks nothing of it.
    /// [`SupervisorRef`] has an example.
    pub fn join(&self) -> Reply<ExitReason> {
        let SupervisorHandle { current, directory } = self.handle.clone();
        Reply::checked(async move { Ok(current.removed().await) }, move || directory.end_here())
    }

    /// Returns a handle of the actor with this name, or path (`workers/counter`). It sends nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such child, or if it is not an actor of this type.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// use fiber::Supervisor;
    /// use fiber::supervisor::ChildSpec;
    ///
    /// let counter = ChildSpec::actor("counter", || Counter(0));
    /// let workers = Supervisor::builder("").child(counter);
    /// let workers = ChildSpec::supervisor("workers", workers);
    /// let app = Supervisor::builder("app").child(workers).start().wait()?;
    /// let counter = app.child::<Counter>("workers/counter")?;
    /// assert_eq!(counter.send(Add(1)).wait()?, 1);
    /// # app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn child<A: Actor>(&self, name: &str) -> Result<ChildRef<A>> {
        let entry = self.entry(name)?;
        let current = downcast::<Current<A>>(name, &entry)?;
        Ok(ChildRef::new(entry.identity, current))
    }

    /// Returns a handle of the supervisor below this one with this name, or path. It sends nothing.
    /// [`SupervisorRef`] has an example.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such child, or if it is not a supervisor.
    pub fn supervisor(&self, name: &str) -> Result<SupervisorRef> {
        let entry = self.entry(name)?;
        let handle = downcast::<SupervisorHandle>(name, &entry)?;
        Ok(SupervisorRef {
            identity: entry.identity,
            handle: (*handle).clone(),
            is_top_level: false,
        })
    }

    /// Returns the [handle](super::Start::handle) of the child with this name, or path. It sends
    /// nothing. [`Start`](super::Start) has an example.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such child, or if it has no handle of this type.
    pub fn handle<T: Any + Send + Sync>(&self, name: &str) -> Result<Arc<T>> {
        downcast(name, &self.entry(name)?)
    }

    /// Sends `recipient` one [`Down`] for the end of each incarnation of this supervisor, from now
    /// on. If it has ended for good, sends one at once. [`Down`] has an example.
    pub fn watch(&self, recipient: Recipient<Down>) -> Reply<()> {
        self.identity.watch(recipient);
        Reply::new(ready(Ok(())))
    }

    /// Sends `recipient` one [`Down`] for the end of each incarnation of a child, from now on.
    /// [`Down`] has an example.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no child of this name or path.
    pub fn watch_child(&self, name: &str, recipient: Recipient<Down>) -> Reply<()> {
        let watching = self.entry(name).map(|entry| entry.identity.watch(recipient));
        Reply::new(ready(watching))
    }

    fn entry(&self, path: &str) -> Result<DirectoryEntry> {
        match path.split_once('/') {
            None => self.handle.directory.find(self.path(), path),
            Some((first, rest)) => self.supervisor(first)?.entry(rest),
        }
    }

    fn end_child(&self, name: &str, method: StopMethod) -> Reply<()> {
        let (this, name) = (self.clone(), name.to_string());
        let child = self.handle.directory.find(self.path(), &name).ok();
        let done = async move {
            let (answer, ended) = oneshot::channel();
            this.command(Command::StopChild { name, method, answer }).await?;
            // If the supervisor ended before it could answer, its children ended before it.
            ended.await.unwrap_or(Ok(()))
        };
        Reply::carried(done, move || child.as_ref().is_some_and(DirectoryEntry::ends_here))
    }

    async fn command(&self, command: Command) -> Result<()> {
        self.handle.current.send(self.path(), command).await
    }
}

fn downcast<T: Any + Send + Sync>(name: &str, entry: &DirectoryEntry) -> Result<Arc<T>> {
    let handle = entry.handle.clone().and_then(|handle| handle.downcast::<T>().ok());
    handle.ok_or_else(|| {
        let problem = format!("`{name}` is not a child of the requested type");
        Error::invalid("SupervisorRef::child", problem)
    })
}

impl fmt::Debug for SupervisorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SupervisorRef").field(&self.path()).finish()
    }
}

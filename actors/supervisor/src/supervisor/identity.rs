//! The name and the watchers of a child, which its incarnations have in common.

use std::sync::{Arc, OnceLock};

use actix::{Message, Recipient};
use fiber_core::ExitReason;
use parking_lot::Mutex;

/// The message to watchers that an incarnation has ended or could not start.
///
/// An actor that handles it can watch a supervisor's [child](super::SupervisorRef::watch_child), a
/// [supervisor](super::SupervisorRef::watch), or a remote actor.
///
/// # Examples
/// ```
/// use fiber::error::ExitReason;
/// use fiber::prelude::*;
/// use fiber::supervisor::{ChildSpec, Down};
///
/// struct Idle;
///
/// impl Actor for Idle {
///     type Context = Context<Self>;
/// }
///
/// /// Passes on the ends that it receives.
/// struct Watcher(Queue<(String, ExitReason)>);
///
/// impl Actor for Watcher {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::handlers]
/// impl Watcher {
///     fn down(&mut self, down: Down) {
///         drop(self.0.put((down.name, down.reason)));
///     }
/// }
///
/// #[fiber::main]
/// async fn main() -> fiber::Result<()> {
///     let idle = ChildSpec::actor("idle", || Idle);
///     let app = Supervisor::builder("app").child(idle).start().await?;
///     let ends = Queue::new()?;
///     app.watch_child("idle", Watcher(ends.clone()).start().recipient()).await?;
///
///     let reason = ExitReason::Failed("it is too slow".into());
///     app.kill_child("idle", reason.clone()).await?;
///     assert_eq!(ends.get().await?, ("app/idle".to_string(), reason));
///     app.stop().await
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Down {
    /// The full name, with the supervisors above: `app/counter`.
    pub name: String,
    /// The actor's number in its pool, if it is watched as one of a pool.
    pub index: Option<usize>,
    /// Why the incarnation ended.
    pub reason: ExitReason,
}

impl Down {
    /// Makes the message about the end of `name`.
    #[doc(hidden)]
    pub fn new(name: String, index: Option<usize>, reason: ExitReason) -> Down {
        Down { name, index, reason }
    }
}

impl Message for Down {
    type Result = ();
}

pub(super) struct Identity {
    name: String,
    path: OnceLock<String>,
    watch: Mutex<Watch>,
}

enum Watch {
    Open {
        watchers: Vec<Watcher>,
        /// Why the child has ended by itself, until it is started again with others.
        finished: Option<ExitReason>,
    },
    /// The child was removed; its last incarnation ended for this reason.
    Closed(ExitReason),
}

impl Watch {
    fn new() -> Watch {
        Watch::Open { watchers: Vec::new(), finished: None }
    }
}

enum Watcher {
    Recipient {
        recipient: Recipient<Down>,
        /// Whether the recipient has got a `Down`.
        notified: bool,
    },
    Listener(Listener),
}

/// Listens to the ends of a child, until it is not started again.
pub(super) type Listener = Box<dyn Fn(ChildEnd<'_>) + Send>;

/// An end of a child, for fiber's own code.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum ChildEnd<'a> {
    /// An incarnation has ended, or could not start.
    Incarnation(&'a ExitReason),
    /// There is no next incarnation.
    Last(&'a ExitReason),
}

impl Identity {
    pub(super) fn new(name: String) -> Identity {
        Identity { name, path: OnceLock::new(), watch: Mutex::new(Watch::new()) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the full name, or the bare one before [`attach`](Identity::attach).
    pub(super) fn path(&self) -> &str {
        self.path.get().unwrap_or(&self.name)
    }

    /// Makes it the identity of a child of the supervisor `parent`, or of one in its place.
    pub(super) fn attach(&self, parent: Option<&str>) {
        if let Some(parent) = parent {
            self.path.get_or_init(|| format!("{parent}/{}", self.name));
        }
        let mut watch = self.watch.lock();
        if matches!(*watch, Watch::Closed(_)) {
            *watch = Watch::new();
        }
    }

    pub(super) fn watch(&self, recipient: Recipient<Down>) {
        match &mut *self.watch.lock() {
            Watch::Open { watchers, finished } => {
                let notified = finished.is_some();
                finished.iter().for_each(|reason| recipient.do_send(self.down(reason)));
                watchers.push(Watcher::Recipient { recipient, notified });
            }
            Watch::Closed(reason) => recipient.do_send(self.down(reason)),
        }
    }

    pub(super) fn listen(&self, listener: Listener) {
        match &mut *self.watch.lock() {
            Watch::Open { watchers, finished: None } => watchers.push(Watcher::Listener(listener)),
            Watch::Open { finished: Some(reason), .. } | Watch::Closed(reason) => {
                listener(ChildEnd::Last(reason));
            }
        }
    }

    /// Lets go of the listeners, as the child is not started again by itself.
    pub(super) fn finish(&self, reason: &ExitReason) {
        if let Watch::Open { watchers, finished } = &mut *self.watch.lock() {
            *finished = Some(reason.clone());
            watchers.retain_mut(|watcher| match watcher {
                Watcher::Recipient { recipient, notified } => {
                    // It began to watch after the end.
                    if !std::mem::replace(notified, true) {
                        recipient.do_send(self.down(reason));
                    }
                    true
                }
                Watcher::Listener(listener) => {
                    listener(ChildEnd::Last(reason));
                    false
                }
            });
        }
    }

    /// Notes that there is a next incarnation.
    fn started(&self) {
        if let Watch::Open { finished, .. } = &mut *self.watch.lock() {
            *finished = None;
        }
    }

    /// Ends the watch, as the child is not started again. One that has ended by itself keeps its
    /// reason.
    pub(super) fn close(&self, reason: &ExitReason) {
        let mut watch = self.watch.lock();
        let last = match &*watch {
            Watch::Open { finished: Some(own), .. } => own.clone(),
            _ => reason.clone(),
        };
        let before = std::mem::replace(&mut *watch, Watch::Closed(last));
        drop(watch);
        if let Watch::Open { watchers, .. } = before {
            for watcher in watchers {
                match watcher {
                    Watcher::Recipient { notified: true, .. } => {}
                    // It began to watch after the last end.
                    Watcher::Recipient { recipient, .. } => recipient.do_send(self.down(reason)),
                    Watcher::Listener(listener) => listener(ChildEnd::Last(reason)),
                }
            }
        }
    }

    fn notify(&self, reason: &ExitReason) {
        if let Watch::Open { watchers, .. } = &mut *self.watch.lock() {
            watchers.retain_mut(|watcher| match watcher {
                Watcher::Recipient { recipient, notified } => {
                    recipient.do_send(self.down(reason));
                    *notified = true;
                    recipient.connected()
                }
                Watcher::Listener(listener) => {
                    listener(ChildEnd::Incarnation(reason));
                    true
                }
            });
        }
    }

    fn down(&self, reason: &ExitReason) -> Down {
        Down::new(self.path().into(), None, reason.clone())
    }
}

/// Sends the watchers one [`Down`] for an incarnation when it is dropped.
pub(super) struct DownGuard {
    identity: Arc<Identity>,
    reason: ExitReason,
}

impl DownGuard {
    pub(super) fn new(identity: Arc<Identity>) -> DownGuard {
        identity.started();
        DownGuard { identity, reason: ExitReason::Shutdown }
    }

    /// Sends the message with a reason other than [`ExitReason::Shutdown`].
    pub(super) fn finish(mut self, reason: &ExitReason) {
        self.reason = reason.clone();
    }
}

impl Drop for DownGuard {
    fn drop(&mut self) {
        self.identity.notify(&self.reason);
    }
}

//! What stays the same from one incarnation of a child to the next: its name and those who watch
//! it.

use std::sync::OnceLock;

use actix::{Message, Recipient};
use fiber_core::ExitReason;
use parking_lot::Mutex;

/// An incarnation of a watched child or supervisor has ended, or could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Down {
    /// The full name, with the supervisors above it: `app/counter`.
    pub name: String,
    /// Why it ended.
    pub reason: ExitReason,
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
    Open(Vec<Watcher>),
    Gone(ExitReason),
}

struct Watcher {
    recipient: Recipient<Down>,
    told: Told,
}

#[derive(PartialEq)]
enum Told {
    Nothing,
    AnEnd,
}

impl Identity {
    pub(super) fn new(name: String) -> Identity {
        Identity { name, path: OnceLock::new(), watch: Mutex::new(Watch::Open(Vec::new())) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The full name; the bare one until a supervisor has taken the child.
    pub(super) fn path(&self) -> &str {
        self.path.get().unwrap_or(&self.name)
    }

    /// A supervisor takes the child.
    pub(super) fn taken(&self, parent: &str) {
        self.path.get_or_init(|| format!("{parent}/{}", self.name));
        let mut watch = self.watch.lock();
        if matches!(*watch, Watch::Gone(_)) {
            *watch = Watch::Open(Vec::new());
        }
    }

    pub(super) fn watch(&self, recipient: Recipient<Down>) {
        match &mut *self.watch.lock() {
            Watch::Open(watchers) => watchers.push(Watcher { recipient, told: Told::Nothing }),
            Watch::Gone(reason) => recipient.do_send(self.down(reason)),
        }
    }

    /// The child will not be started again.
    pub(super) fn gone(&self, reason: &ExitReason) {
        let before = std::mem::replace(&mut *self.watch.lock(), Watch::Gone(reason.clone()));
        if let Watch::Open(watchers) = before {
            // Who began to watch after the last end has heard of none yet.
            for watcher in watchers.iter().filter(|watcher| watcher.told == Told::Nothing) {
                watcher.recipient.do_send(self.down(reason));
            }
        }
    }

    fn tell(&self, reason: &ExitReason) {
        if let Watch::Open(watchers) = &mut *self.watch.lock() {
            watchers.retain_mut(|watcher| {
                watcher.recipient.do_send(self.down(reason));
                watcher.told = Told::AnEnd;
                watcher.recipient.connected()
            });
        }
    }

    fn down(&self, reason: &ExitReason) -> Down {
        Down { name: self.path().into(), reason: reason.clone() }
    }
}

/// One incarnation: tells its end to the watchers exactly once, even if it is just dropped.
pub(super) struct Life {
    identity: std::sync::Arc<Identity>,
    reason: ExitReason,
}

impl Life {
    pub(super) fn new(identity: std::sync::Arc<Identity>) -> Life {
        Life { identity, reason: ExitReason::Shutdown }
    }

    pub(super) fn end(mut self, reason: &ExitReason) {
        self.reason = reason.clone();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.identity.tell(&self.reason);
    }
}

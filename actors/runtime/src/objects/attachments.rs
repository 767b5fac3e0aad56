//! The objects of other processes that this process holds.
//!
//! A process attaches to an object with its first handle, and detaches 100 ms after it dropped its
//! last one, so that tasks that get the same handle again and again cost no messages. The sender of
//! a handle may release the object as soon as it knows that the handle has arrived. Therefore this
//! process sends no outcome of a task or message before the owners of all objects in it have
//! confirmed the attachment: see
//! [`wait_until_confirmed`](Attachments::wait_until_confirmed).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fiber_core::{ProcessId, block_on, forks};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::port_ref::PortRef;
use crate::mesh::{Change, PortId};
use crate::runtime::Runtime;

/// How long an attachment, and with it the object, outlives its last handle.
const LINGER: Duration = Duration::from_millis(100);
/// The largest number of attachments without handles.
const MAX_IDLE: usize = 4096;

type Key = (ProcessId, PortId);

/// Keeps this process attached to an object of another one.
pub(crate) struct Attachment {
    runtime: &'static Runtime,
    attachments: &'static Attachments,
    key: Key,
}

/// The objects of other processes that a session holds in this one.
#[derive(Default)]
pub struct Attachments {
    state: Mutex<State>,
    /// Attachments that their owners have not confirmed.
    unconfirmed: AtomicUsize,
    /// Notified when `unconfirmed` reaches 0.
    confirmed: Notify,
}

#[derive(Default)]
struct State {
    objects: HashMap<Key, Attached>,
    /// Attachments without handles, in the order in which they lost the last one. Some may have got
    /// handles since.
    idle: VecDeque<Idle>,
    last_turn: u64,
    /// Whether a task detaches idle attachments.
    watched: bool,
    /// Whether the mesh tells the losses of processes: from the first attachment on.
    hears_of_losses: bool,
}

struct Attached {
    port: PortRef,
    handles: usize,
    /// The turn in which it lost its last handle.
    turn: u64,
}

struct Idle {
    key: Key,
    turn: u64,
    until: Instant,
}

impl Attachment {
    pub(super) fn new(runtime: &'static Runtime, port: &PortRef) -> Attachment {
        let key = (port.owner(), port.id);
        let attachments: &'static Attachments = runtime.part();
        let mut state = attachments.state.lock();
        if !std::mem::replace(&mut state.hears_of_losses, true) {
            runtime.mesh().after_loss(|owner| attachments.attach_again(owner));
        }
        match state.objects.entry(key) {
            Entry::Occupied(mut attached) => attached.get_mut().handles += 1,
            Entry::Vacant(place) => {
                attachments.attach(port);
                place.insert(Attached { port: port.clone(), handles: 1, turn: 0 });
            }
        }
        Attachment { runtime, attachments, key }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if forks::is_forked() {
            return;
        }
        let mut state = self.attachments.state.lock();
        let turn = state.last_turn + 1;
        let Some(attached) = state.objects.get_mut(&self.key) else { return };
        attached.handles -= 1;
        if attached.handles > 0 {
            return;
        }
        attached.turn = turn;
        state.last_turn = turn;
        state.idle.push_back(Idle { key: self.key, turn, until: Instant::now() + LINGER });
        if state.idle.len() > MAX_IDLE {
            state.detach_first();
        }
        if !state.watched {
            state.watched = true;
            let attachments = self.attachments;
            self.runtime.spawn(move || attachments.detach_idle());
        }
    }
}

impl State {
    /// Detaches from the object that has been idle for longest, unless it has a handle again.
    fn detach_first(&mut self) {
        let Some(Idle { key, turn, .. }) = self.idle.pop_front() else { return };
        if let Entry::Occupied(attached) = self.objects.entry(key)
            && attached.get().handles == 0
            && attached.get().turn == turn
        {
            // The caller holds the lock, so the next attachment to this object is sent after this.
            attached.remove().port.change_if_connected(Change::Detach);
        }
    }
}

impl Attachments {
    /// Detaches from objects that have been idle for [`LINGER`], until none is idle.
    async fn detach_idle(&self) {
        loop {
            tokio::time::sleep(LINGER / 4).await;
            let mut state = self.state.lock();
            while state.idle.front().is_some_and(|idle| idle.until <= Instant::now()) {
                state.detach_first();
            }
            if state.idle.is_empty() {
                state.watched = false;
                return;
            }
        }
    }

    fn attach(&'static self, port: &PortRef) {
        let unconfirmed = Unconfirmed::new(self);
        port.request_then(port.change(Change::Attach), move |_| drop(unconfirmed));
    }

    /// Attaches again to all objects of a process whose link was lost: that process has taken the
    /// loss for the end of this one. Returns whether there are any.
    fn attach_again(&'static self, owner: ProcessId) -> bool {
        let state = self.state.lock();
        let of_owner = |attached: &&Attached| attached.port.owner() == owner;
        let lost = state.objects.values().filter(of_owner);
        lost.map(|attached| self.attach(&attached.port)).count() > 0
    }

    /// Returns whether the owners of all objects that this process holds have confirmed that.
    #[inline]
    pub fn are_confirmed(&self) -> bool {
        self.unconfirmed.load(Ordering::Acquire) == 0
    }

    /// Waits until [`are_confirmed`](Attachments::are_confirmed), or until the owners are gone.
    pub async fn confirmed(&self) {
        loop {
            let mut confirmed = std::pin::pin!(self.confirmed.notified());
            confirmed.as_mut().enable();
            if self.are_confirmed() {
                return;
            }
            confirmed.await;
        }
    }

    /// As [`confirmed`](Attachments::confirmed), for a thread that may block.
    #[inline]
    pub fn wait_until_confirmed(&self) {
        if !self.are_confirmed() {
            // Fiber's own thread may not block. It decodes nothing whose outcome could be sent too
            // early.
            let _ = block_on(async {
                self.confirmed().await;
                Ok(())
            });
        }
    }
}

/// Counts an attachment that its owner has not confirmed.
struct Unconfirmed(&'static Attachments);

impl Unconfirmed {
    fn new(attachments: &'static Attachments) -> Unconfirmed {
        attachments.unconfirmed.fetch_add(1, Ordering::Relaxed);
        Unconfirmed(attachments)
    }
}

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        if self.0.unconfirmed.fetch_sub(1, Ordering::Release) == 1 {
            self.0.confirmed.notify_waiters();
        }
    }
}

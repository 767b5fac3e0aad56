//! The objects of other processes that this process holds.
//!
//! A process attaches to an object with its first handle, and detaches 100 ms after it dropped its
//! last one, so that tasks that get the same handle again and again cost no messages. The sender of
//! a handle may release the object as soon as it knows that the handle has arrived. Therefore this
//! process sends no outcome of a task or message before the owners of all objects in it have
//! confirmed the attachment: see [`wait_until_attached`].

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fiber_core::{ProcessId, block_on};
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
pub(crate) struct Attachment(Key);

#[derive(Default)]
struct Attachments {
    objects: HashMap<Key, Attached>,
    /// Attachments without handles, in the order in which they lost the last one. Some may have got
    /// handles since.
    idle: VecDeque<Idle>,
    last_turn: u64,
    /// Whether a task detaches idle attachments.
    watched: bool,
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

static ATTACHMENTS: LazyLock<Mutex<Attachments>> = LazyLock::new(Mutex::default);
/// Attachments that their owners have not confirmed.
static UNCONFIRMED: AtomicUsize = AtomicUsize::new(0);
/// Notified when [`UNCONFIRMED`] reaches 0.
static CONFIRMED: Notify = Notify::const_new();

impl Attachment {
    pub(crate) fn new(runtime: &'static Runtime, port: &PortRef) -> Attachment {
        let key = (port.owner(), port.id);
        let mut attachments = ATTACHMENTS.lock();
        match attachments.objects.entry(key) {
            Entry::Occupied(mut attached) => attached.get_mut().handles += 1,
            Entry::Vacant(place) => {
                runtime.mesh().after_loss(attach_again);
                attach(port);
                place.insert(Attached { port: port.clone(), handles: 1, turn: 0 });
            }
        }
        Attachment(key)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let mut attachments = ATTACHMENTS.lock();
        let turn = attachments.last_turn + 1;
        let Some(attached) = attachments.objects.get_mut(&self.0) else { return };
        attached.handles -= 1;
        if attached.handles > 0 {
            return;
        }
        attached.turn = turn;
        let runtime = attached.port.current_runtime();
        attachments.last_turn = turn;
        attachments.idle.push_back(Idle { key: self.0, turn, until: Instant::now() + LINGER });
        if attachments.idle.len() > MAX_IDLE {
            attachments.detach_first();
        }
        if let (Some(runtime), false) = (runtime, attachments.watched) {
            attachments.watched = true;
            runtime.spawn(detach_idle);
        }
    }
}

impl Attachments {
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

/// Detaches from objects that have been idle for [`LINGER`], until none is idle.
async fn detach_idle() {
    loop {
        tokio::time::sleep(LINGER / 4).await;
        let mut attachments = ATTACHMENTS.lock();
        while attachments.idle.front().is_some_and(|idle| idle.until <= Instant::now()) {
            attachments.detach_first();
        }
        if attachments.idle.is_empty() {
            attachments.watched = false;
            return;
        }
    }
}

fn attach(port: &PortRef) {
    let unconfirmed = Unconfirmed::new();
    port.change_then(Change::Attach, || drop(unconfirmed));
}

/// Counts an attachment that its owner has not confirmed.
struct Unconfirmed;

impl Unconfirmed {
    fn new() -> Unconfirmed {
        UNCONFIRMED.fetch_add(1, Ordering::Relaxed);
        Unconfirmed
    }
}

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        if UNCONFIRMED.fetch_sub(1, Ordering::Release) == 1 {
            CONFIRMED.notify_waiters();
        }
    }
}

/// Attaches again to all objects of a process whose link was lost: that process has taken the loss
/// for the end of this one. Returns whether there are any.
fn attach_again(owner: ProcessId) -> bool {
    let attachments = ATTACHMENTS.lock();
    let of_owner = |attached: &&Attached| attached.port.owner() == owner;
    attachments.objects.values().filter(of_owner).map(|attached| attach(&attached.port)).count() > 0
}

/// Returns whether the owners of all objects that this process holds have confirmed that.
#[inline]
pub(crate) fn are_attached() -> bool {
    UNCONFIRMED.load(Ordering::Acquire) == 0
}

/// Waits until [`are_attached`], or until the owners are gone.
pub(crate) async fn when_attached() {
    loop {
        let mut confirmed = std::pin::pin!(CONFIRMED.notified());
        confirmed.as_mut().enable();
        if are_attached() {
            return;
        }
        confirmed.await;
    }
}

/// As [`when_attached`], for a thread that may block.
#[inline]
pub(crate) fn wait_until_attached() {
    if !are_attached() {
        // Fiber's own thread may not block. It decodes nothing whose outcome could be sent too
        // early.
        let _ = block_on(async {
            when_attached().await;
            Ok(())
        });
    }
}

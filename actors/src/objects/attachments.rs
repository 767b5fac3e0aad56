//! The objects of other processes that this process holds.
//!
//! A process attaches to an object with its first handle, and detaches some time after its last:
//! tasks that get the same handle again and again cost no messages. Whoever sent the handle may
//! stop holding the object as soon as it knows that the handle has arrived, so this process says
//! nothing of what it did with a handle before the owner knows of it: see [`wait_until_attached`].

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

/// How long an attachment lasts after its last handle. What the object holds lasts as long.
const LINGER: Duration = Duration::from_millis(100);
/// How many attachments without handles there are at most.
const MOST_IDLE: usize = 4096;

type Key = (ProcessId, PortId);

/// Keeps this process attached to an object of another one.
pub(crate) struct Attachment(Key);

#[derive(Default)]
struct Attachments {
    objects: HashMap<Key, Attached>,
    /// Those without handles, in the order in which they lost the last one. Some may have got
    /// others since.
    idle: VecDeque<Idle>,
    last_turn: u64,
    /// Whether a task looks after those without handles.
    watched: bool,
}

struct Attached {
    port: PortRef,
    handles: usize,
    /// When it lost its last handle, as a number.
    turn: u64,
}

struct Idle {
    key: Key,
    turn: u64,
    until: Instant,
}

static ATTACHMENTS: LazyLock<Mutex<Attachments>> = LazyLock::new(Mutex::default);
/// Attachments that their owners may not know of yet.
static UNCONFIRMED: AtomicUsize = AtomicUsize::new(0);
/// Notified when there are none.
static CONFIRMED: Notify = Notify::const_new();

impl Attachment {
    pub(crate) fn new(port: &PortRef) -> Attachment {
        let key = (port.home(), port.id);
        let mut attachments = ATTACHMENTS.lock();
        match attachments.objects.entry(key) {
            Entry::Occupied(mut attached) => attached.get_mut().handles += 1,
            Entry::Vacant(place) => {
                if let Some(runtime) = port.current_node() {
                    runtime.mesh().after_loss(attach_again);
                }
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
        let runtime = attached.port.current_node();
        attachments.last_turn = turn;
        attachments.idle.push_back(Idle { key: self.0, turn, until: Instant::now() + LINGER });
        if attachments.idle.len() > MOST_IDLE {
            attachments.detach_first();
        }
        if let (Some(runtime), false) = (runtime, attachments.watched) {
            attachments.watched = true;
            runtime.spawn(watch);
        }
    }
}

impl Attachments {
    /// Detaches from the object that has been without handles for longest, unless it has got one.
    fn detach_first(&mut self) {
        let Some(Idle { key, turn, .. }) = self.idle.pop_front() else { return };
        if let Entry::Occupied(attached) = self.objects.entry(key)
            && attached.get().handles == 0
            && attached.get().turn == turn
        {
            // The lock is held meanwhile, so that whoever attaches next is heard after this.
            attached.remove().port.change_if_connected(Change::Detach);
        }
    }
}

/// Detaches from what has had no handles for long enough.
async fn watch() {
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

/// An attachment that its owner may not know of yet.
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

/// Attaches again to all objects of a node whose link was lost: the node took that for the end of
/// this process.
pub(crate) fn attach_again(runtime: ProcessId) {
    let attachments = ATTACHMENTS.lock();
    attachments
        .objects
        .values()
        .filter(|attached| attached.port.home() == runtime)
        .for_each(|attached| attach(&attached.port));
}

/// Whether the owners of all objects that this process holds know that it does.
#[inline]
pub(crate) fn are_attached() -> bool {
    UNCONFIRMED.load(Ordering::Acquire) == 0
}

/// Waits until [`are_attached`], or the owners are gone.
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

/// As [`when_attached`], for a thread that may wait.
#[inline]
pub(crate) fn wait_until_attached() {
    if !are_attached() {
        // On fiber's own thread, which may not wait, nothing is decoded whose outcome could
        // overtake this.
        let _ = block_on(async {
            when_attached().await;
            Ok(())
        });
    }
}

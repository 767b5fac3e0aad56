//! The pool's handle of a worker's process.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiber_core::{ExitReason, ProcessId};
use fiber_transport::{Link, Received};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::controller::{WorkerNumber, worker_name};
use super::life::Incarnation;
use super::scheduler::WorkerId;
use super::wire::{Assignment, Follower, PoolCommand, PoolMessage};
use fiber_runtime::runtime::{HostNumber, ProcessCommand};

/// A worker that dies after less than this died young.
const YOUNG: Duration = Duration::from_secs(1);
/// A broadcast value of at least this many bytes in its message is sent at once.
const LARGE: usize = 64 << 10;

/// See the module's documentation.
pub(crate) struct WorkerHandle {
    pub(super) id: WorkerId,
    pub(super) number: WorkerNumber,
    /// The name of the supervisor's child.
    pub(super) child: String,
    pub(super) process: ProcessId,
    /// Where it runs, for users: `pid 4711`.
    pub(super) place: String,
    /// The host in which it runs, if it shares a job.
    pub(super) host: Option<HostNumber>,
    pub(super) link: Arc<dyn Link>,
    pub(super) commands: mpsc::UnboundedSender<ProcessCommand>,
    ready_since: Instant,
    /// Changes of broadcast values that go ahead of the worker's next tasks. A message for each
    /// change would wake each of many workers one time more.
    unsent: Mutex<Vec<PoolMessage>>,
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Incarnation for Arc<WorkerHandle> {
    fn number(&self) -> WorkerNumber {
        self.number
    }

    fn is_young(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.ready_since) < YOUNG
    }
}

impl WorkerHandle {
    pub(super) fn new(
        id: WorkerId,
        number: WorkerNumber,
        process: ProcessId,
        place: String,
        host: Option<HostNumber>,
        link: Arc<dyn Link>,
        commands: mpsc::UnboundedSender<ProcessCommand>,
    ) -> WorkerHandle {
        WorkerHandle {
            id,
            number,
            child: worker_name(number),
            process,
            place,
            host,
            link,
            commands,
            ready_since: Instant::now(),
            unsent: Mutex::default(),
        }
    }

    /// Sends tasks, behind what was held back and those that follow them, the last one first.
    pub(super) fn assign(&self, assignment: Assignment, followers: Vec<Follower>) {
        // The lock keeps the order: another thread may be sending what was held back.
        let mut unsent = self.unsent.lock();
        unsent.extend(followers.into_iter().rev().map(PoolMessage::Follower));
        self.queue_all(&mut unsent);
        let _ = self.link.send(PoolMessage::Assignment(assignment).message());
    }

    pub(super) fn kill(&self, reason: ExitReason) {
        // That fails if it has ended.
        let _ = self.commands.send(ProcessCommand::Kill(reason));
    }

    pub(super) fn command(&self, command: PoolCommand) {
        // That fails if the worker is gone.
        let _ = self.link.send(PoolMessage::Command(command).message());
    }

    /// Sends a broadcast value, at the latest before tasks that may read it.
    pub(super) fn broadcast(&self, id: u64, value: Received) {
        let mut unsent = self.unsent.lock();
        let is_large = value.len() + value.blobs.private_len() >= LARGE;
        unsent.push(PoolMessage::Broadcast { id, value });
        if is_large {
            self.queue_all(&mut unsent);
            self.link.flush();
        }
    }

    /// Lets the worker drop a broadcast value, at the latest with the next
    /// [`send_unsent`](WorkerHandle::send_unsent).
    pub(super) fn drop_broadcast(&self, id: u64) {
        let is_it = |held: &PoolMessage| matches!(held, PoolMessage::Broadcast { id: held, .. } if *held == id);
        let mut unsent = self.unsent.lock();
        match unsent.iter().position(is_it) {
            Some(place) => drop(unsent.remove(place)),
            None => {
                unsent.push(PoolMessage::Command(PoolCommand::DropBroadcast(id)));
                self.link.drop_shared(id);
            }
        }
    }

    pub(super) fn send_unsent(&self) {
        let mut unsent = self.unsent.lock();
        if !unsent.is_empty() {
            self.queue_all(&mut unsent);
            self.link.flush();
        }
    }

    /// Queues messages for the link's next write. That fails if the worker is gone: its tasks are
    /// queued again when `lost` reports it.
    fn queue_all(&self, unsent: &mut Vec<PoolMessage>) {
        for message in unsent.drain(..) {
            let shared =
                if let PoolMessage::Broadcast { id, .. } = &message { Some(*id) } else { None };
            let message = message.message();
            let _ = match shared {
                Some(id) => self.link.send_shared(id, message),
                None => self.link.send_later(message),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fiber_transport::{Closed, Message};

    use super::*;

    /// A request to a worker's link.
    #[derive(Debug, PartialEq, Eq)]
    enum Asked {
        Send,
        SendShared(u64),
        DropShared(u64),
    }

    #[derive(Debug, Default)]
    struct RecordingLink(Mutex<Vec<Asked>>);

    impl Link for RecordingLink {
        fn send(&self, _: Message) -> Result<(), Closed> {
            self.0.lock().push(Asked::Send);
            Ok(())
        }

        fn send_shared(&self, key: u64, _: Message) -> Result<(), Closed> {
            self.0.lock().push(Asked::SendShared(key));
            Ok(())
        }

        fn drop_shared(&self, key: u64) {
            self.0.lock().push(Asked::DropShared(key));
        }

        fn close(&self) {}

        fn set_peer_timeout(&self, _: Duration) {}
    }

    #[test]
    fn broadcast_values_are_sent_as_shared_messages_until_they_are_dropped() {
        let link = Arc::new(RecordingLink::default());
        let (commands, _inbox) = mpsc::unbounded_channel();
        let worker = WorkerHandle::new(
            WorkerId::default(),
            1,
            ProcessId::random(),
            "pid 1".into(),
            None,
            Arc::clone(&link) as Arc<dyn Link>,
            commands,
        );
        worker.broadcast(1, Bytes::from(vec![0; LARGE]).into());
        // This one is never sent.
        worker.broadcast(2, Bytes::new().into());
        worker.drop_broadcast(2);
        worker.broadcast(3, Bytes::new().into());
        worker.send_unsent();
        worker.drop_broadcast(1);
        worker.send_unsent();
        let asked = std::mem::take(&mut *link.0.lock());
        use Asked::{DropShared, Send, SendShared};
        assert_eq!(asked, [SendShared(1), SendShared(3), DropShared(1), Send]);
    }
}

//! One end of a pipe: a queue that closes when its other end is gone.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use fiber_core::Result;
use fiber_values::transfer::{self, Mode};
use serde::{Deserialize, Serialize};

use super::handle::QueueHandle;
use super::name::QueueName;
use super::store::Capacity;
use super::wire::Operation;
pub(crate) use super::wire::PipeRole;
use fiber_runtime::mesh::PeerId;
use fiber_runtime::objects::ObjectRef;
use fiber_runtime::parts::Parts;
use fiber_runtime::random::Random;

/// The bytes that a pipe holds before its writer has to wait.
const CAPACITY: usize = 4 << 20;

/// An end of a pipe in any process. The queue counts it, so that the other end learns when the last
/// clone is gone.
#[derive(Clone)]
pub(crate) struct PipeEnd {
    pub(crate) queue: QueueHandle,
    counted: Arc<CountedEnd>,
}

impl fmt::Debug for PipeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.queue.name())
    }
}

struct CountedEnd {
    queue: QueueHandle,
    role: PipeRole,
}

/// An encoded end. The queue counts it by its token until it arrives.
#[derive(Serialize, Deserialize)]
struct EncodedEnd {
    queue: QueueHandle,
    token: u64,
}

impl PipeEnd {
    /// Makes a one-way pipe. Returns the writer's end and the reader's end.
    #[track_caller]
    pub(crate) fn pair() -> Result<(PipeEnd, PipeEnd)> {
        let name = QueueName::made_at("pipe", Location::caller());
        let queue = QueueHandle::new(name, Capacity::Bytes(CAPACITY))?;
        let writer = PipeEnd::counted(&queue, PipeRole::Writer, None);
        Ok((writer, PipeEnd::counted(&queue, PipeRole::Reader, None)))
    }

    /// Makes the pipe of a stream, which holds this many bytes.
    #[track_caller]
    pub(crate) fn stream_pair(bytes: usize) -> Result<(PipeEnd, PipeEnd)> {
        let queue = QueueHandle::stream(QueueName::made_at("stream", Location::caller()), bytes)?;
        let writer = PipeEnd::counted(&queue, PipeRole::Writer, None);
        Ok((writer, PipeEnd::counted(&queue, PipeRole::Reader, None)))
    }

    fn counted(queue: &QueueHandle, role: PipeRole, token: Option<u64>) -> PipeEnd {
        match (queue.store(), token) {
            (Some(store), token) => store.lock().end_arrived(role, PeerId::LOCAL, token),
            (None, Some(token)) => queue.send(&Operation::EndArrived(role, token)),
            (None, None) => {}
        }
        let counted = Arc::new(CountedEnd { queue: queue.clone(), role });
        PipeEnd { queue: queue.clone(), counted }
    }

    pub(crate) fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let token = Parts::current().get::<Random>().number();
        let role = self.counted.role;
        match self.queue.store() {
            Some(store) => store.lock().end_sent(role, token),
            None => self.queue.send(&Operation::EndSent(role, token)),
        }
        if transfer::mode() == Mode::Repeatable {
            transfer::keep_alive(Arc::new(SentEnd { queue: self.queue.clone(), role, token }));
        }
        EncodedEnd { queue: self.queue.clone(), token }.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
        role: PipeRole,
    ) -> Result<PipeEnd, D::Error> {
        let EncodedEnd { queue, token } = EncodedEnd::deserialize(deserializer)?;
        Ok(PipeEnd::counted(&queue, role, Some(token)))
    }
}

/// An end that was sent to another process. Once this is dropped, the end can no longer arrive.
struct SentEnd {
    queue: QueueHandle,
    role: PipeRole,
    token: u64,
}

impl Drop for SentEnd {
    fn drop(&mut self) {
        match self.queue.store() {
            Some(store) => store.lock().end_lost(self.role, self.token),
            None => self.queue.send(&Operation::EndLost(self.role, self.token)),
        }
    }
}

impl Drop for CountedEnd {
    fn drop(&mut self) {
        match self.queue.store() {
            Some(store) => store.lock().end_dropped(self.role, PeerId::LOCAL),
            None => self.queue.send(&Operation::EndDropped(self.role)),
        }
    }
}

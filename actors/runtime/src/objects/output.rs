//! Outputs of tasks in several processes: the one that has the value answers those that ask.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fiber_core::{Error, Result};
use fiber_transport::Received;
use fiber_values::codec::{self, EncodedValue};
use fiber_values::output::travel::{self, Travel};
use fiber_values::{Dependent, OutputCell};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::handle::{Handle, WeakHandle};
use super::port_ref::PortRef;
use crate::mesh::{PeerId, Port, PortId, Request, Requester};
use crate::runtime::Runtime;

/// Lets outputs travel from this process, and to it.
pub fn let_outputs_travel() {
    travel::set(Travel { encode, decode, ask });
}

/// How a cell is linked to other processes.
enum Link {
    /// They ask this process, by a handle that lives while one of them has it.
    FromHere(Mutex<WeakHandle>),
    /// This process asks another one.
    ToOther { handle: Handle, has_asked: AtomicBool },
}

impl Link {
    fn of(cell: &OutputCell) -> Option<&Link> {
        cell.link().get().and_then(|link| link.downcast_ref())
    }
}

fn encode(cell: &Arc<OutputCell>) -> Result<Vec<u8>> {
    let link = cell.link().get_or_init(|| Box::new(Link::FromHere(Mutex::default())));
    match link.downcast_ref() {
        Some(Link::ToOther { handle, .. }) => codec::encode(handle),
        Some(Link::FromHere(known)) => {
            let mut known = known.lock();
            let handle = match known.upgrade() {
                Some(handle) => handle,
                None => {
                    let handle = open_port(Arc::clone(cell))?;
                    *known = handle.downgrade();
                    handle
                }
            };
            codec::encode(&handle)
        }
        None => Err(Error::invalid("Output", "it has another kind of link")),
    }
}

fn decode(handle: &[u8]) -> Result<Arc<OutputCell>> {
    let handle: Handle = codec::decode(handle)?;
    let port = handle.object().map(|port| Arc::clone(port).downcast_arc::<OutputPort>());
    match port {
        Some(Some(port)) => Ok(Arc::clone(&port.cell)),
        Some(None) => Err(Error::decode("Output", "it is the handle of another object")),
        None => {
            let link = Link::ToOther { handle, has_asked: AtomicBool::new(false) };
            Ok(OutputCell::elsewhere(Box::new(link)))
        }
    }
}

fn ask(cell: &Arc<OutputCell>) {
    let Some(Link::ToOther { handle, has_asked }) = Link::of(cell) else { return };
    if has_asked.swap(true, Ordering::Relaxed) {
        return;
    }
    // A cell without handles needs no value.
    let cell = Arc::downgrade(cell);
    handle.request_then(handle.payload(), move |answer| {
        if let Some(cell) = cell.upgrade() {
            cell.fill(answer.and_then(read));
        }
    });
}

/// The answer to a process that asks for a value.
#[derive(Serialize, Deserialize)]
enum Answer {
    Value(EncodedValue),
    Failed(String),
}

fn read(answer: Received) -> Result<EncodedValue> {
    match EncodedValue::from(answer).decode()? {
        Answer::Value(value) => Ok(value),
        Answer::Failed(problem) => Err(Error::OutputFailed { problem }),
    }
}

/// The port of an output of this process.
struct OutputPort {
    cell: Arc<OutputCell>,
    id: PortId,
    this: Weak<OutputPort>,
    /// Processes that have asked before the value was there.
    waiting: Mutex<Vec<Requester>>,
}

fn open_port(cell: Arc<OutputCell>) -> Result<Handle> {
    let runtime = Runtime::get()?;
    let new = |id, this| OutputPort { cell, id, this, waiting: Mutex::default() };
    let port = runtime.registry().ports().open_cyclic(new);
    Ok(Handle::local(PortRef::local(runtime, "an output", port.id)?, port))
}

impl Port for OutputPort {
    fn receive(&self, request: Request) {
        self.waiting.lock().push(request.requester);
        self.answer_when_here();
    }

    fn lost(&self, peer: PeerId) {
        self.waiting.lock().retain(|requester| requester.peer != peer);
    }
}

impl Dependent for OutputPort {
    fn input_is_ready(self: Arc<Self>) {
        self.answer_when_here();
    }
}

impl OutputPort {
    fn answer_when_here(&self) {
        let this = Weak::clone(&self.this) as Weak<dyn Dependent>;
        if !self.cell.tell_when_here(&this) {
            self.answer();
        }
    }

    /// Answers all that wait, if the value is there.
    fn answer(&self) {
        let Some(value) = self.cell.value() else { return };
        let answer = match value {
            Ok(value) => Answer::Value(value),
            Err(error) => Answer::Failed(error.to_string()),
        };
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(|requester| requester.answer(&answer));
    }
}

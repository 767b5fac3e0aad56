//! Simulated processes: threads of a host that work as workers in processes of their own do.
//!
//! With them, one machine runs a session of thousands of workers, to measure its parent and to test
//! it. The link between the parent and the host is a real one, and so are the messages. Only the
//! links within the host are in memory. A killed thread goes on with its task, and nothing of it
//! arrives any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{io, thread};

use bytes::Buf;
use fiber_backends::{Job, JobState};
use fiber_core::stats::ProcessFigures;
use fiber_core::{BuildId, Exit, ExitReason, ProcessId};
use fiber_transport::{
    Closed, Connection, Incoming, Link, Message, Peer, PeerInfo, Received, Role,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::endpoint::{MAIN, send_heartbeats};
use crate::runtime::figures::own_figures;
use crate::runtime::listen::hand_over;
use crate::runtime::{ControlMessage, ParentMessage, Runtime};

const SIGKILL: i32 = 9;
/// Enough for the tasks of tests and benchmarks.
const STACK: usize = 256 << 10;
const FIGURES_AGE: Duration = Duration::from_millis(500);

/// Starts a simulated process, which is connected at once.
pub(super) fn start(runtime: &'static Runtime, id: ProcessId) -> Arc<dyn Job> {
    let (to_process, inbox) = mpsc::unbounded_channel();
    let (to_host, arriving) = mpsc::unbounded_channel();
    let end = |sender| Arc::new(MemoryLink { sender, closed: AtomicBool::new(false) });
    let (host_end, process_end) = (end(to_process), end(to_host));
    let job = Arc::new(SimulatedJob {
        states: watch::Sender::new(JobState::Running),
        killed: Notify::new(),
        link: Arc::clone(&process_end),
    });
    let build = BuildId::current().expect("this process has connected with it").clone();
    let (pid, host) = (std::process::id(), crate::endpoint::host_name());
    let info = PeerInfo { id, to: runtime.id(), role: Role::Child, build, pid, host };
    let connection = Connection::relayed(host_end, Arriving(arriving));
    hand_over(id, Ok(Peer { info, connection }));
    let started = Arc::clone(&job);
    tokio::task::spawn_local(async move {
        let exit = tokio::select! {
            exit = work(runtime, process_end, inbox) => exit,
            () = started.killed.notified() => ExitReason::Signal(SIGKILL),
        };
        started.link.close();
        started.states.send_replace(JobState::Ended(Exit::new(exit, Vec::new())));
    });
    job
}

/// Works for the parent, until the end.
async fn work(
    runtime: &'static Runtime,
    link: Arc<MemoryLink>,
    mut inbox: mpsc::UnboundedReceiver<Received>,
) -> ExitReason {
    let first = inbox.recv().await.and_then(|message| ControlMessage::read(&message));
    let Some(ControlMessage::Start { config, request }) = first else {
        return ExitReason::Normal;
    };
    let to_parent = Arc::clone(&link) as Arc<dyn Link>;
    let started = match request.start(runtime, Arc::clone(&to_parent)) {
        Ok(started) => started,
        Err(error) => return ExitReason::NotStarted(error.to_string()),
    };
    tokio::task::spawn_local(send_heartbeats(Arc::clone(&to_parent), config.heartbeat, || {
        let (figures, below, events) = (Some(host_figures()), None, None);
        ControlMessage::Heartbeat { figures, below, events }.message()
    }));
    let mut receive = StopOnDrop(started.receive);
    let (ended, mut end) = oneshot::channel();
    let main = thread::Builder::new().name("simulated".into()).stack_size(STACK);
    if let Err(error) = main.spawn(move || ended.send((started.run)())) {
        return ExitReason::NotStarted(error.to_string());
    }
    loop {
        let mut message = tokio::select! {
            biased;
            _ = &mut end => return ExitReason::Normal,
            message = inbox.recv() => match message {
                Some(message) => message,
                None => return ExitReason::Normal,
            },
        };
        if message.first() == Some(&MAIN) {
            message.bytes.advance(1);
            (receive.0)(ParentMessage::Data(message));
            continue;
        }
        match ControlMessage::read(&message) {
            Some(ControlMessage::Shutdown) => (receive.0)(ParentMessage::Shutdown),
            Some(ControlMessage::Kill) => return ExitReason::Signal(SIGKILL),
            Some(ControlMessage::Inspect { number, .. }) => {
                let answer = Err("it is simulated, and has nothing to inspect".into());
                let _ = to_parent.send(ControlMessage::Inspected { number, answer }.message());
            }
            _ => {}
        }
    }
}

/// Returns the figures of the host, at most `FIGURES_AGE` old. Each simulated process sends them with
/// its heartbeats, and the kernel needs longer for a process of many threads than for a worker's.
fn host_figures() -> ProcessFigures {
    static LAST: Mutex<Option<(Instant, ProcessFigures)>> = Mutex::new(None);
    let mut last = LAST.lock();
    match &*last {
        Some((at, figures)) if at.elapsed() < FIGURES_AGE => figures.clone(),
        _ => {
            let figures = own_figures();
            *last = Some((Instant::now(), figures.clone()));
            figures
        }
    }
}

/// Lets the thread of a process that was killed end after its task.
struct StopOnDrop(Box<dyn FnMut(ParentMessage)>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        (self.0)(ParentMessage::Shutdown);
    }
}

#[derive(Debug)]
struct SimulatedJob {
    states: watch::Sender<JobState>,
    killed: Notify,
    /// Where the process sends.
    link: Arc<MemoryLink>,
}

impl Job for SimulatedJob {
    fn place(&self) -> String {
        format!("a thread of pid {}", std::process::id())
    }

    fn tail(&self) -> Vec<String> {
        Vec::new()
    }

    fn states(&self) -> watch::Receiver<JobState> {
        self.states.subscribe()
    }

    fn terminate(&self) {
        self.kill();
    }

    fn kill(&self) {
        self.link.close();
        self.killed.notify_one();
    }
}

/// One end of a link within this process.
#[derive(Debug)]
struct MemoryLink {
    sender: mpsc::UnboundedSender<Received>,
    closed: AtomicBool,
}

impl Link for MemoryLink {
    fn send(&self, message: Message) -> Result<(), Closed> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Closed);
        }
        let Message { head, body, blobs } = message;
        let bytes = if head.is_empty() { body } else { [&head[..], &body].concat().into() };
        self.sender.send(Received { bytes, blobs }).map_err(|_| Closed)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    fn set_peer_timeout(&self, _: Duration) {}
}

struct Arriving(mpsc::UnboundedReceiver<Received>);

impl Incoming for Arriving {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Received>>> {
        self.0.poll_recv(context).map(|message| message.map(Ok))
    }

    fn set_limit(&mut self, _: usize) {}
}

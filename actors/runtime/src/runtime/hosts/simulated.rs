//! Simulated processes: threads of a host that work as workers in processes of their own do.
//!
//! With them, one machine runs a session of thousands of workers, to measure its parent and to test
//! it. The link between the parent and the host is a real one, and so are the messages. Only the
//! links within the host are in memory. A killed thread goes on with its task, and nothing of it
//! arrives any more.

use std::sync::{Arc, LazyLock};
use std::thread;

use fiber_backends::{Job, JobPlace, JobState};
use fiber_core::{BuildId, Exit, ExitReason, ProcessId};
use fiber_transport::{Connection, Link, Peer, PeerInfo, Role, memory};
use tokio::sync::{Notify, oneshot, watch};

use crate::endpoint::send_heartbeats;
use crate::runtime::child::receive;
use crate::runtime::child_exit::ChildExit;
use crate::runtime::listen::hand_over;
use crate::runtime::usage::own_usage;
use crate::runtime::{ControlMessage, ParentMessage, Runtime};

const SIGKILL: i32 = 9;
/// Enough for the tasks of tests and benchmarks.
const STACK: usize = 256 << 10;
/// The statistics of the host, as all simulated processes send them with their heartbeats. They are
/// taken once: of a process with many threads, the kernel needs long for them.
static USAGE: LazyLock<Option<String>> = LazyLock::new(|| serde_json::to_string(&own_usage()).ok());

/// Starts a simulated process, which is connected at once.
pub(super) fn start(runtime: &'static Runtime, id: ProcessId) -> Arc<dyn Job> {
    let (host_end, process_end) = memory::pair();
    let ((to_process, arriving), (to_host, inbox)) = (host_end.halves(), process_end.halves());
    let job = Arc::new(SimulatedJob {
        states: watch::Sender::new(JobState::Running),
        killed: Notify::new(),
        link: Arc::clone(&to_host),
    });
    let build = BuildId::current().expect("this process has connected with it").clone();
    let (pid, host) = (std::process::id(), fiber_core::host_name());
    let info = PeerInfo { id, to: runtime.id(), role: Role::Child, build, pid, host };
    let connection = Connection::relayed(to_process, arriving);
    let mut process = Connection::relayed(to_host, inbox);
    // The host has checked the length.
    process.incoming.set_limit(usize::MAX);
    hand_over(id, Ok(Peer { info, connection }));
    let started = Arc::clone(&job);
    fiber_core::spawn_local(async move {
        let exit = tokio::select! {
            exit = work(runtime, process) => exit,
            () = started.killed.notified() => ExitReason::Signal(SIGKILL),
        };
        started.link.close();
        started.states.send_replace(JobState::Ended(Exit::new(exit, Vec::new())));
    });
    job
}

/// Works for the parent, until the end.
async fn work(runtime: &'static Runtime, mut host: Connection) -> ExitReason {
    let first = host.next().await.and_then(|message| ControlMessage::read(&message.ok()?));
    let Some(ControlMessage::Start { config, request, .. }) = first else {
        return ExitReason::Normal;
    };
    let started = match request.start(runtime, Arc::clone(&host.link)) {
        Ok(started) => started,
        Err(error) => return ExitReason::NotStarted(error.to_string()),
    };
    fiber_core::spawn_local(send_heartbeats(Arc::clone(&host.link), config.heartbeat, || {
        let (usage, below, events) = (USAGE.clone(), None, None);
        ControlMessage::Heartbeat { usage, below, events }.message()
    }));
    let mut inbox = StopOnDrop(started.receive);
    let (ended, end) = oneshot::channel();
    let main = thread::Builder::new().name("simulated".into()).stack_size(STACK);
    let run = move || {
        let _entered = runtime.parts().enter();
        ended.send((started.run)())
    };
    if let Err(error) = main.spawn(run) {
        return ExitReason::NotStarted(error.to_string());
    }
    let inbox = Box::new(move |message| (inbox.0)(message));
    tokio::select! {
        biased;
        _ = end => ExitReason::Normal,
        exit = receive(runtime, host, inbox, None) => match exit {
            ChildExit::Killed => ExitReason::Signal(SIGKILL),
            _ => ExitReason::Normal,
        },
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
    link: Arc<dyn Link>,
}

impl Job for SimulatedJob {
    fn place(&self) -> JobPlace {
        JobPlace::Other { words: format!("a thread of pid {}", std::process::id()) }
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

//! The end of this process: its last messages arrive, its children end, and their output is
//! written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fiber_backends::{Job, JobState};

use super::{CURRENT, Runtime, telemetry};
use crate::{mesh, timeline};

/// Time limit at the exit of this process, each for the last messages, for the end of children on
/// this host, and for output that can't be written.
pub(super) const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// The same for the end of children in containers and pods, which outlive this process if it does
/// not end them.
const REMOTE_EXIT_TIMEOUT: Duration = Duration::from_secs(20);

/// The same for spans that the collector has not accepted.
#[cfg(feature = "opentelemetry")]
const SPANS_TIMEOUT: Duration = Duration::from_secs(5);

/// Set when this process is about to exit: no child is started any more.
static EXITING: AtomicBool = AtomicBool::new(false);

/// Returns whether this process is about to exit.
pub(crate) fn is_exiting() -> bool {
    EXITING.load(Ordering::SeqCst)
}

/// Ends the children. The C library calls it at the exit of this process, perhaps on a thread that
/// must not wait.
pub(super) fn shutdown_on_exit(waiting_allowed: bool) {
    let Some(runtime) = CURRENT.try_lock().and_then(|current| *current) else { return };
    telemetry::flush();
    // Before the children are killed: that is no death.
    timeline::finish();
    if waiting_allowed {
        mesh::flush(runtime.mesh(), EXIT_TIMEOUT);
    }
    let jobs = runtime.kill_children();
    // The runtime's thread forwards the last output. If this is that thread, it is lost.
    if waiting_allowed {
        let (done, ended) = std::sync::mpsc::channel();
        runtime.spawn(move || async move {
            all_ended(jobs).await;
            let _ = done.send(());
        });
        let _ = ended.recv_timeout(runtime.exit_timeout());
        fiber_backends::flush(EXIT_TIMEOUT);
    }
}

/// Sends the spans that have ended, at the exit of this process. The children have ended by then.
#[cfg(feature = "opentelemetry")]
pub(super) fn finish_telemetry(waiting_allowed: bool) {
    telemetry::finish(if waiting_allowed { SPANS_TIMEOUT } else { Duration::ZERO });
}

/// Waits until all these jobs have ended.
pub(super) async fn all_ended(jobs: Vec<Arc<dyn Job>>) {
    for job in jobs {
        let _ = job.states().wait_for(|state| matches!(state, JobState::Ended(_))).await;
    }
}

impl Runtime {
    /// Kills all children, and prevents further starts. Any thread may call it, also while this
    /// process exits.
    pub(super) fn kill_children(&self) -> Vec<Arc<dyn Job>> {
        EXITING.store(true, Ordering::SeqCst);
        let jobs: Vec<_> = self.jobs.iter().map(|job| Arc::clone(job.value())).collect();
        jobs.iter().for_each(|job| job.kill());
        jobs
    }

    /// Returns the time limit for the end of children when this process exits.
    pub(super) fn exit_timeout(&self) -> Duration {
        if self.listening.serves_remote_children() { REMOTE_EXIT_TIMEOUT } else { EXIT_TIMEOUT }
    }
}

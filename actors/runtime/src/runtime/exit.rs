//! The end of this process: its last messages arrive, its children end, and their output is
//! written.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fiber_backends::{Job, JobState};

use super::{Runtime, telemetry};
use crate::mesh;
use crate::timeline::Timeline;

/// Time limit at the exit of this process, each for the last messages, for the end of children on
/// this host, and for output that can't be written.
pub(super) const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit at the exit of this process for the end of children in containers and pods, which
/// outlive this process if it does not end them.
const REMOTE_EXIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until all these jobs have ended.
pub(super) async fn all_ended(jobs: Vec<Arc<dyn Job>>) {
    for job in jobs {
        let _ = job.states().wait_for(|state| matches!(state, JobState::Ended(_))).await;
    }
}

impl Runtime {
    /// Returns whether this process is about to exit.
    pub fn is_exiting(&self) -> bool {
        self.is_exiting.load(Ordering::SeqCst)
    }

    /// Returns whether the children have ended at the exit of this process: only later exit hooks
    /// still run.
    pub fn has_shut_down(&self) -> bool {
        self.has_shut_down.load(Ordering::SeqCst)
    }

    /// Ends the children. The C library calls it at the exit of this process, perhaps on a thread
    /// that must not wait.
    pub(super) fn shutdown_on_exit(&'static self, waiting_allowed: bool) {
        telemetry::flush();
        // Before the children are killed: that is no death.
        self.part::<Timeline>().finish();
        if waiting_allowed {
            mesh::flush(self.mesh(), EXIT_TIMEOUT);
            // The runtime's thread forwards the last output. If this is that thread, it is lost.
            let (done, ended) = std::sync::mpsc::channel();
            self.spawn(move || async move {
                self.end_children().await;
                let _ = done.send(());
            });
            let _ = ended.recv_timeout(self.exit_timeout());
            fiber_backends::flush(EXIT_TIMEOUT);
        }
        self.kill_children();
        self.has_shut_down.store(true, Ordering::SeqCst);
    }

    /// Ends all children, once they have printed the backtraces of their panics, and prevents
    /// further starts. Hosts end by themselves, with their processes: the output of one that is
    /// killed may be lost on its way.
    pub(super) async fn end_children(&self) {
        self.is_exiting.store(true, Ordering::SeqCst);
        let _ = tokio::time::timeout(EXIT_TIMEOUT, self.backtraces_printed()).await;
        let hosts = self.hosts.end_all();
        let hosts: Vec<_> = hosts.iter().filter_map(|host| self.children.job(host)).collect();
        let is_host = |job: &Arc<dyn Job>| hosts.iter().any(|host| Arc::ptr_eq(host, job));
        let others: Vec<_> = self.jobs().into_iter().filter(|job| !is_host(job)).collect();
        others.iter().for_each(|job| job.kill());
        let _ = tokio::time::timeout(EXIT_TIMEOUT, all_ended(hosts)).await;
        all_ended(self.kill_children()).await;
    }

    /// Kills all children, and prevents further starts. Any thread may call it, also while this
    /// process exits.
    pub(super) fn kill_children(&self) -> Vec<Arc<dyn Job>> {
        self.is_exiting.store(true, Ordering::SeqCst);
        let jobs = self.jobs();
        jobs.iter().for_each(|job| job.kill());
        jobs
    }

    fn jobs(&self) -> Vec<Arc<dyn Job>> {
        self.jobs.iter().map(|job| Arc::clone(job.value())).collect()
    }

    /// Returns the time limit for the end of children when this process exits.
    pub(super) fn exit_timeout(&self) -> Duration {
        if self.listening.serves_remote_children() { REMOTE_EXIT_TIMEOUT } else { EXIT_TIMEOUT }
    }
}

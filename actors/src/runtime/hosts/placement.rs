//! Which process goes into which host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fiber_backends::JobSpec;
use fiber_core::{Meta, ProcessId};

use super::host::Host;
use super::{HostGroup, HostedJob, State};
use crate::runtime::Runtime;
use crate::runtime::launch::not_started;

impl Runtime {
    /// Makes the job of a process that goes into a host.
    pub(in crate::runtime) fn create_hosted(
        &'static self,
        id: ProcessId,
        group: Arc<HostGroup>,
        spec: JobSpec,
        retry_creation: bool,
    ) -> Arc<HostedJob> {
        let number = self.hosts.last.fetch_add(1, Ordering::Relaxed);
        let job = HostedJob::new(number, group, spec, retry_creation, (id, self.id()));
        let job = Arc::new(job);
        self.hosts.state.lock().waiting.push(Arc::clone(&job));
        self.place_processes();
        job
    }

    /// Puts the processes that wait into hosts, and starts hosts for them.
    pub(super) fn place_processes(&'static self) {
        let mut state = self.hosts.state.lock();
        let mut waiting = std::mem::take(&mut state.waiting);
        waiting.place(|job| {
            let host = self.choose(&mut state, job);
            host.inspect(|host| host.add(Arc::clone(job))).is_some()
        });
        state.waiting = waiting;
        let Some(meta) = state.waiting.first() else { return };
        state.waiting.tell(self.hosts.machines.full());
        if !state.growing {
            state.growing = true;
            self.spawn(move || self.grow(meta));
        }
    }

    /// Returns the host for a process, which may be new; `None` if no machine has room.
    fn choose(&'static self, state: &mut State, job: &Arc<HostedJob>) -> Option<Arc<Host>> {
        let with_place = state.hosts.iter().filter(|host| host.has_place(job));
        if !self.hosts.machines.exist() {
            let fullest = with_place.max_by_key(|host| host.state.lock().processes.len());
            let of = (Arc::clone(&job.group), *job.meta());
            return Some(match fullest {
                Some(host) => Arc::clone(host),
                None => self.start_host(state, None, Some(of), job),
            });
        }
        // A machine without a host is all free.
        let taken = |name: &str| state.taken.contains(name);
        if let Some(machine) = self.hosts.machines.next_free(taken, job.meta()) {
            return Some(self.start_host(state, Some(machine), None, job));
        }
        with_place.max_by(|a, b| a.free_share().total_cmp(&b.free_share())).cloned()
    }

    /// Asks the backend for another machine.
    async fn grow(&'static self, meta: Meta) {
        let added = self.hosts.machines.add_another(&*self.backend, &meta).await;
        self.hosts.state.lock().growing = false;
        match added {
            Ok(true) => self.place_processes(),
            // The end of a process makes room.
            Ok(false) => {}
            Err(error) => self.fail_waiting(&error.to_string()),
        }
    }

    /// Lets processes wait that have no host any more.
    pub(super) fn wait_for_room(&self, processes: Vec<Arc<HostedJob>>) {
        let mut state = self.hosts.state.lock();
        processes.into_iter().for_each(|job| state.waiting.push(job));
    }

    /// Ends the processes that wait for room that does not come.
    pub(super) fn fail_waiting(&self, problem: &str) {
        let waiting = self.hosts.state.lock().waiting.take_all();
        waiting.for_each(|job| job.ended(not_started(problem.to_string())));
    }
}

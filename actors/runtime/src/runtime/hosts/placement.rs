//! Which process goes into which host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fiber_backends::JobSpec;
use fiber_core::{Meta, ProcessId};

use super::host::Host;
use super::{HostGroup, HostedJob, State};
use crate::runtime::Runtime;
use crate::runtime::launch::not_started;

/// Returns the host of the machine with the largest share that will be free when those processes
/// have ended that are killed; of equal ones, that with most room at once, and of these the first.
fn freest(hosts: &[Arc<Host>], job: &HostedJob) -> Option<Arc<Host>> {
    let with_place = hosts.iter().rev().filter(|host| host.has_place(job));
    with_place.max_by_key(|host| host.free_shares(job.meta())).cloned()
}

impl Runtime {
    /// Makes the job of a process that goes into a host.
    pub(super) fn create_hosted(
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
            let Some(host) = self.choose(&mut state, job) else { return false };
            if host.add(Arc::clone(job)) {
                self.limit_wait(host, job.number);
            }
            true
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
        if !self.hosts.machines.exist() {
            let with_place = state.hosts.iter().filter(|host| host.has_place(job));
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
        freest(&state.hosts, job)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::{Buf, Bytes};
    use fiber_backends::{Job, JobState, Room};
    use fiber_transport::{Closed, Link, Message};
    use parking_lot::Mutex;
    use tokio::sync::mpsc;

    use super::super::host::HostState;
    use super::super::hosted_job::tests::job;
    use super::super::shared::HostWire;
    use super::super::wire::{self, Arrived, Number, ToHost};
    use super::*;

    /// The link to a host that notes what it is to start.
    #[derive(Debug, Default)]
    struct Starts(Mutex<Vec<Number>>);

    impl Link for Starts {
        fn send(&self, message: Message) -> Result<(), Closed> {
            let mut bytes = Bytes::from([&message.head[..], &message.body].concat());
            bytes.advance(1);
            if let Some(Arrived::Command(ToHost::Start(process))) = wire::read(bytes.into()) {
                self.0.lock().push(process.number);
            }
            Ok(())
        }

        fn close(&self) {}

        fn set_peer_timeout(&self, _: Duration) {}
    }

    /// The hosts of three machines with two cores each.
    struct Cluster {
        hosts: Vec<Arc<Host>>,
        links: Vec<Arc<Starts>>,
    }

    impl Cluster {
        fn new() -> Cluster {
            let links: Vec<Arc<Starts>> = (0..3).map(|_| Arc::default()).collect();
            let host = |(number, link): (usize, &Arc<Starts>)| {
                let link = Arc::clone(link) as Arc<dyn Link>;
                let mut state = HostState::default();
                state.link = Some(Arc::new(HostWire::new(link, Arc::default())));
                state.room = Some(Room { cpu: 2.0, memory: None, gpu: 0 });
                Arc::new(Host {
                    number: number as u64,
                    name: format!("host-n{number}"),
                    machine: Some(format!("n{number}")),
                    of: None,
                    state: Mutex::new(state),
                    commands: mpsc::unbounded_channel().0,
                })
            };
            let hosts = links.iter().enumerate().map(host).collect();
            Cluster { hosts, links }
        }

        /// Places processes of one core. Returns the numbers of their machines.
        fn place(&self, jobs: &[Arc<HostedJob>]) -> Vec<Option<u64>> {
            let place = |job: &Arc<HostedJob>| {
                let host = freest(&self.hosts, job)?;
                host.add(Arc::clone(job));
                Some(host.number)
            };
            jobs.iter().map(place).collect()
        }

        fn started(&self) -> Vec<Vec<Number>> {
            self.links.iter().map(|link| std::mem::take(&mut *link.0.lock())).collect()
        }
    }

    fn jobs(numbers: std::ops::Range<u64>) -> Vec<Arc<HostedJob>> {
        numbers.map(|number| job(number, Meta::new())).collect()
    }

    #[test]
    fn a_ring_that_follows_a_killed_pool_is_spread_and_starts_as_its_places_become_free() {
        let cluster = Cluster::new();
        let pool = jobs(0..6);
        assert_eq!(cluster.place(&pool), [0, 1, 2, 0, 1, 2].map(Some));
        assert_eq!(cluster.started(), [[0, 3], [1, 4], [2, 5]]);
        let ring = jobs(10..13);
        assert_eq!(cluster.place(&ring), [None; 3], "each machine is full, and nothing ends");
        pool.iter().for_each(|worker| worker.kill());
        assert_eq!(cluster.place(&ring), [0, 1, 2].map(Some));
        assert_eq!(cluster.started().concat(), [0; 0], "the places are not free yet");
        // One machine after the other is free.
        for (machine, workers) in [(2, [2, 5]), (0, [3, 0]), (1, [1, 4])] {
            cluster.hosts[machine].remove(workers[0]);
            let mut starts = vec![Vec::new(); 3];
            starts[machine].push(10 + machine as u64);
            assert_eq!(cluster.started(), starts);
            cluster.hosts[machine].remove(workers[1]);
            assert_eq!(cluster.started().concat(), [0; 0]);
        }
    }

    #[test]
    fn of_machines_that_will_be_equally_free_that_is_chosen_which_has_room_now() {
        let cluster = Cluster::new();
        let pool = jobs(0..5);
        assert_eq!(cluster.place(&pool), [0, 1, 2, 0, 1].map(Some));
        pool.iter().for_each(|worker| worker.kill());
        assert_eq!(cluster.place(&jobs(10..11)), [Some(2)]);
        cluster.hosts[0].remove(0);
        cluster.hosts[0].remove(3);
        cluster.started();
        assert_eq!(cluster.place(&jobs(11..13)), [0, 1].map(Some));
        assert_eq!(cluster.started(), [vec![11], vec![], vec![]]);
    }

    #[test]
    fn a_process_that_is_killed_while_it_waits_leaves_its_place_to_the_next() {
        let cluster = Cluster::new();
        let pool = jobs(0..6);
        cluster.place(&pool);
        pool[0].kill();
        let waiting = jobs(10..12);
        assert_eq!(cluster.place(&waiting), [Some(0), None]);
        waiting[0].kill();
        assert!(matches!(*waiting[0].states().borrow(), JobState::Ended(_)));
        assert_eq!(cluster.place(&waiting[1..]), [Some(0)]);
        cluster.started();
        cluster.hosts[0].remove(0);
        assert_eq!(cluster.started(), [vec![11], vec![], vec![]]);
    }
}

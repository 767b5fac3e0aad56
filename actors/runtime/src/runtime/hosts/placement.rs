//! Which process goes into which host.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fiber_backends::JobSpec;
use fiber_core::{Meta, ProcessId};

use super::host::{Host, Place};
use super::{HostGroup, HostRule, HostedJob, Spread, State};
use crate::runtime::Runtime;
use crate::runtime::launch::not_started;

/// The host of a process.
enum Choice {
    Host(Arc<Host>),
    /// None has room now, for this reason.
    Wait(String),
    /// None ever will, for this reason.
    Refuse(String),
}

/// Returns the host of the machine with the fewest processes of the set, if the process is of one.
/// Equal hosts differ by the share that will be free when those processes have ended
/// that are killed, and then by their room at once; the first of the best counts.
fn freest(hosts: &[Arc<Host>], job: &HostedJob) -> Option<Arc<Host>> {
    let with_place = hosts.iter().rev().filter(|host| host.has_place(job));
    let members = |host: &Host| job.rule.spread().map_or(0, |spread| host.members(spread).0);
    with_place.max_by_key(|host| (Reverse(members(host)), host.free_shares(job.meta()))).cloned()
}

/// Returns the host that gets a process of a set that is spread. `None` if a new one does.
fn fewest(hosts: &[Arc<Host>], job: &HostedJob, spread: &Arc<Spread>) -> Option<Arc<Host>> {
    let has_members = |host: &Host| host.is_open() && host.members(spread).0 > 0;
    let of_set = hosts.iter().filter(|host| host.has_place(job) || has_members(host)).count();
    if of_set < spread.hosts(job.group.per_job) {
        return None;
    }
    let with_place = hosts.iter().filter(|host| host.has_place(job));
    with_place.min_by_key(|host| host.members(spread)).cloned()
}

/// Says who has the room of these hosts: those whose processes came first.
fn holders(hosts: &[Arc<Host>]) -> String {
    /// A message names no more than these.
    const NAMED: usize = 3;
    let mut first = Vec::<Arc<HostedJob>>::with_capacity(NAMED + 2);
    for host in hosts {
        for job in host.state.lock().processes.iter() {
            match first.iter_mut().find(|other| other.owner() == job.owner()) {
                Some(other) if other.number <= job.number => continue,
                Some(other) => *other = Arc::clone(job),
                None => first.push(Arc::clone(job)),
            }
            first.sort_unstable_by_key(|job| job.number);
            first.truncate(NAMED + 1);
        }
    }
    let mut names: Vec<String> = first.iter().map(|job| job.owner().to_string()).collect();
    let (verb, others) = match names.len() {
        0 => return String::new(),
        1 => ("has", ""),
        2..=NAMED => ("have", ""),
        _ => ("have", " and others"),
    };
    names.truncate(NAMED);
    format!(": {}{others} {verb} it", listed(&names))
}

/// Lists names in a message.
fn listed(names: &[String]) -> String {
    /// A message has no more than these.
    const LISTED: usize = 20;
    let shown: Vec<_> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(LISTED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl Runtime {
    /// Makes the job of a process that goes into a host.
    pub(super) fn create_hosted(
        &'static self,
        id: ProcessId,
        of: (Arc<HostGroup>, HostRule),
        spec: JobSpec,
        retry_creation: bool,
    ) -> Arc<HostedJob> {
        let number = self.hosts.last.fetch_add(1, Ordering::Relaxed);
        let job = HostedJob::new(number, of, spec, retry_creation, (id, self.id()));
        let job = Arc::new(job);
        self.hosts.state.lock().waiting.push(Arc::clone(&job));
        self.place_processes();
        job
    }

    /// Puts the processes that wait into hosts, and starts hosts for them.
    pub(super) fn place_processes(&'static self) {
        let mut state = self.hosts.state.lock();
        let mut waiting = std::mem::take(&mut state.waiting);
        waiting.place(|job| match self.choose(&mut state, job) {
            Choice::Host(host) => {
                if host.add(Arc::clone(job)) {
                    self.limit_wait(host, job.number);
                }
                Ok(())
            }
            Choice::Wait(reason) => Err(reason),
            Choice::Refuse(problem) => {
                job.ended(not_started(problem));
                Ok(())
            }
        });
        state.waiting = waiting;
        let Some(meta) = state.waiting.first() else { return };
        if !state.growing {
            state.growing = true;
            self.spawn(move || self.grow(meta));
        }
    }

    /// Returns the host for a process, which may be new.
    fn choose(&'static self, state: &mut State, job: &Arc<HostedJob>) -> Choice {
        if let HostRule::Named(name) = &job.rule {
            return self.choose_named(state, job, name);
        }
        if !self.hosts.machines.exist() {
            let chosen = match job.rule.spread() {
                Some(spread) => fewest(&state.hosts, job, spread),
                None => {
                    let with_place = state.hosts.iter().filter(|host| host.has_place(job));
                    with_place.max_by_key(|host| host.state.lock().processes.len()).cloned()
                }
            };
            let of = (Arc::clone(&job.group), *job.meta());
            return Choice::Host(
                chosen.unwrap_or_else(|| self.start_host(state, None, Some(of), job)),
            );
        }
        // A machine without a host is all free.
        let taken = |name: &str| state.taken.contains_key(name);
        if let Some(machine) = self.hosts.machines.next_free(taken, job.meta()) {
            return Choice::Host(self.start_host(state, Some(machine), None, job));
        }
        match freest(&state.hosts, job) {
            Some(host) => Choice::Host(host),
            None => Choice::Wait(self.hosts.machines.full(&holders(&state.hosts))),
        }
    }

    /// Returns the host that a process names, by its own name or by that of its machine. A
    /// machine's may be new.
    fn choose_named(&'static self, state: &mut State, job: &Arc<HostedJob>, name: &str) -> Choice {
        let has_name =
            |host: &&Arc<Host>| host.name == name || host.machine.as_deref() == Some(name);
        if let Some(host) = state.hosts.iter().find(has_name) {
            return match host.place_of_its_own(job) {
                Place::Free => Choice::Host(Arc::clone(host)),
                Place::Later(reason) => Choice::Wait(reason),
                Place::Never(problem) => Choice::Refuse(problem),
            };
        }
        let machine = name.strip_prefix("host-").unwrap_or(name);
        for machine in [name, machine] {
            match self.hosts.machines.named(machine, job.meta()) {
                Some(Ok(room)) => {
                    let machine = (machine.to_string(), room);
                    return Choice::Host(self.start_host(state, Some(machine), None, job));
                }
                Some(Err(problem)) => return Choice::Refuse(problem),
                None => {}
            }
        }
        let mut there = self.hosts.machines.names();
        if there.is_empty() {
            let open = state.hosts.iter().filter(|host| host.is_open());
            there.extend(open.map(|host| host.name.clone()));
        }
        let there = match there.as_slice() {
            [] => "there is none now".into(),
            names => format!("there are {}", listed(names)),
        };
        let ended = state.ended.iter().find(|(ended, _)| ended == name);
        Choice::Refuse(match ended {
            Some((_, reason)) => format!("host `{name}` has ended: it {reason}; {there}"),
            None => format!("there is no host `{name}`; {there}"),
        })
    }

    /// Asks the backend for another machine.
    async fn grow(&'static self, meta: Meta) {
        let added = self.hosts.machines.add_another(&*self.backend, &meta).await;
        self.hosts.state.lock().growing = false;
        match added {
            Ok(true) => self.place_processes(),
            Ok(false) => self.refuse_too_large(),
            Err(error) => self.fail_waiting(&error.to_string()),
        }
    }

    /// Ends the processes that no machine is large enough for. For the others, the end of a process
    /// makes room.
    fn refuse_too_large(&'static self) {
        let mut state = self.hosts.state.lock();
        let mut waiting = std::mem::take(&mut state.waiting);
        let room_of = |machine: &str| state.taken.get(machine)?.state.lock().room;
        waiting.refuse(|meta| self.hosts.machines.too_small(meta, room_of));
        state.waiting = waiting;
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
    use super::super::hosted_job::tests::{job, ruled_job};
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
                let wire = HostWire::new(link, Arc::default(), number as u64, Arc::default());
                state.link = Some(Arc::new(wire));
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
    fn what_waits_knows_who_has_the_room() {
        let cluster = Cluster::new();
        assert_eq!(holders(&cluster.hosts), "");
        let named = |number, name: &str, group: &str| {
            let mut job = Arc::into_inner(job(number, Meta::new())).unwrap();
            (job.spec.name, job.group) = (name.into(), HostGroup::new(group, 1));
            Arc::new(job)
        };
        let place = |job| assert!(cluster.place(&[job])[0].is_some());
        place(named(7, "keeper", "processes"));
        assert_eq!(holders(&cluster.hosts), ": `keeper` has it");
        place(named(3, "squares/worker-2", "squares"));
        place(named(2, "squares/worker-1", "squares"));
        assert_eq!(holders(&cluster.hosts), ": `squares`, `keeper` have it");
        place(named(8, "squares-2/worker-1", "squares-2"));
        place(named(9, "till", "processes"));
        let others = ": `squares`, `keeper`, `squares-2` and others have it";
        assert_eq!(holders(&cluster.hosts), others);
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
    fn processes_of_a_set_are_spread_over_machines_that_others_have_filled_unevenly() {
        let cluster = Cluster::new();
        // The second machine has a process more than the others.
        assert_eq!(cluster.place(&jobs(0..4)), [0, 1, 2, 0].map(Some));
        let set = HostRule::Spread(Spread::new(2));
        let spread = |number| ruled_job(number, Meta::new(), set.clone());
        let placed = [spread(10), spread(11)];
        assert_eq!(cluster.place(&placed), [1, 2].map(Some));
        assert_eq!(cluster.place(&[spread(12)]), [None], "there is no room");
        // The next is not where one of them is, though that machine has as much room.
        placed[0].kill();
        cluster.hosts[1].remove(10);
        cluster.hosts[2].remove(2);
        assert_eq!(cluster.place(&[spread(13)]), [Some(1)]);
        assert_eq!(cluster.place(&[spread(14)]), [Some(2)], "no other machine has room");
    }

    /// Returns why there is no place, or an empty string.
    fn problem(host: &Arc<Host>, job: &HostedJob) -> String {
        match host.place_of_its_own(job) {
            Place::Free => String::new(),
            Place::Later(reason) => format!("later: {reason}"),
            Place::Never(problem) => format!("never: {problem}"),
        }
    }

    #[test]
    fn a_process_that_names_a_host_has_a_place_there_or_knows_why_not() {
        let cluster = Cluster::new();
        let machine = &cluster.hosts[1];
        assert_eq!(problem(machine, &job(0, Meta::new().cpu(2.0))), "");
        machine.add(job(0, Meta::new().cpu(1.5)));
        let later = "later: host `host-n1` has no room for a process of 1 cores";
        assert_eq!(problem(machine, &job(1, Meta::new().cpu(1.0))), later);

        let mut host = Arc::into_inner(Cluster::new().hosts.remove(0)).unwrap();
        let request = Meta::new().memory(1 << 20);
        (host.name, host.machine) = ("pool/host-7".into(), None);
        host.of = Some((HostGroup::new("pool", 2), request));
        let host = Arc::new(host);
        let never = "never: a place in host `pool/host-7` is for a process of 1.0 MiB of memory, not \
                     for a process of 2.0 MiB of memory";
        assert_eq!(problem(&host, &job(2, Meta::new().memory(2 << 20))), never);
        // A process of another group may be there.
        assert!(!host.has_place(&job(3, request)) && problem(&host, &job(3, request)).is_empty());
        for number in [4, 5] {
            assert!(!host.add(job(number, request)), "it does not wait");
        }
        let full =
            "later: host `pool/host-7` is full: it has 2 processes, as many as its job is for";
        assert_eq!(problem(&host, &job(6, Meta::new())), full);
        assert!(host.end(), "it works");
        assert_eq!(problem(&host, &job(6, Meta::new())), "never: host `pool/host-7` ends");
    }

    #[test]
    fn a_process_starts_when_its_machine_has_said_what_it_has_or_goes_elsewhere() {
        let cluster = Cluster::new();
        let host = &cluster.hosts[0];
        let own = Room { cpu: 1.0, memory: None, gpu: 0 };
        for granted in [None, Some(Room { gpu: u32::MAX, ..own })] {
            host.state.lock().room = granted;
            let half = Meta::new().cpu(0.5);
            let (plain, greedy) = (job(1, half), job(2, half.gpu(1)));
            for job in [&greedy, &plain] {
                assert_eq!(problem(host, job), "");
                assert!(!host.add(Arc::clone(job)), "it does not wait for another's place");
            }
            assert_eq!(cluster.started().concat(), [0; 0]);
            let without_room: Vec<_> = host.set_room(own).iter().map(|job| job.number).collect();
            assert_eq!(without_room, [2]);
            assert_eq!(cluster.started(), [vec![1], vec![], vec![]]);
            let never = "never: host `host-n0` is too small for a process of 0.5 cores and 1 GPU: \
                         its machine has 1 cores and 0 GPUs";
            assert_eq!(problem(host, &greedy), never);
            assert!(!host.has_place(&greedy));
            // It says it once, and no process starts twice.
            assert!(host.set_room(Room { gpu: 1, ..own }).is_empty());
            assert_eq!(cluster.started().concat(), [0; 0]);
            host.remove(1);
        }
    }

    #[test]
    fn names_in_a_message_are_few() {
        let names = |count| (0..count).map(|number| format!("n{number}")).collect::<Vec<_>>();
        assert_eq!(listed(&names(2)), "`n0`, `n1`");
        assert!(listed(&names(22)).ends_with("`n19` and 2 more"));
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

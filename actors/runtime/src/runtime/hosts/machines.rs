//! The machines of a backend that has some, each for one host.

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

use fiber_backends::{Backend, JobPlace, Machine, Room};
use fiber_core::stats::{ProcessRole, ProcessState, ProcessStats};
use fiber_core::{Meta, ProcessId, Result};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::room::{Use, largest, requested};

/// The first and the longest pause before a machine is tried again on which no host could start.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

#[derive(Default)]
pub(super) struct Machines {
    /// Whether the backend has machines.
    asked: OnceCell<bool>,
    known: Mutex<Vec<Known>>,
}

struct Known {
    machine: Machine,
    /// The last failure, until a host starts.
    failure: Option<Failure>,
}

struct Failure {
    /// The machine's id in statistics.
    id: ProcessId,
    since: SystemTime,
    problem: String,
    /// All problems since then: each was said once.
    problems: HashSet<String>,
    pause: Duration,
    retry_at: Instant,
}

impl Known {
    fn new(machine: Machine) -> Known {
        Known { machine, failure: None }
    }
}

impl Machines {
    /// Returns whether the backend has machines, which it is asked once.
    ///
    /// # Errors
    /// Those of [`Backend::machines`].
    pub(super) async fn known(&self, backend: &dyn Backend) -> Result<bool> {
        let ask = || async {
            let machines = backend.machines().await?;
            let exist = machines.is_some();
            self.known.lock().extend(machines.into_iter().flatten().map(Known::new));
            Ok(exist)
        };
        self.asked.get_or_try_init(ask).await.copied()
    }

    /// Returns whether the backend has machines, as far as is known.
    pub(super) fn exist(&self) -> bool {
        self.asked.get().is_some_and(|exist| *exist)
    }

    /// Returns the next machine without a host that may have room for a process, with its room.
    pub(super) fn next_free(
        &self,
        is_taken: impl Fn(&str) -> bool,
        meta: &Meta,
    ) -> Option<(String, Option<Room>)> {
        let now = Instant::now();
        let known = self.known.lock();
        let fits = |known: &&Known| {
            let Known { machine, failure } = known;
            failure.as_ref().is_none_or(|failure| failure.retry_at <= now)
                && machine.room.is_none_or(|room| Use::default().leaves_room(&room, meta))
                && !is_taken(&machine.name)
        };
        let next = known.iter().find(fits)?;
        Some((next.machine.name.clone(), next.machine.room))
    }

    /// Returns the room of a machine on which a host can be started for a process, as far as is
    /// known.
    ///
    /// # Errors
    /// No host can be started there.
    pub(super) fn named(&self, name: &str, meta: &Meta) -> Option<Result<Option<Room>, String>> {
        let known = self.known.lock();
        let Known { machine, failure } = known.iter().find(|known| known.machine.name == name)?;
        let failure = failure.as_ref().filter(|failure| failure.retry_at > Instant::now());
        Some(match failure {
            Some(Failure { problem, .. }) => {
                Err(format!("no host can be started on machine `{name}`: {problem}"))
            }
            None if machine.room.is_some_and(|room| !Use::default().leaves_room(&room, meta)) => {
                Err(format!("machine `{name}` is too small for {}", requested(meta)))
            }
            None => Ok(machine.room),
        })
    }

    /// Returns why no machine will ever have room for a process, if the room of all is known: from
    /// the machine's host by `room_of`, or else from the backend.
    pub(super) fn too_small(
        &self,
        meta: &Meta,
        room_of: impl Fn(&str) -> Option<Room>,
    ) -> Option<String> {
        let known = self.known.lock();
        let room = |Known { machine, .. }: &Known| room_of(&machine.name).or(machine.room);
        let rooms: Option<Vec<Room>> = known.iter().map(room).collect();
        let rooms = rooms.filter(|rooms| !rooms.is_empty())?;
        if rooms.iter().any(|room| Use::default().leaves_room(room, meta)) {
            return None;
        }
        let (requested, largest) = (requested(meta), largest(&rooms));
        Some(match known.as_slice() {
            [one] => {
                format!("`{}` is too small for {requested}: it has {largest}", one.machine.name)
            }
            _ => format!("no machine is large enough for {requested}: the largest have {largest}"),
        })
    }

    /// Returns the names of all machines.
    pub(super) fn names(&self) -> Vec<String> {
        self.known.lock().iter().map(|known| known.machine.name.clone()).collect()
    }

    /// Asks the backend for another machine. Returns whether there is one.
    ///
    /// # Errors
    /// Those of [`Backend::another_machine`].
    pub(super) async fn add_another(&self, backend: &dyn Backend, meta: &Meta) -> Result<bool> {
        let another = backend.another_machine(meta).await?;
        let exists = another.is_some();
        self.known.lock().extend(another.map(Known::new));
        Ok(exists)
    }

    /// Notes that a host has started.
    pub(super) fn started(&self, name: &str) {
        self.with(name, |known| known.failure = None);
    }

    /// Notes that no host could start. Returns the pause before the next attempt, and whether the
    /// machine has not had this problem since a host ran there.
    pub(super) fn failed(&self, name: &str, problem: &str, mut id: ProcessId) -> (Duration, bool) {
        let (mut pause, mut is_new, mut since) = (PAUSES.0, true, SystemTime::now());
        self.with(name, |known| {
            let mut problems = HashSet::new();
            if let Some(failure) = known.failure.take() {
                pause = (failure.pause * 2).min(PAUSES.1);
                (id, since, problems) = (failure.id, failure.since, failure.problems);
            }
            is_new = problems.insert(problem.to_string());
            let (problem, retry_at) = (problem.to_string(), Instant::now() + pause);
            known.failure = Some(Failure { id, since, problem, problems, pause, retry_at });
        });
        (pause, is_new)
    }

    /// Returns those that can't be used for now, each as a host that waits.
    pub(super) fn failing(&self, is_taken: impl Fn(&str) -> bool) -> Vec<ProcessStats> {
        let known = self.known.lock();
        let host = |Known { machine, failure }: &Known| {
            let failure = failure.as_ref().filter(|_| !is_taken(&machine.name))?;
            let name = format!("host-{}", machine.name);
            let mut host = ProcessStats::new(failure.id, name, ProcessRole::Host, failure.since);
            host.state = ProcessState::Waiting(format!("it can't be used: {}", failure.problem));
            host.set_job(JobPlace::Machine { name: machine.name.clone() });
            Some(host)
        };
        known.iter().filter_map(host).collect()
    }

    /// Returns the problems of all machines, if none works.
    pub(super) fn all_failed(&self) -> Option<String> {
        let known = self.known.lock();
        let problem = |Known { machine, failure }: &Known| {
            Some(format!("`{}`: {}", machine.name, failure.as_ref()?.problem))
        };
        let problems: Option<Vec<String>> = known.iter().map(problem).collect();
        problems.map(|problems| format!("no machine can be used: {}", problems.join("; ")))
    }

    /// Says that no machine has room, who has it, and which can't be used.
    pub(super) fn full(&self, holders: &str) -> String {
        let known = self.known.lock();
        let usable: Vec<_> = known.iter().filter(|known| known.failure.is_none()).collect();
        let mut full = match usable.as_slice() {
            [] if known.is_empty() => "there is no machine yet".into(),
            [] => "no machine can be used now".into(),
            [one] => format!("`{}` has no room for another process{holders}", one.machine.name),
            many => {
                let count = many.len();
                format!("none of the {count} machines has room for another process{holders}")
            }
        };
        for Known { machine, failure } in known.iter() {
            if let Some(Failure { problem, .. }) = failure {
                full.push_str(&format!("; `{}` can't be used: {problem}", machine.name));
            }
        }
        full
    }

    fn with(&self, name: &str, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.known.lock().iter_mut().find(|known| known.machine.name == name) {
            change(known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machines(names: &[(&str, Option<f64>)]) -> Machines {
        let machine = |(name, cpu): &(&str, Option<f64>)| {
            let room = cpu.map(|cpu| Room { cpu, memory: None, gpu: 0 });
            Known::new(Machine { name: name.to_string(), room })
        };
        Machines {
            asked: OnceCell::new_with(Some(true)),
            known: Mutex::new(names.iter().map(machine).collect()),
        }
    }

    #[test]
    fn a_request_that_no_machine_can_grant_is_known_when_all_rooms_are() {
        let too_small = |machines: &Machines, meta: &Meta| machines.too_small(meta, |_| None);
        let wide = Meta::new().cpu(64.0);
        assert_eq!(too_small(&machines(&[("a", None), ("b", Some(2.0))]), &wide), None);
        let two = machines(&[("a", Some(4.0)), ("b", Some(2.0))]);
        assert_eq!(too_small(&two, &Meta::new().cpu(4.0)), None);
        let problem = "no machine is large enough for a process of 64 cores: the largest have 4 \
                       cores and 0 GPUs";
        assert_eq!(too_small(&two, &wide).as_deref(), Some(problem));
        let problem = "`a` is too small for a process of 1 GPU: it has 4 cores and 0 GPUs";
        let one = too_small(&machines(&[("a", Some(4.0))]), &Meta::new().gpu(1));
        assert_eq!(one.as_deref(), Some(problem));
    }

    #[test]
    fn a_request_that_no_machine_can_grant_is_known_when_the_hosts_say_what_they_have() {
        let mut machines = machines(&[("a", None), ("b", Some(2.0))]);
        let of_slots = Room { cpu: 2.0, memory: None, gpu: u32::MAX };
        machines.known.get_mut()[1].machine.room = Some(of_slots);
        let gpu = Meta::new().gpu(1);
        let own = |gpu| Room { cpu: 4.0, memory: None, gpu };
        let too_small = |a: Option<Room>, b: Option<Room>| {
            machines.too_small(&gpu, |name| if name == "a" { a } else { b })
        };
        let slots = |gpu| Some(Room { gpu, ..of_slots });
        assert_eq!(too_small(None, slots(0)), None, "`a` has no host");
        assert_eq!(too_small(Some(own(0)), None), None, "`b` has no host");
        assert_eq!(too_small(Some(own(0)), slots(u32::MAX)), None, "the host of `b` starts");
        assert_eq!(too_small(Some(own(0)), slots(1)), None);
        let problem = "no machine is large enough for a process of 1 GPU: the largest have 4 cores \
                       and 0 GPUs";
        assert_eq!(too_small(Some(own(0)), slots(0)).as_deref(), Some(problem));
    }

    #[test]
    fn a_machine_that_fails_is_left_out_for_a_while() {
        let machines = machines(&[("a", None), ("b", Some(2.0))]);
        let next = |meta: Meta| machines.next_free(|_| false, &meta).map(|(name, _)| name);
        assert_eq!(next(Meta::new()).as_deref(), Some("a"));
        let failed =
            |name: &str, problem: &str| machines.failed(name, problem, ProcessId::random());
        assert_eq!(failed("a", "it does not answer"), (PAUSES.0, true));
        assert_eq!(next(Meta::new()).as_deref(), Some("b"));
        assert_eq!(next(Meta::new().cpu(3.0)), None);
        assert!(machines.all_failed().is_none());
        let id = machines.failing(|_| false)[0].id;
        assert_eq!(failed("a", "it does not answer"), (PAUSES.0 * 2, false));
        let failing = machines.failing(|_| false);
        let state = ProcessState::Waiting("it can't be used: it does not answer".into());
        assert_eq!((failing.len(), failing[0].id, &failing[0].state), (1, id, &state));
        assert!(machines.failing(|name| name == "a").is_empty(), "a host tries again");
        let full = "`b` has no room for another process: `c` has it; `a` can't be used: it does not \
                    answer";
        assert_eq!(machines.full(": `c` has it"), full);
        failed("b", "its disk is full");
        let problems = machines.all_failed().unwrap();
        assert!(problems.contains("`a`: it does not answer; `b`: its disk is full"), "{problems}");
        let named = |name: &str, meta: Meta| machines.named(name, &meta).map(|room| room.is_ok());
        assert_eq!(named("a", Meta::new()), Some(false));
        assert_eq!(named("c", Meta::new()), None);
        assert_eq!(failed("a", "it is short of memory"), (PAUSES.0 * 4, true));
        assert_eq!(failed("a", "it does not answer"), (PAUSES.0 * 8, false));
        machines.started("a");
        machines.started("b");
        assert_eq!(named("a", Meta::new()), Some(true));
        assert_eq!(named("b", Meta::new().cpu(2.0)), Some(true));
        assert_eq!(named("b", Meta::new().cpu(3.0)), Some(false));
        assert_eq!(next(Meta::new()).as_deref(), Some("a"));
        assert_eq!(failed("a", "it does not answer"), (PAUSES.0, true));
    }
}

//! The machines of a backend that has some, each for one host.

use std::time::{Duration, Instant};

use fiber_backends::{Backend, Machine, Room};
use fiber_core::{Meta, Result};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::room::{Use, requested};

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
    problem: String,
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

    /// Notes that no host could start. Returns the pause before the next attempt.
    pub(super) fn failed(&self, name: &str, problem: &str) -> Duration {
        let mut pause = PAUSES.0;
        self.with(name, |known| {
            if let Some(failure) = &known.failure {
                pause = (failure.pause * 2).min(PAUSES.1);
            }
            let retry_at = Instant::now() + pause;
            known.failure = Some(Failure { problem: problem.to_string(), pause, retry_at });
        });
        pause
    }

    /// Returns the problems of all machines, if none works.
    pub(super) fn all_failed(&self) -> Option<String> {
        let known = self.known.lock();
        let problems: Option<Vec<String>> = known
            .iter()
            .map(|known| {
                let failure = known.failure.as_ref()?;
                Some(format!("`{}`: {}", known.machine.name, failure.problem))
            })
            .collect();
        problems.map(|problems| format!("no machine can be used: {}", problems.join("; ")))
    }

    /// Says that no machine has room.
    pub(super) fn full(&self) -> String {
        let known = self.known.lock();
        match known.len() {
            0 => "there is no machine yet".into(),
            1 => format!("`{}` has no room for another process", known[0].machine.name),
            count => format!("none of the {count} machines has room for another process"),
        }
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
    fn a_machine_that_fails_is_left_out_for_a_while() {
        let machines = machines(&[("a", None), ("b", Some(2.0))]);
        let next = |meta: Meta| machines.next_free(|_| false, &meta).map(|(name, _)| name);
        assert_eq!(next(Meta::new()).as_deref(), Some("a"));
        assert_eq!(machines.failed("a", "it does not answer"), PAUSES.0);
        assert_eq!(next(Meta::new()).as_deref(), Some("b"));
        assert_eq!(next(Meta::new().cpu(3.0)), None);
        assert!(machines.all_failed().is_none());
        assert_eq!(machines.failed("a", "it does not answer"), PAUSES.0 * 2);
        machines.failed("b", "its disk is full");
        let problems = machines.all_failed().unwrap();
        assert!(problems.contains("`a`: it does not answer; `b`: its disk is full"), "{problems}");
        let named = |name: &str, meta: Meta| machines.named(name, &meta).map(|room| room.is_ok());
        assert_eq!(named("a", Meta::new()), Some(false));
        assert_eq!(named("c", Meta::new()), None);
        machines.started("a");
        machines.started("b");
        assert_eq!(named("a", Meta::new()), Some(true));
        assert_eq!(named("b", Meta::new().cpu(2.0)), Some(true));
        assert_eq!(named("b", Meta::new().cpu(3.0)), Some(false));
        assert_eq!(next(Meta::new()).as_deref(), Some("a"));
    }
}

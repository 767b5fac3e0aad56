//! Seats: the head limits how many processes there are below its own children.
//!
//! A process below the head takes a seat for each child, and gives it back when the child has ended.
//! Seats are members of one key. So a process that is lost leaves its seats, as it leaves its names;
//! its children end with it.

use std::time::Duration;

use fiber_core::Config;
use tokio::time::{Instant, sleep};

use super::wire::{Decoded, Key, Kind, Member, MemberId, Refusal};
use super::{Directory, Place, Then, outcome_of};
use crate::mesh::ActorId;

/// How many processes there may be for each CPU core, if the configuration says nothing.
const PER_CORE: usize = 16;

/// How long a process asks for a seat: one of a child that is about to end comes back soon.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

const REMEDY: &str = "A pool in a `static` is made again in each process that uses it: make it \
    where only one process does, use `Pool::current()`, or raise `FIBER_MAX_NESTED_PROCESSES`";

/// The right of a process below the head to have a child. Dropping it gives it back.
pub(crate) struct Seat {
    directory: &'static Directory,
    id: MemberId,
}

/// Returns how many seats a session has.
pub(super) fn max_seats(config: &Config) -> u64 {
    let by_cores = || std::thread::available_parallelism().map_or(1, usize::from) * PER_CORE;
    config.max_nested_processes.unwrap_or_else(by_cores) as u64
}

pub(super) fn all_taken(max_seats: u64) -> String {
    format!(
        "{max_seats} processes run below the children of this session's first process, and \
         `max_nested_processes` allows no more. {REMEDY}"
    )
}

fn key() -> Key {
    Key { kind: Kind::Seat, name: "".into() }
}

impl Directory {
    /// Takes a seat for a child of this process. A child of the head needs none.
    ///
    /// # Errors
    /// All are taken: why that may be, and what to do.
    pub(crate) async fn take_seat(&'static self) -> Result<Option<Seat>, String> {
        if let Place::Head(_) = self.place {
            return Ok(None);
        }
        let until = Instant::now() + PATIENCE;
        loop {
            match self.ask_for_seat().await {
                Ok(seat) => return Ok(Some(seat)),
                Err(_) if Instant::now() < until => sleep(PAUSE).await,
                Err(Refusal::Full(max_seats)) => return Err(all_taken(max_seats)),
                // This process is about to end, or can't reach the head by the network.
                Err(_) => return Ok(None),
            }
        }
    }

    async fn ask_for_seat(&'static self) -> Result<Seat, Refusal> {
        let id = MemberId { home: self.endpoint.id, actor: ActorId(self.mesh.next_ticket()) };
        let (address, messages, decoded) = (Vec::new(), Vec::new(), Decoded::default());
        let member = Member { id, address, actor_type: None, messages, decoded };
        outcome_of(|then| {
            let copy = member.clone();
            let taken: Then<()> = Box::new(move |outcome| {
                // If nobody waits for the seat any more, `then` drops it.
                then(outcome.map(|()| {
                    self.entered.lock().members.insert((key(), id), copy);
                    Seat { directory: self, id }
                }));
            });
            self.ask_to_enter(key(), member, taken);
        })
        .await
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.directory.leave_then(key(), self.id, Box::new(drop));
    }
}

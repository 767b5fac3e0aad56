//! The surroundings of fiber in simulations: chance, faults of jobs and links, and a disk.
//!
//! A thread of a simulated world has a [`World`]. Jobs, links and files that are simulated ask it
//! what happens to them. Other threads have none, and nothing happens.

mod death;
mod disk;

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::watch;

pub use self::death::Died;
pub(crate) use self::death::until_death;
pub use self::disk::{Disk, Fate};

/// A simulated world.
pub trait World: Sync {
    /// Makes this thread and those that it starts one node, which faults hit together. Returns its
    /// number.
    fn begin_node(&self, name: &str) -> u64;

    /// Notes that a node is dead. Its threads may go on for a while, but nothing that they do
    /// counts.
    fn end_node(&self, node: u64);

    /// Returns whether this thread's node is dead.
    fn is_dead(&self) -> bool;

    /// Returns the SIGTERMs of this thread's node, which from now on handles them.
    fn sigterms(&self) -> watch::Receiver<()>;

    /// Sends SIGTERM to a node. Returns whether the node handles it.
    fn terminate(&self, node: u64) -> bool;

    /// Ends this thread's node.
    fn exit(&self);

    /// Returns whether this thread's process is a head that has died, whose waits end. If it has
    /// not, its death wakes `waker`.
    fn has_died(&self, waker: &Waker) -> bool;

    /// Returns the disk of all nodes.
    fn disk(&self) -> Arc<Disk>;

    /// Registers a job or link, which faults may hit.
    fn add(&self, fragile: Arc<dyn Fragile>);

    /// Returns how long the next message of a link is on its way.
    fn delay(&self) -> Duration;

    /// Returns whether the unusual happens at this point of the code.
    fn is_unusual(&self, point: &'static str) -> bool;

    /// Draws a number below `end`.
    fn draw(&self, end: u64) -> u64;

    /// Draws random bytes.
    fn fill(&self, bytes: &mut [u8]);
}

/// How often a thread looks whether its node is dead.
const LOOK: Duration = Duration::from_secs(1);

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A job ends at once.
    Kill,
    /// A job gets SIGTERM.
    Terminate,
    /// A link closes at both ends.
    Cut,
    /// Messages over a link vanish from now on, and neither end is told.
    Lose,
}

/// A job or a link.
pub trait Fragile: Send + Sync {
    /// Returns the name of the job's process, or words for a link.
    fn name(&self) -> &str;

    /// Returns whether a fault would do anything to it.
    fn can_suffer(&self, fault: Fault) -> bool;

    /// Suffers a fault.
    fn suffer(&self, fault: Fault);

    /// Returns the node that a job runs.
    fn node(&self) -> Option<u64> {
        None
    }
}

thread_local! {
    static WORLD: Cell<Option<&'static dyn World>> = const { Cell::new(None) };
}

/// Returns the world of this thread.
pub fn world() -> Option<&'static dyn World> {
    WORLD.get()
}

/// Returns whether this thread is in a world in which the unusual happens at this point.
pub fn is_unusual(point: &'static str) -> bool {
    world().is_some_and(|world| world.is_unusual(point))
}

/// Waits until this thread's node is dead, and ends the thread's work by unwinding, as a kill would
/// by ending the process.
pub(crate) fn wait_for_kill(world: &dyn World) -> ! {
    while !world.is_dead() {
        std::thread::sleep(LOOK);
    }
    std::panic::resume_unwind(Box::new("the process is dead"))
}

/// The points at which the system may be short: where a thread or a process is started, and where
/// the descriptors of a runtime are made.
pub const SHORTAGES: [&str; 2] =
    ["the system has no thread to spare", "the process has no descriptor to spare"];

/// Returns the system's error if a thread can't be started, which takes memory, too.
///
/// # Errors
/// As above.
pub fn check_threads() -> io::Result<()> {
    let Some(world) = world().filter(|world| world.is_unusual(SHORTAGES[0])) else { return Ok(()) };
    let code = if world.draw(2) == 0 { libc::ENOMEM } else { libc::EAGAIN };
    Err(io::Error::from_raw_os_error(code))
}

/// Returns the system's error if the descriptors of a runtime can't be made.
///
/// # Errors
/// As above.
pub fn check_descriptors() -> io::Result<()> {
    let is_short = is_unusual(SHORTAGES[1]);
    if is_short { Err(io::Error::from_raw_os_error(libc::EMFILE)) } else { Ok(()) }
}

/// Sets the world of this thread.
pub fn enter(world: Option<&'static dyn World>) {
    WORLD.set(world);
}

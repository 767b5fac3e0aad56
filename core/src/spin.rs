//! Spinning: a thread checks again for a while before it sleeps.
//!
//! Waking a thread whose core is idle can take 30 µs, several times as long as the other process
//! needs for its answer. A thread that spins for about the time of a wake-up before it sleeps takes
//! at most twice as long as the better of the two choices (Karlin, Li, Manasse and Owicki:
//! Empirical Studies of Competitive Spinning for a Shared-Memory Multiprocessor, SOSP 1991).
//!
//! Spinning must not take time from other threads. Between two checks, the thread yields its core.
//! If another thread then keeps the core for long, cores are scarce: for a while, no thread of this
//! process spins.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The default limit of a wait's spinning. A call and its answer wake four threads in turn.
pub(crate) const DEFAULT: Duration = Duration::from_micros(100);
/// A thread that keeps a core for longer does work of its own. Threads that only forward messages
/// need less.
const LONG: Duration = Duration::from_micros(500);
/// How long no thread spins after cores were scarce.
const PAUSE: Duration = Duration::from_millis(100);

/// The limit of a wait's spinning in nanoseconds.
static LIMIT: AtomicU64 = AtomicU64::new(DEFAULT.as_nanos() as u64);
/// The time until which no thread spins, in nanoseconds since [`START`].
static PAUSED: AtomicU64 = AtomicU64::new(0);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Sets how long threads of this process spin before they sleep. With one core they never spin.
pub fn set_spin(limit: Duration) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let limit = if cores > 1 { limit } else { Duration::ZERO };
    LIMIT.store(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// The spinning of one thread that waits for another thread or process.
#[derive(Debug, Default)]
pub struct Spin {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Fresh,
    Since(Instant),
    Over,
}

impl Spin {
    /// Ends the wait, because the awaited thing has come. The next wait spins again.
    pub fn restart(&mut self) {
        self.state = State::Fresh;
    }

    /// Stops spinning, because nothing is expected soon.
    pub fn stop(&mut self) {
        self.state = State::Over;
    }

    /// Returns whether to [yield](Spin::yield_core) and check again. If not, the thread sleeps.
    pub fn should_continue(&mut self) -> bool {
        if matches!(self.state, State::Over) {
            return false;
        }
        let now = Instant::now();
        let since = if let State::Since(since) = self.state { since } else { now };
        let limit = Duration::from_nanos(LIMIT.load(Ordering::Relaxed));
        let should_continue = now - since < limit && nanos(now) >= PAUSED.load(Ordering::Relaxed);
        self.state = if should_continue { State::Since(since) } else { State::Over };
        should_continue
    }

    /// Yields the core to other threads, and notices when cores are scarce.
    pub fn yield_core(&self) {
        let before = Instant::now();
        thread::yield_now();
        let after = Instant::now();
        if after - before > LONG {
            PAUSED.store(nanos(after + PAUSE), Ordering::Relaxed);
        }
    }
}

fn nanos(time: Instant) -> u64 {
    time.saturating_duration_since(*START).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spins to the end, and returns the number of checks.
    fn turns(spin: &mut Spin) -> u64 {
        let mut turns = 0;
        while spin.should_continue() {
            spin.yield_core();
            turns += 1;
        }
        turns
    }

    #[test]
    fn a_wait_spins_up_to_the_limit_unless_it_is_stopped_or_cores_are_scarce() {
        let mut spin = Spin::default();
        set_spin(Duration::ZERO);
        assert_eq!(turns(&mut spin), 0, "spinning is turned off");

        // More nanoseconds than a number has.
        set_spin(Duration::from_secs(18_446_744_074));
        let limit = LIMIT.load(Ordering::Relaxed);
        assert!(limit == u64::MAX || limit == 0, "{limit}");

        LIMIT.store(Duration::from_millis(1).as_nanos() as u64, Ordering::Relaxed);
        assert_eq!(turns(&mut spin), 0, "the wait is over, and was not restarted");
        spin.stop();
        assert_eq!(turns(&mut spin), 0, "it was stopped");
        spin.restart();
        // Other processes may have kept the core for so long that no thread spins for now.
        while turns(&mut spin) == 0 {
            spin.restart();
        }

        PAUSED.store(u64::MAX, Ordering::Relaxed);
        spin.restart();
        assert_eq!(turns(&mut spin), 0, "cores are scarce");
    }
}

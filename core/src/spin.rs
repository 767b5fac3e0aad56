//! Looking again and again before going to sleep.
//!
//! To wake a thread whose core has gone idle can take 30 µs, several times what the other process
//! needs to answer. A thread that looks again for about as long as its wake-up would take, and
//! sleeps only then, spends at most twice the time that the better choice would have taken,
//! whatever comes (Karlin, Li, Manasse and Owicki: Empirical Studies of Competitive Spinning for a
//! Shared-Memory Multiprocessor, SOSP 1991).
//!
//! Only time that nobody else wants is to be spent so. Between two looks the core is offered to
//! others; when one of them keeps it for long, cores are scarce, and threads of this process sleep
//! at once for a while.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a wait may spin by default. Four threads wake one another for a call and its answer.
pub(crate) const DEFAULT: Duration = Duration::from_micros(100);
/// Who keeps a core for longer has work of its own: threads that only pass messages on are done
/// sooner.
const LONG: Duration = Duration::from_micros(500);
/// For how long no thread spins when cores are scarce.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a wait may spin, in nanoseconds.
static LIMIT: AtomicU64 = AtomicU64::new(DEFAULT.as_nanos() as u64);
/// Until when no thread spins, in nanoseconds since [`START`].
static PAUSED: AtomicU64 = AtomicU64::new(0);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Sets how long threads of this process look again before they sleep; with one core, not at all.
pub fn set_spin(limit: Duration) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let limit = if cores > 1 { limit } else { Duration::ZERO };
    LIMIT.store(limit.as_nanos() as u64, Ordering::Relaxed);
}

/// A wait for what comes from another thread or process.
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
    /// What was waited for is there: the next wait begins anew.
    pub fn restart(&mut self) {
        self.state = State::Fresh;
    }

    /// Nothing is to be expected soon.
    pub fn stop(&mut self) {
        self.state = State::Over;
    }

    /// Whether to [give way](Spin::yield_core) and look again. If not, it is time to sleep.
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

    /// Offers the core to others.
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

    /// Turns until it is time to sleep.
    fn turns(spin: &mut Spin) -> u64 {
        let mut turns = 0;
        while spin.should_continue() {
            spin.yield_core();
            turns += 1;
        }
        turns
    }

    #[test]
    fn a_wait_spins_for_a_while_unless_it_is_told_not_to() {
        let mut spin = Spin::default();
        set_spin(Duration::ZERO);
        assert_eq!(turns(&mut spin), 0, "it was turned off");

        LIMIT.store(Duration::from_millis(1).as_nanos() as u64, Ordering::Relaxed);
        assert_eq!(turns(&mut spin), 0, "its wait is over, and nothing has come since");
        spin.stop();
        assert_eq!(turns(&mut spin), 0, "nothing is to be expected");
        spin.restart();
        // Others may well have kept the core for so long that no thread spins for now.
        while turns(&mut spin) == 0 {
            spin.restart();
        }

        PAUSED.store(u64::MAX, Ordering::Relaxed);
        spin.restart();
        assert_eq!(turns(&mut spin), 0, "cores are scarce");
    }
}

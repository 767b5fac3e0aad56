//! Paused time, for the timers of actors.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{spawn_blocking, unconstrained, yield_now};
use tokio::time;

/// The number of times that the other futures of a thread run before their timers count as done.
const SETTLE: u32 = 64;
/// The longest time for which a thread may not have looked at its timers.
const LONGEST_TURN: Duration = Duration::from_secs(60 * 60);

/// Stops the time of this thread's actors until the returned value is dropped.
///
/// Timers of actix and tokio on this thread then fire only during [`PausedTime::advance`]. Other
/// processes and threads are not concerned: neither managed actors nor the time limits of fiber's
/// replies.
///
/// # Panics
/// Outside of an actix system or a tokio runtime of one thread, and if the time is paused already.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// #[fiber::main]
/// async fn main() {
///     let mut time = fiber::test::pause_time();
///     let day = Duration::from_secs(24 * 60 * 60);
///     let sleep = fiber::actix::clock::sleep(day);
///     time.advance(day).await;
///     sleep.await; // it has passed
/// }
/// ```
#[track_caller]
pub fn pause_time() -> PausedTime {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    assert!(
        matches!(flavor, Ok(RuntimeFlavor::CurrentThread)),
        "`pause_time` needs an actix system on this thread: call it in an async test of \
         `#[actix::test]`, in `fiber::test::session`, or within `System::new().block_on(…)`"
    );
    time::pause();
    align();
    PausedTime { start: time::Instant::now(), hold: Some(Hold::new()) }
}

/// The stopped time of a thread's actors. [`pause_time`] makes it; dropping it lets the time pass.
pub struct PausedTime {
    start: time::Instant,
    /// Absent while the time advances.
    hold: Option<Hold>,
}

impl PausedTime {
    /// Lets `by` pass, at once. It is rounded up to whole milliseconds.
    ///
    /// The timers within it fire one after the other, each at its own moment, with what the actors
    /// of this thread do about them. Answers of other processes take real time, so timers may fire
    /// before them.
    pub async fn advance(&mut self, by: Duration) {
        let mut passed = pin!(time::sleep(by));
        // The sleep is among the timers before the first of them fires.
        let _ = futures_util::poll!(&mut passed);
        self.hold = None;
        passed.await;
        self.hold = Some(Hold::new());
        for _ in 0..SETTLE {
            yield_now().await;
        }
    }

    /// Returns how much time has passed since it was paused.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Drop for PausedTime {
    fn drop(&mut self) {
        self.hold = None;
        // Elsewhere there is nothing to resume: the runtime has ended.
        if Handle::try_current().is_ok() {
            time::resume();
        }
    }
}

impl fmt::Debug for PausedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PausedTime").field("elapsed", &self.elapsed()).finish()
    }
}

/// Moves the paused time to the next whole millisecond of tokio's timers, which fire at no others:
/// a timer that starts another one when it fires would else be later each time.
fn align() {
    let now = time::Instant::now();
    let has_passed = |before: Duration| {
        let Some(deadline) = now.checked_sub(before) else { return true };
        let timer = pin!(unconstrained(time::sleep_until(deadline)));
        timer.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    // A timer has passed if its millisecond is not after the last at which the timers were looked
    // at.
    let (mut shortest, mut longest) = (Duration::ZERO, LONGEST_TURN);
    if has_passed(shortest) || !has_passed(longest) {
        return;
    }
    while longest - shortest > Duration::from_nanos(1) {
        let middle = shortest + (longest - shortest) / 2;
        *(if has_passed(middle) { &mut longest } else { &mut shortest }) = middle;
    }
    let past = longest.subsec_nanos() % 1_000_000;
    let rest = Duration::from_nanos(u64::from((1_000_000 - past) % 1_000_000));
    // The first step moves the time, and the others wait for its timers.
    let _ = pin!(time::advance(rest)).poll(&mut Context::from_waker(Waker::noop()));
}

/// Keeps the paused time from jumping to the next timer whenever the thread has nothing to do, as
/// tokio's does: it does not while a blocking task runs.
struct Hold {
    _running: mpsc::Sender<()>,
}

impl Hold {
    fn new() -> Hold {
        let (running, ended) = mpsc::channel::<()>();
        drop(spawn_blocking(move || ended.recv()));
        Hold { _running: running }
    }
}

//! Progress bars on standard error. They are drawn only if it is a terminal.
//!
//! Bars that are visible at the same time form a group, which is hidden while something else is
//! printed. Lock order: standard output before the group, because a thread that holds the lock of
//! standard output may advance a bar.

use std::cell::Cell;
use std::fmt::Write;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use parking_lot::Mutex;

/// The progress bar of a call, if it has one.
#[derive(Default)]
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(super) fn new(label: String, length: Option<u64>) -> Progress {
        let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
        let template = match length {
            Some(_) => "{prefix} {wide_bar} {human_pos}/{human_len} {rate} {eta}",
            None => "{prefix} {spinner} {human_pos} {rate}",
        };
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        let style = style.with_key("rate", |state: &ProgressState, text: &mut dyn Write| {
            let _ = text.write_str(&rate(state.per_sec()));
        });
        Progress(Some(Group::add(bar.with_style(style).with_prefix(label))))
    }

    pub(super) fn advance(&self, count: u64, total: Option<u64>) {
        if let Some(bar) = &self.0 {
            if let (None, Some(total)) = (bar.length(), total) {
                bar.set_length(total);
            }
            bar.inc(count);
        }
    }

    /// Forgets how fast the call has advanced, because a journal had the outcomes.
    pub(super) fn forget_rate(&self) {
        if let Some(bar) = &self.0 {
            bar.reset_eta();
        }
    }

    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.0.take() {
            Group::finish(&bar);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The bars that are visible together.
struct Group {
    screen: MultiProgress,
    /// Includes finished bars, which would vanish if they were dropped.
    bars: Vec<ProgressBar>,
}

/// One for the process, as its terminal is.
static GROUP: Mutex<Option<Group>> = Mutex::new(None);

impl Group {
    fn add(bar: ProgressBar) -> ProgressBar {
        fiber_backends::set_print_wrapper(|print| suspend_progress(print));
        let mut group = GROUP.lock();
        let group =
            group.get_or_insert_with(|| Group { screen: MultiProgress::new(), bars: Vec::new() });
        let bar = group.screen.add(bar);
        group.bars.push(bar.clone());
        bar
    }

    /// Finishes a bar. The last bar to finish leaves the group on the screen.
    fn finish(bar: &ProgressBar) {
        bar.abandon();
        let whole = GROUP.lock().take_if(|group| group.bars.iter().all(ProgressBar::is_finished));
        drop(whole);
    }
}

/// Hides all progress bars while `print` runs, and draws them again below the printed lines.
///
/// Lines that are printed beside a bar leave a stale bar behind. Fiber forwards the output of
/// workers and processes through this function. A program uses it for its own lines, and for those
/// of its logger, while a call with `progress` runs. `print` must only print: if it awaits a call
/// that advances a bar, it deadlocks.
///
/// # Examples
/// ```
/// # fiber::init();
/// let pool = fiber::Pool::new(2)?;
/// for square in pool.imap(|x: u64| x * x, 0..10).progress("squares").wait() {
///     let square = square?;
///     fiber::pool::suspend_progress(|| println!("{square}"));
/// }
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn suspend_progress<R>(print: impl FnOnce() -> R) -> R {
    if SUSPENDED.get() {
        return print();
    }
    let screen = GROUP.lock().as_ref().map(|group| group.screen.clone());
    let Some(screen) = screen else { return print() };
    let _first = io::stdout().lock();
    SUSPENDED.set(true);
    // A panic, as of `println!` without a reader, would poison the lock of the bars.
    let printed = screen.suspend(|| catch_unwind(AssertUnwindSafe(print)));
    SUSPENDED.set(false);
    printed.unwrap_or_else(|panic| resume_unwind(panic))
}

thread_local! {
    /// Whether this thread prints while the bars are hidden.
    static SUSPENDED: Cell<bool> = const { Cell::new(false) };
}

/// Formats a number of tasks a second with its significant digits.
fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1000.0 => format!("{}/s", HumanCount(rate as u64)),
        rate if rate >= 1.0 => format!("{rate:.1}/s"),
        rate => format!("{rate:.2}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_go_on_after_a_panic_of_what_is_printed_beside_them() {
        let _squares = Progress::new("squares".into(), Some(2));
        let broken = || -> u8 { panic!("no reader") };
        assert!(catch_unwind(|| suspend_progress(broken)).is_err());
        assert!(!SUSPENDED.get());
        let cubes = Progress::new("cubes".into(), Some(1));
        cubes.advance(1, None);
        assert_eq!(suspend_progress(|| 7), 7);
    }

    #[test]
    fn rates_show_their_significant_digits() {
        for (per_second, expected) in [
            (0.0, "0.00/s"),
            (0.254, "0.25/s"),
            (21.0987, "21.1/s"),
            (999.0, "999.0/s"),
            (1_234_567.8, "1,234,567/s"),
        ] {
            assert_eq!(rate(per_second), expected);
        }
    }
}

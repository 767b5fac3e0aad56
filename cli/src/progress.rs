//! Progress on standard error, if that is a terminal.

use std::time::Duration;

use fiber_backends::{Progress, Step};
use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal::printable;

/// Shows a spinner for each step.
#[derive(Debug)]
pub(crate) struct Spinners;

impl Progress for Spinners {
    fn begin(&self, what: &str) -> Box<dyn Step> {
        Box::new(Spinner::begin(what))
    }
}

/// A step in progress.
pub(crate) struct Spinner {
    bar: ProgressBar,
    what: String,
    done: bool,
}

impl Spinner {
    pub(crate) fn begin(what: &str) -> Spinner {
        // It draws nothing if standard error is no terminal.
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}")
            .expect("the template is valid");
        bar.set_style(style);
        let what = printable(what);
        bar.set_message(what.clone());
        bar.enable_steady_tick(Duration::from_millis(100));
        Spinner { bar, what, done: false }
    }
}

impl Step for Spinner {
    fn detail(&mut self, detail: &str) {
        self.bar.set_message(format!("{}: {}", self.what, printable(detail)));
    }

    fn done(mut self: Box<Self>) {
        self.done = true;
        let time = self.bar.elapsed().as_secs_f64();
        self.bar.finish_and_clear();
        self.bar.println(format!("✓ {} ({time:.1} s)", self.what));
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if !self.done {
            self.bar.finish_and_clear();
            self.bar.println(format!("✗ {}", self.what));
        }
    }
}

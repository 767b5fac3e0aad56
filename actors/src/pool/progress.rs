//! Progress bars, for people: nothing is drawn where standard error is no terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// How far a call is.
#[derive(Default)]
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(super) fn new(label: String, length: Option<u64>) -> Progress {
        let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
        let template = match length {
            Some(_) => "{prefix} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}",
            None => "{prefix} {spinner} {human_pos} {per_sec}",
        };
        let style = ProgressStyle::with_template(template).expect("the template is right");
        Progress(Some(bar.with_style(style).with_prefix(label)))
    }

    pub(super) fn advance(&self, count: u64, total: Option<u64>) {
        if let Some(bar) = &self.0 {
            if let (None, Some(total)) = (bar.length(), total) {
                bar.set_length(total);
            }
            bar.inc(count);
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.abandon();
        }
    }
}

//! Stands in for progress bars in a build without the feature `progress`.

/// A progress bar that never shows.
#[derive(Default)]
pub(super) struct Progress {}

impl Progress {
    pub(super) fn advance(&self, _: u64, _: Option<u64>) {}

    pub(super) fn forget_rate(&self) {}

    pub(super) fn finish(&mut self) {}
}

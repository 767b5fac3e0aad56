//! Error messages with all of their causes, where the message of the error alone says too little.

use std::error::Error;
use std::io;

use fiber_core::shortage;

/// Formats an error with all of its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
    }
    text
}

/// Returns the causes of an error, from the nearest to the innermost.
pub(crate) fn causes(error: &dyn Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

/// Returns the message of a shortage of descriptors, threads or memory that caused an error, with
/// the limit to raise.
pub(crate) fn shortage_behind(error: &(dyn Error + 'static)) -> Option<String> {
    std::iter::once(error)
        .chain(causes(error))
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .find(|cause| shortage::is_shortage(cause))
        .map(shortage::explain)
}

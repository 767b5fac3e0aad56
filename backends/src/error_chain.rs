//! Error messages with all of their causes, where the message of the error alone says too little.

use std::error::Error;

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

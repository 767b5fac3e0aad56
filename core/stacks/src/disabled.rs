//! The functions in a build without the feature `stacks`, or on another processor.

use std::collections::BTreeSet;
use std::time::Duration;

use fiber_core::stacks::{ProcessStack, Profile, ProgramNames, ThreadStack};
use fiber_core::{Error, Result};

fn refused<T>() -> Result<T> {
    if cfg!(feature = "stacks") {
        let problem = "stacks can only be taken on x86_64 and aarch64";
        return Err(Error::system("this build takes no stacks", problem));
    }
    Err(Error::missing_feature("the capture of stacks", "stacks"))
}

/// Returns an error.
///
/// # Errors
/// [`Error::Config`] in a build without the feature, else [`Error::System`].
pub fn capture(_limit: Duration) -> Result<ProcessStack> {
    refused()
}

/// Returns an error.
///
/// # Errors
/// As [`capture`].
pub fn capture_thread(_tid: u32, _limit: Duration) -> Result<ThreadStack> {
    refused()
}

/// Returns an error.
///
/// # Errors
/// As [`capture`].
pub fn from_outside(_pid: u32, _problem: &str) -> Result<ProcessStack> {
    refused()
}

/// Returns an error.
///
/// # Errors
/// As [`capture`].
pub fn profile(_duration: Duration, _hertz: u32, _idle: bool) -> Result<Profile> {
    refused()
}

/// Returns an error.
///
/// # Errors
/// As [`capture`].
pub fn program_names(_offsets: &BTreeSet<u64>) -> Result<ProgramNames> {
    refused()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(feature = "stacks"))]
    fn the_error_names_the_feature() {
        let results = [
            from_outside(1, "").map(drop),
            capture(Duration::ZERO).map(drop),
            capture_thread(1, Duration::ZERO).map(drop),
            profile(Duration::ZERO, 1, false).map(drop),
            program_names(&BTreeSet::new()).map(drop),
        ];
        for result in results {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("cargo add fiber --features stacks"), "{error}");
        }
    }
}

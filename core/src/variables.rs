//! The environment variables of fiber that are not options of the configuration.

/// The path of the configuration file.
pub const CONFIG: &str = "FIBER_CONFIG";
/// The parent of this process, which is a child if the variable is set.
pub const PARENT: &str = "FIBER_PARENT";
/// The join ticket of a child, or `-` if it comes on standard input.
pub const KEY: &str = "FIBER_KEY";
/// How often `fiber run --restarts` has started this program again.
pub const RESTARTS: &str = "FIBER_RESTARTS";
/// The seeds that a user wants to see, in tests with simulated worlds.
pub const SIM_SEED: &str = "FIBER_SIM_SEED";
/// The number of fresh seeds in tests with simulated worlds.
pub const SIM_COUNT: &str = "FIBER_SIM_COUNT";
/// The path of the page with the history of a simulated world.
pub const SIM_HTML: &str = "FIBER_SIM_HTML";
/// The order of a process that plays seeds of a test.
pub const SIM_PLAY: &str = "FIBER_SIM_PLAY";

/// Whether the user of this process has set its environment. That is not so if the program's file
/// has a setuid or setgid bit, or capabilities: the caller sets the environment, and has fewer
/// rights than the program.
#[allow(unsafe_code)]
pub fn are_own() -> bool {
    // SAFETY: reads a number that the kernel has passed to the process.
    unsafe { libc::getauxval(libc::AT_SECURE) == 0 }
}

/// All of them.
pub(crate) const ALL: [&str; 8] =
    [CONFIG, PARENT, KEY, RESTARTS, SIM_SEED, SIM_COUNT, SIM_HTML, SIM_PLAY];

//! The environment variables of fiber that are not options of the configuration.

/// The path of the configuration file.
pub const CONFIG: &str = "FIBER_CONFIG";
/// The parent of this process, which is a child if the variable is set.
pub const PARENT: &str = "FIBER_PARENT";
/// The session key, or `-` if the key comes on standard input.
pub const KEY: &str = "FIBER_KEY";
/// How often `fiber run --restarts` has started this program again.
pub const RESTARTS: &str = "FIBER_RESTARTS";

/// All of them.
pub(crate) const ALL: [&str; 4] = [CONFIG, PARENT, KEY, RESTARTS];

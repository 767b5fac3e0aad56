//! The section `[gridengine]` of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use fiber_core::values::{duration, lenient};

fiber_core::section! {
    /// Options of the backend `gridengine`.
    pub struct GridEngineSection in "gridengine" {
        /// How many pilots a program may have, if its job has no room or there is none: jobs of its
        /// own, each on one host.
        pilots: usize = 0,
        /// Whether the script of the first pilot is printed, and none is submitted.
        dry_run: bool = false,
        /// The slots of a pilot, each for a core.
        slots: u32 = 1,
        /// The parallel environment of pilots with several slots, which has to give all on one
        /// host. Without one: the only one of the cluster.
        pe: Option<String> = None,
        /// The queue of pilots. Without one: any.
        queue: Option<String> = None,
        /// The project of pilots.
        #[serde(deserialize_with = "lenient::text")]
        project: Option<String> = None,
        /// The time limit of pilots.
        #[serde(with = "duration")]
        time: Duration = Duration::from_secs(3600),
        /// More options of `qsub` for pilots, each with its value: `["-l h_vmem=4G"]`. They win
        /// over fiber's own.
        #[serde(deserialize_with = "lenient::list")]
        options: Vec<String> = Vec::new(),
        /// The directory for the keys and the output of pilots, which all hosts share. Fiber
        /// creates it if it is missing, and removes the files of pilots that have ended.
        dir: PathBuf = "fiber-gridengine".into(),
    }
}

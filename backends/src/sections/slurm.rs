//! The section `[slurm]` of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use fiber_core::SectionEntry;
use fiber_core::values::{duration, lenient};

fiber_core::section! {
    /// Options of the backend `slurm`.
    pub struct SlurmSection in "slurm" {
        /// Whether the program's file is copied to nodes that lack it: for hosts into `/tmp`
        /// (`srun --bcast`), where it is removed when they run, and for the head of `fiber run`
        /// into the folder for output.
        copy: bool = false,
        /// How many pilots a program may have, if its allocation has no room or there is none: jobs
        /// of its own, each with a node for itself.
        pilots: usize = 0,
        /// Whether the script of the first pilot is printed, and none is submitted.
        dry_run: bool = false,
        /// The partition of pilots. Without one: the cluster's default.
        partition: Option<String> = None,
        /// The account of pilots.
        #[serde(deserialize_with = "lenient::text")]
        account: Option<String> = None,
        /// The quality of service of pilots.
        qos: Option<String> = None,
        /// The time limit of pilots, rounded up to minutes.
        #[serde(with = "duration")]
        time: Duration = Duration::from_secs(3600),
        /// More options of `sbatch` for pilots, verbatim: `["--constraint=avx512"]`. They win over
        /// fiber's own.
        #[serde(deserialize_with = "lenient::list")]
        options: Vec<String> = Vec::new(),
        /// The directory for the keys and the output of pilots, which all nodes share. Fiber
        /// creates it if it is missing, and removes the files of pilots that have ended.
        dir: PathBuf = "fiber-slurm".into(),
    }
}

impl SlurmSection {
    pub(crate) const ENTRY: SectionEntry = SectionEntry::of::<SlurmSection>();
}

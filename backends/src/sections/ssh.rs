//! The section `[ssh]` of the configuration.

use std::path::PathBuf;

use bytesize::ByteSize;
use fiber_core::SectionEntry;
use fiber_core::values::{lenient, size};

fiber_core::section! {
    /// Options of the backend `ssh`.
    pub struct SshSection in "ssh" {
        /// The machines: `NAME`, `USER@NAME` or an alias of ssh's configuration, with `:CORES`
        /// for a limit of the processes there. IPv6 addresses are in brackets. Without a limit:
        /// the machine's cores.
        #[serde(deserialize_with = "lenient::list")]
        hosts: Vec<String> = Vec::new(),
        /// A file with more machines, one a line, as in `hosts`; `#` begins a comment.
        #[serde(deserialize_with = "lenient::path")]
        hosts_file: Option<PathBuf> = None,
        /// The configuration file for the command `ssh`. Without one: the user's and the
        /// system's.
        #[serde(deserialize_with = "lenient::path")]
        config: Option<PathBuf> = None,
        /// The directory on the machines that keeps copies of programs. Without one:
        /// `fiber-UID/builds` in `$XDG_CACHE_HOME`, which is `~/.cache` by default.
        #[serde(deserialize_with = "lenient::path")]
        cache: Option<PathBuf> = None,
        /// The size limit of that directory. The longest unused builds are removed first.
        #[serde(with = "size")]
        cache_size: ByteSize = ByteSize::gib(2),
    }
}

impl SshSection {
    pub(crate) const ENTRY: SectionEntry = SectionEntry::of::<SshSection>();
}

//! The section `[docker]` of the configuration.

use fiber_core::SectionEntry;

fiber_core::section! {
    /// Options of the backend `docker`.
    pub struct DockerSection in "docker" {
        /// The network of containers: the name of an existing one, or `host`. Without one: that
        /// of this process's own container, or the engine's `bridge`.
        network: Option<String> = None,
        /// The most processes and threads in a container. 0 sets no limit.
        pids_limit: u32 = 16_384,
    }
}

impl DockerSection {
    // `fiber run` starts programs there already.
    pub(crate) const ENTRY: SectionEntry = SectionEntry::of::<DockerSection>().not_forwarded();
}

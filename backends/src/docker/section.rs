//! The section `[docker]` of the configuration.

fiber_core::section! {
    /// Options of the backend `docker`.
    pub struct DockerSection in "docker" {
        /// The network of containers: the name of an existing one, or `host`. Without one: that
        /// of this process's own container, or the engine's `bridge`.
        #[earlier(network)]
        network: Option<String> = None,
    }
}

//! The machine on which a process runs.

/// Returns the name of this machine. All machines have one name in simulated worlds, whose histories
/// are the same wherever they are played: addresses of memory depend on its length.
pub fn host_name() -> String {
    #[cfg(feature = "simulation")]
    if crate::simulation::world().is_some() {
        return "world".into();
    }
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

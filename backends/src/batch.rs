//! Parts of the backends whose programs run in the allocation of a batch system: Slurm and Grid
//! Engine.

pub(crate) mod listen;
mod program;

pub(crate) use self::program::program_path;

/// Returns whether a host of an allocation is the one on which this process runs.
pub(crate) fn is_this_host(name: &str) -> bool {
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    own.split('.').next() == name.split('.').next()
}

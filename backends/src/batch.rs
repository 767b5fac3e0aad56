//! Parts of the backends whose programs run in the allocation of a batch system: Slurm and Grid
//! Engine.
//!
//! [`BatchCluster`] is the command's view of a batch system, which implements [`BatchSystem`]. The
//! head of a session is the program of a batch script. Its output goes to a file in a folder of the
//! user, which also is the record of the session: batch systems forget jobs after their end.

mod cluster;
mod commands;
mod head_script;
pub(crate) mod listen;
pub(crate) mod options;
mod output;
mod pilot;
mod program;
mod records;
mod script;
mod session_job;
mod system;

pub(crate) use self::cluster::BatchCluster;
#[cfg(feature = "slurm")]
pub(crate) use self::cluster::PAUSE;
pub(crate) use self::commands::{CommandError, Hints, run_within};
pub(crate) use self::head_script::{HeadScript, exports};
#[cfg(feature = "gridengine")]
pub(crate) use self::pilot::ID as PILOT_ID;
#[cfg(test)]
pub(crate) use self::pilot::sample_spec;
pub(crate) use self::pilot::{
    PilotFiles, PilotJob, PilotRequest, PilotSettings, PilotSystem, Pilots, Progress, pilots_stay,
    sweep as sweep_pilots,
};
pub(crate) use self::program::{program_of, program_path};
#[cfg(feature = "slurm")]
pub(crate) use self::records::copy_path;
#[cfg(feature = "gridengine")]
pub(crate) use self::records::{
    EXIT, GRACE, NODE, RESTARTS, ended_in, environment_path, has_started_in,
};
pub(crate) use self::records::{Record, Records};
pub(crate) use self::script::quoted;
pub(crate) use self::session_job::SessionJob;
pub(crate) use self::system::{BatchSystem, Words};

/// Returns whether a host of an allocation is the one on which this process runs.
pub(crate) fn is_this_host(name: &str) -> bool {
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    own.split('.').next() == name.split('.').next()
}

//! Parts for backends whose programs run in the allocations of a batch system.
//!
//! [`Pilots`] are jobs that a program submits for more hosts, by a [`PilotSystem`].
//! [`BatchCluster`] is the command's view of a batch system, which implements [`BatchSystem`]. The
//! head of a session is the program of a batch script. Its output goes to a file in a folder of the
//! user, which also is the record of the session: batch systems forget jobs after their end.

mod cluster;
mod commands;
mod head_script;
pub mod listen;
pub mod options;
mod output;
mod pilot;
mod program;
mod records;
mod script;
mod session_job;
mod system;

pub use self::cluster::{BatchCluster, PAUSE};
pub use self::commands::{CommandError, Hints, job_in, run_within};
pub use self::head_script::{HeadScript, exports};
#[cfg(test)]
pub(crate) use self::pilot::sample_spec;
pub use self::pilot::{
    ID as PILOT_ID, PilotFiles, PilotJob, PilotRequest, PilotSettings, PilotSystem, Pilots,
    Progress, pilots_stay, sweep as sweep_pilots,
};
pub use self::program::{program_of, program_path};
pub use self::records::{
    EXIT, GRACE, NODE, RESTARTS, Record, Records, copy_path, ended_in, environment_path,
    has_started_in,
};
pub use self::script::quoted;
pub use self::session_job::SessionJob;
pub use self::system::{BatchSystem, Words};
pub use crate::exit_code::reason_of_code;

/// Returns a variable of this process's environment, unless it is empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns whether a host of an allocation is the one on which this process runs.
pub fn is_this_host(name: &str) -> bool {
    let own = fiber_core::host_name();
    own.split('.').next() == name.split('.').next()
}

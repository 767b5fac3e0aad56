//! Jobs on a Slurm cluster.
//!
//! In an allocation (`sbatch`, `salloc`), a job is a step of it, which `srun` starts on one node and
//! watches.

mod allocation;
mod backend;
mod commands;
mod launcher;
mod listen;
mod notices;
mod step;

pub use self::backend::Slurm;
pub(crate) use self::launcher::{remove_copy, run_if_launcher};

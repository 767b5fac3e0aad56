//! Jobs on a Slurm cluster.
//!
//! In an allocation (`sbatch`, `salloc`), a job is a step of it, which `srun` starts on one node and
//! watches. Outside of one, or beyond its nodes, a job is a *pilot*: a Slurm job of its own.
//! [`SlurmCluster`] sees whole sessions, from outside.

mod allocation;
mod backend;
mod cluster;
mod commands;
mod launcher;
mod listen;
mod notices;
mod options;
mod pilot;
mod queue;
mod step;

pub use self::backend::Slurm;
pub use self::cluster::SlurmCluster;
pub(crate) use self::launcher::{remove_copy, run_if_launcher};

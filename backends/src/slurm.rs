//! Jobs on a Slurm cluster.
//!
//! In an allocation (`sbatch`, `salloc`), a job is a step of it, which `srun` starts on one node
//! and watches. Outside of one, or beyond its nodes, a job is a *pilot*: a Slurm job of its own.
//! [`SlurmCluster`] sees whole sessions, from outside.

mod allocation;
mod backend;
mod cluster;
mod commands;
mod end_mark;
mod jobs;
mod launcher;
mod notices;
mod options;
mod pilot;
mod script;
mod states;
mod step;

use std::sync::Arc;

pub(crate) use self::backend::Slurm;
use crate::BackendEntry;
use crate::batch::Words;

const WORDS: Words = Words {
    backend: "slurm",
    title: "Slurm",
    cluster: "a Slurm cluster",
    show: "scontrol show job",
};

pub(crate) const ENTRY: BackendEntry =
    BackendEntry::new("slurm", |config| Ok(Arc::new(Slurm::new(config))))
        .sessions(&cluster::SESSIONS)
        .job_variable("SLURM_JOB_ID")
        .helper(|| {
            launcher::run_if_launcher();
            launcher::remove_copy();
            end_mark::mark_at_exit();
        });

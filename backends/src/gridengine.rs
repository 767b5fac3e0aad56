//! Jobs as tasks of a job of Grid Engine. `GridEngineCluster` sees whole sessions, from outside.
//!
//! A program that runs in a job with a parallel environment (`qsub -pe NAME SLOTS script`) starts
//! its processes on the hosts of the job: on its own host with a shell, on the others with `qrsh
//! -inherit`. Grid Engine deletes a whole job when a task of it is killed by a signal, or loses its
//! `qrsh`. So a shell on the host outlives the program and makes an exit code of its end, and no
//! `qrsh` is killed: it ends with its input.
//!
//! Outside of a job, or beyond its hosts, a job is a *pilot*: a job of Grid Engine of its own.

mod allocation;
mod backend;
mod cluster;
mod commands;
mod environments;
mod options;
mod pilot;
mod problem;
mod queue;
mod script;
mod task;

use std::sync::Arc;

pub(crate) use self::backend::GridEngine;
use crate::BackendEntry;
use crate::batch::Words;

const WORDS: Words = Words {
    backend: "gridengine",
    title: "Grid Engine",
    cluster: "a Grid Engine cluster",
    show: "qstat -j",
};

pub(crate) const ENTRY: BackendEntry =
    BackendEntry::new("gridengine", |config| Ok(Arc::new(GridEngine::new(config))))
        .sessions(&cluster::SESSIONS)
        .job_variable("JOB_ID");

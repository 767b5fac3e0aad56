//! The backend `gridengine` of fiber: jobs as tasks of a job of Grid Engine.
//!
//! It uses what `fiber::backend` and `fiber::config` offer to backends outside of fiber, and takes
//! it from the crates below `fiber`, whose feature `gridengine` adds this one.
//!
//! A program that runs in a job with a parallel environment (`qsub -pe NAME SLOTS script`) starts
//! its processes on the hosts of the job: on its own host with a shell, on the others with `qrsh
//! -inherit`. Grid Engine deletes a whole job when a task of it is killed by a signal, or loses its
//! `qrsh`. So a shell on the host outlives the program and makes an exit code of its end, and no
//! `qrsh` is killed: it ends with its input.
//!
//! Outside of a job, or beyond its hosts, a job is a *pilot*: a job of Grid Engine of its own.

/// Formats the message of a [`BackendError::Refused`](fiber_backends::BackendError::Refused).
macro_rules! refused {
    ($($message:tt)*) => {
        fiber_backends::BackendError::Refused(format!($($message)*))
    };
}

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
mod section;
mod task;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use fiber_backends::BackendEntry;
use fiber_backends::batch::Words;
use fiber_core::SectionEntry;

use self::backend::GridEngine;
pub use self::section::GridEngineSection;

const WORDS: Words = Words {
    backend: "gridengine",
    title: "Grid Engine",
    cluster: "a Grid Engine cluster",
    show: "qstat -j",
};

/// The row in the table of backends.
pub const ENTRY: BackendEntry =
    BackendEntry::new("gridengine", |config| Ok(Arc::new(GridEngine::new(config))))
        .section(SectionEntry::of::<GridEngineSection>())
        .sessions(&cluster::SESSIONS)
        .job_variable("JOB_ID");

//! Sessions of programs in jobs of Grid Engine: on the host of the head, they are processes like
//! others.

use futures_util::future::ready;

use crate::cluster::SessionBackend;
use crate::local::{HostSessions, REFUSED};

const NAME: &str = "gridengine";
const NO_START: &str = "fiber submits no jobs to Grid Engine: write a script that runs the program \
    with FIBER_BACKEND=gridengine, and submit it (`qsub -cwd -pe NAME SLOTS script`)";

/// The backend, as the command sees it.
pub(crate) static SESSIONS: SessionBackend = SessionBackend {
    refused: (REFUSED.0, NO_START),
    ..SessionBackend::new(
        NAME,
        "Grid Engine",
        "Tasks of a job of Grid Engine, for programs that `qsub` has submitted",
        |_| Box::pin(ready(Ok(HostSessions::without_start(NAME, NO_START)))),
    )
};

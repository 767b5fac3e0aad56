//! The way to the inspector of a head: a step beside it, on its node.

use std::process::Stdio;

use fiber_core::Result;
use fiber_core::inspect::BRIDGE;

use super::super::commands::{self, CommandError, HINTS};
use crate::batch::SessionJob;
use crate::cluster::bridge::{Greeting, NO_BRIDGE, failed, greeting};
use crate::cluster::session::ByteStream;

/// The name of the step.
pub(super) const STEP: &str = "fiber-inspect";

/// Connects to the inspector of the head of a job. The step ends with its input.
pub(super) async fn connect(job: &SessionJob) -> Result<Box<dyn ByteStream>> {
    let program = "srun";
    let mut command = commands::command(program);
    command
        .arg(format!("--jobid={}", job.id))
        .args(job.node.iter().map(|node| format!("--nodelist={node}")))
        .arg(format!("--job-name={STEP}"))
        .args(["--overlap", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=0"])
        .args(["--gres=none", "--quiet", "--unbuffered", "--immediate=10"])
        .args([&job.program, BRIDGE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let problem = CommandError::NotRun { program, error, hints: &HINTS };
            return failed(&job.name, problem.to_string());
        }
    };
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return failed(&job.name, NO_BRIDGE);
    };
    let mut stream = Box::new(tokio::io::join(output, input));
    match greeting(&mut stream).await {
        Greeting::Ready => Ok(stream),
        Greeting::Failed(problem) => failed(&job.name, problem),
        Greeting::Other => failed(&job.name, NO_BRIDGE),
    }
}

//! The way to the inspector of a head: a task of its job, on its host.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use fiber_backends::batch::{CommandError, SessionJob, environment_path, quoted};
use fiber_backends::cluster::ByteStream;
use fiber_backends::cluster::bridge::{BRIDGE, Greeting, NO_BRIDGE, failed, greeting};
use fiber_backends::shell::COMMAND;
use fiber_core::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use super::super::commands::{self, HINTS};
use super::super::problem;

/// Time for the words of a `qrsh` that has failed.
const WORDS: Duration = Duration::from_secs(1);
/// How long Grid Engine may take to learn that a task has ended and has left its slot.
const SLOT: Duration = Duration::from_secs(5);
/// The pause between two attempts to get that slot.
const PAUSE: Duration = Duration::from_millis(500);

/// Connects to the inspector of the head of a job. The task ends with its input, and `qrsh` after
/// it: Grid Engine deletes a job that loses a `qrsh`.
pub(super) async fn connect(job: &SessionJob) -> Result<Box<dyn ByteStream>> {
    let begun = Instant::now();
    loop {
        match start_task(job).await {
            Err(problem) if problem::is_of_slots(&problem) && begun.elapsed() < SLOT => {
                sleep(PAUSE).await;
            }
            Err(problem) => return failed(&job.name, problem),
            Ok(stream) => return Ok(stream),
        }
    }
}

async fn start_task(job: &SessionJob) -> std::result::Result<Box<dyn ByteStream>, String> {
    let program = "qrsh";
    let host = job.node.as_deref().unwrap_or_default();
    let mut command = commands::command(program);
    command
        .args(["-inherit", host, COMMAND])
        .env("JOB_ID", &job.id)
        .env("SGE_TASK_ID", "undefined")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C in the terminal is not for it.
        .process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return Err(CommandError::NotRun { program, error, hints: &HINTS }.to_string());
        }
    };
    let (Some(mut input), Some(output), Some(mut errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(NO_BRIDGE.into());
    };
    let line = line(job);
    // A `qrsh` that has failed says why.
    let _ = input.write_all(line.as_bytes()).await;
    let mut stream = Box::new(tokio::io::join(output, input));
    match greeting(&mut stream).await {
        Greeting::Ready => Ok(stream),
        Greeting::Failed(problem) => Err(problem),
        Greeting::Other => {
            drop(stream);
            let mut words = Vec::new();
            let _ = timeout(WORDS, errors.read_to_end(&mut words)).await;
            let words: Vec<String> =
                String::from_utf8_lossy(&words).lines().map(String::from).collect();
            Err(match words.is_empty() {
                true => NO_BRIDGE.into(),
                false => problem::of_connection(host, &words),
            })
        }
    }
}

/// Returns the line of a shell that becomes the bridge. A task gets no environment: the bridge needs
/// the one of the head, as its program may look at it first.
fn line(job: &SessionJob) -> String {
    let folder = job.output.parent().unwrap_or(Path::new("/"));
    let environment = environment_path(folder, &job.session);
    let [environment, program] = [environment.to_string_lossy(), (&*job.program).into()];
    format!(". {} && exec {} {BRIDGE} 2>/dev/null\n", quoted(&environment), quoted(&program))
}

//! Runs the command `docker` where it knows more than the engine: build contexts, builders, and the
//! user's credentials for registries.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;

use super::engine::Engine;
use crate::BackendError;
use crate::progress::Progress;

/// The number of its last lines that errors quote.
const TAIL: usize = 15;

/// Builds an image from a Dockerfile.
///
/// # Errors
/// The build's last lines.
pub(super) async fn build(
    engine: &Engine,
    file: &Path,
    tag: &str,
    progress: &dyn Progress,
) -> Result<(), BackendError> {
    if !file.is_file() {
        return Err(refused!(
            "there is no file `{}`: name the Dockerfile, or an image",
            file.display()
        ));
    }
    let context =
        file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut command = docker(engine);
    command.args(["build", "--tag", tag, "--file"]).arg(file).arg(context);
    run(command, &format!("building the image of {}", file.display()), progress).await.map_err(
        |error| {
            error.map(|problem| {
                format!("the image of {} could not be built: {problem}", file.display())
            })
        },
    )
}

/// Pushes an image to the registry that its name begins with.
///
/// # Errors
/// The registry's message, with a remedy.
pub(super) async fn push(
    engine: &Engine,
    name: &str,
    progress: &dyn Progress,
) -> Result<(), BackendError> {
    let mut command = docker(engine);
    command.args(["push", name]);
    run(command, &format!("pushing the image {name}"), progress).await.map_err(|problem| {
        let registry = name.split('/').next().unwrap_or(name);
        refused!(
            "the image {name} could not be pushed: {problem}\nCheck `registry` (FIBER_REGISTRY) \
             and your right to push there; `docker login {registry}` sets your credentials"
        )
    })
}

fn docker(engine: &Engine) -> Command {
    let mut command = Command::new("docker");
    command
        .env("DOCKER_HOST", &engine.host)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A process group of its own: only this process handles Ctrl-C.
    command.kill_on_drop(true).process_group(0);
    command
}

async fn run(
    mut command: Command,
    what: &str,
    progress: &dyn Progress,
) -> Result<(), BackendError> {
    let mut step = progress.begin(what);
    let mut child = command.spawn().map_err(|error| {
        format!(
            "the command `docker` can't be run: {error}; install it, or name an image that \
                 exists"
        )
    })?;
    let mut tail = VecDeque::new();
    let (sender, mut lines) = tokio::sync::mpsc::channel(16);
    let readers = [
        child.stdout.take().map(|out| spawn(out, sender.clone())),
        child.stderr.take().map(|err| spawn(err, sender)),
    ];
    while let Some(line) = lines.recv().await {
        step.detail(&line);
        tail.push_back(line);
        if tail.len() > TAIL {
            tail.pop_front();
        }
    }
    drop(readers);
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if !status.success() {
        let output = tail.into_iter().collect::<Vec<_>>().join("\n    ");
        return Err(refused!("docker says:\n    {output}"));
    }
    step.done();
    Ok(())
}

fn spawn(
    stream: impl AsyncRead + Unpin + Send + 'static,
    lines: tokio::sync::mpsc::Sender<String>,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut stream = BufReader::new(stream).lines();
        while let Ok(Some(line)) = stream.next_line().await {
            let line = line.trim();
            if !line.is_empty() && lines.send(line.to_string()).await.is_err() {
                return;
            }
        }
    })
}

//! Docker's own way.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::{BARE, Engine};

/// The engine's version, if one answers.
pub(super) fn version() -> Option<String> {
    docker(&["version", "--format", "{{.Server.Version}}"]).ok()
}

/// The parts of a worker's container.
pub(super) struct Model {
    image: String,
    program: String,
    environment: Vec<String>,
}

impl Model {
    pub(super) fn of_a_worker() -> anyhow::Result<Model> {
        let owner = format!("process {} ", std::process::id());
        let format = "{{.ID}} {{.Label \"fiber.owner\"}}";
        let list =
            docker(&["ps", "--no-trunc", "--filter", "label=fiber.owner", "--format", format])?;
        let mut containers = list.lines().filter_map(|line| line.split_once(' '));
        let (id, _) = containers
            .find(|(_, label)| label.starts_with(&owner))
            .context("a worker has a container")?;
        let inspect = |what: &str| docker(&["inspect", "--format", what, id]);
        let environment = inspect("{{range .Config.Env}}{{println .}}{{end}}")?;
        let libraries = environment
            .lines()
            .filter(|line| line.starts_with("LD_LIBRARY_PATH="))
            .map(str::to_string);
        Ok(Model {
            image: inspect("{{.Image}}")?,
            program: inspect("{{index .Config.Entrypoint 0}}")?,
            environment: libraries.collect(),
        })
    }
}

impl Engine for Model {
    fn settle(&self) -> anyhow::Result<()> {
        // An ended container is gone.
        Ok(())
    }

    fn run_bare(&self, count: usize) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let mut runs = Vec::new();
        for _ in 0..count {
            let mut command = Command::new("docker");
            command.args(["run", "--rm", "--init", "-e", &format!("{BARE}=1")]);
            command.args(self.environment.iter().flat_map(|variable| ["-e", variable]));
            command
                .args(["--entrypoint", &self.program, &self.image])
                .stdin(Stdio::null())
                .stdout(Stdio::piped());
            runs.push(command.spawn()?);
        }
        for run in &mut runs {
            let mut line = String::new();
            BufReader::new(run.stdout.take().context("it is piped")?).read_line(&mut line)?;
            ensure!(line == "here\n", "a bare container said {line:?}");
        }
        let time = start.elapsed();
        runs.into_iter().try_for_each(|mut run: Child| run.wait().map(drop))?;
        Ok(time)
    }
}

fn docker(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("docker").args(arguments).output()?;
    ensure!(
        output.status.success(),
        "docker {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

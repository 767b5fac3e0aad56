//! Workers as Docker containers: how long until they are there, beside `docker run` of the same image, and what tasks
//! cost there, beside the same on this host.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::measure::{median, rate, ready_pool};
use crate::table::{Figure, Row, Table, Target};

/// What this binary is asked to do when it is started again with another backend.
pub(crate) const WITH_BACKEND: &str = "tasks-with-backend";
/// Set in a container that is to say that it is there, and nothing else.
const BARE: &str = "BENCH_BARE_CONTAINER";

const WORKERS: usize = 4;
const REPEATS: usize = 5;
const TASKS: u64 = 300_000;
const TRIPS: usize = 3_000;

/// Plays the bare container, if this is one.
pub(crate) fn be_bare_if_asked() {
    if std::env::var_os(BARE).is_some() {
        println!("here");
        std::process::exit(0);
    }
}

/// What a process with a certain backend has measured.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// Seconds until all workers were ready.
    ready: f64,
    /// Seconds until as many bare containers were.
    bare: Option<f64>,
    /// Tasks a second.
    tasks: f64,
    /// Seconds for one task there and back.
    trip: f64,
}

pub(super) fn containers(table: &mut Table) -> anyhow::Result<()> {
    let engine = Command::new("docker").args(["version", "--format", "{{.Server.Version}}"]).output();
    let version = match engine {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_string(),
        _ => {
            eprintln!("  skipped: no Docker engine answers (make cluster-up)");
            return Ok(());
        }
    };
    table.machine().version("Docker", version);
    let local = elsewhere("local")?;
    let docker = elsewhere("docker")?;
    let bare = docker.bare.context("bare containers were measured")?;
    eprintln!("  {WORKERS} ready: fiber {:.3} s, docker run {bare:.3} s", docker.ready);
    let row = Row::new(format!("{WORKERS} workers ready in containers"), Figure::Seconds(docker.ready));
    let note = format!("docker run: {WORKERS} at once, of the same image, until each has printed a line.");
    table.push(row.beside("docker run", Figure::Seconds(bare)).target(Target::at_most(1.1, "docker run")).note(note));
    let row = Row::new("no-op tasks in containers", Figure::Rate(docker.tasks));
    table.push(row.beside("local", Figure::Rate(local.tasks)));
    let row = Row::new("one apply there and back in containers", Figure::Seconds(docker.trip));
    table.push(row.beside("local", Figure::Seconds(local.trip)));
    Ok(())
}

/// The configuration counts for a process, so another process measures.
fn elsewhere(backend: &str) -> anyhow::Result<Answer> {
    let output = Command::new(std::env::current_exe()?).arg(WITH_BACKEND).env("FIBER_BACKEND", backend).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "measuring with `{backend}` failed ({}): {}", output.status, said.trim_end());
    let last = output.stdout.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    serde_json::from_slice(last).with_context(|| format!("measuring with `{backend}` printed no result"))
}

/// Measures and prints a line of JSON.
pub(crate) fn answer_with_backend() -> anyhow::Result<()> {
    let in_docker = std::env::var("FIBER_BACKEND").is_ok_and(|backend| backend == "docker");
    // What is done once: the image, the connection to the engine.
    let pool = ready_pool(1)?;
    let model = if in_docker { Some(Model::of_a_worker()?) } else { None };
    pool.terminate().wait()?;

    let (mut ready, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let start = Instant::now();
        let pool = ready_pool(WORKERS)?;
        ready.push(start.elapsed());
        pool.terminate().wait()?;
        if let Some(model) = &model {
            bare.push(model.run(WORKERS)?);
        }
    }
    let pool = ready_pool(WORKERS)?;
    pool.map(|_: u64| (), 0..TASKS / 10).wait()?;
    let start = Instant::now();
    pool.map(|_: u64| (), 0..TASKS).wait()?;
    let tasks = rate(TASKS as usize, start.elapsed());
    let mut trips = Vec::with_capacity(TRIPS);
    for _ in 0..TRIPS {
        let start = Instant::now();
        pool.apply(|| (), ()).wait()?;
        trips.push(start.elapsed());
    }
    let answer = Answer {
        ready: median(ready).as_secs_f64(),
        bare: model.map(|_| median(bare).as_secs_f64()),
        tasks,
        trip: median(trips).as_secs_f64(),
    };
    println!("{}", serde_json::to_string(&answer)?);
    Ok(())
}

/// What a worker's container is made of.
struct Model {
    image: String,
    program: String,
    environment: Vec<String>,
}

impl Model {
    fn of_a_worker() -> anyhow::Result<Model> {
        let owner = format!("process {} ", std::process::id());
        let format = "{{.ID}} {{.Label \"fiber.owner\"}}";
        let list = docker(&["ps", "--no-trunc", "--filter", "label=fiber.owner", "--format", format])?;
        let mut containers = list.lines().filter_map(|line| line.split_once(' '));
        let (id, _) = containers.find(|(_, label)| label.starts_with(&owner)).context("a worker has a container")?;
        let inspect = |what: &str| docker(&["inspect", "--format", what, id]);
        let environment = inspect("{{range .Config.Env}}{{println .}}{{end}}")?;
        let libraries = environment.lines().filter(|line| line.starts_with("LD_LIBRARY_PATH=")).map(str::to_string);
        Ok(Model {
            image: inspect("{{.Image}}")?,
            program: inspect("{{index .Config.Entrypoint 0}}")?,
            environment: libraries.collect(),
        })
    }

    /// How long until so many containers are there.
    fn run(&self, count: usize) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let mut runs = Vec::new();
        for _ in 0..count {
            let mut command = Command::new("docker");
            command.args(["run", "--rm", "--init", "-e", &format!("{BARE}=1")]);
            command.args(self.environment.iter().flat_map(|variable| ["-e", variable]));
            command.args(["--entrypoint", &self.program, &self.image]).stdin(Stdio::null()).stdout(Stdio::piped());
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
    ensure!(output.status.success(), "docker {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

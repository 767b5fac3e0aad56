//! Workers as Docker containers and as pods: how long until they are there, beside as many bare
//! containers of the same image that the engine starts by itself, and what tasks cost there, beside
//! the same on this host.

mod docker;
mod hosts;
mod pods;

use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::print;
use crate::libraries;
use crate::measure::{median, rate, ready_pool};
use crate::table::{Figure, Row, Table};

/// Argument with which this binary starts itself again with another backend.
pub(super) const WITH_BACKEND: &str = "tasks-with-backend";
/// Set in a container that is to say that it is there, and nothing else: by a line or, if this is
/// an address, by a call.
const BARE: &str = "BENCH_BARE_CONTAINER";

const WORKERS: usize = 4;
const REPEATS: usize = 5;
const TASKS: u64 = 300_000;
const TRIPS: usize = 3_000;

/// Plays the bare container, if this is one.
pub(super) fn be_bare_if_asked() {
    if let Ok(address) = std::env::var(BARE) {
        println!("here");
        if address.contains(':') && TcpStream::connect(address).is_err() {
            std::process::exit(1);
        }
        std::process::exit(0);
    }
}

/// The figures of a process with a certain backend.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// Seconds until all workers were ready.
    ready: f64,
    /// Seconds until as many bare containers were.
    bare: Option<f64>,
    /// Many workers, several in each container or pod.
    many: Option<hosts::Ready>,
    /// Tasks a second.
    tasks: f64,
    /// Seconds for one task there and back.
    trip: f64,
}

pub(super) fn containers(table: &mut Table) -> anyhow::Result<()> {
    let Some(version) = docker::version() else {
        eprintln!("  skipped: no Docker engine answers (make cluster-up)");
        return Ok(());
    };
    libraries::note_version(table, "Docker", &version);
    let local = elsewhere("local")?;
    let docker = elsewhere("docker")?;
    let note =
        format!("docker run: {WORKERS} at once, of the same image, until each has printed a line.");
    table.push(docker.ready_row("containers", "docker run")?.note(note));
    docker.many.iter().for_each(|many| table.push(many.row("containers")));
    for row in docker.task_rows("containers", &[("local", &local)]) {
        table.push(row);
    }
    Ok(())
}

pub(super) fn pods(table: &mut Table) -> anyhow::Result<()> {
    let Some(version) = pods::version() else {
        eprintln!("  skipped: no Kubernetes cluster answers (make cluster-up)");
        return Ok(());
    };
    libraries::note_version(table, "Kubernetes", &version);
    let local = elsewhere("local")?;
    let docker = docker::version().map(|_| elsewhere("docker")).transpose()?;
    let pods = elsewhere("kubernetes")?;
    let note = format!(
        "bare pods: {WORKERS} at once, of the same image, until the program in each has called."
    );
    table.push(pods.ready_row("pods", "bare pods")?.note(note));
    let many = pods.many.as_ref().context("it was measured")?;
    table.push(many.row("pods").at_most(1.0 / 3.0, hosts::Ready::others("pods")));
    let others = [("local", Some(&local)), ("docker", docker.as_ref())];
    let others: Vec<_> =
        others.into_iter().filter_map(|(name, answer)| Some((name, answer?))).collect();
    for row in pods.task_rows("pods", &others) {
        table.push(row);
    }
    Ok(())
}

impl Answer {
    /// How long workers took to be ready in `what`, beside what the engine itself needs to run as
    /// many.
    fn ready_row(&self, what: &str, engine: &str) -> anyhow::Result<Row> {
        let bare = self.bare.context("bare ones were measured")?;
        eprintln!("  {WORKERS} ready: fiber {:.3} s, {engine} {bare:.3} s", self.ready);
        let row =
            Row::new(format!("{WORKERS} workers ready in {what}"), Figure::Seconds(self.ready));
        Ok(row.beside(engine, Figure::Seconds(bare)).at_most(1.1, engine))
    }

    /// The cost of tasks in `what`, beside that elsewhere.
    fn task_rows(&self, what: &str, others: &[(&str, &Answer)]) -> [Row; 2] {
        let beside = |row: Row, figure: fn(&Answer) -> Figure| {
            others.iter().fold(row, |row, (name, answer)| row.beside(*name, figure(answer)))
        };
        let (tasks, trip) = (
            |answer: &Answer| Figure::Rate(answer.tasks),
            |answer: &Answer| Figure::Seconds(answer.trip),
        );
        [
            beside(Row::new(format!("no-op tasks in {what}"), tasks(self)), tasks),
            beside(Row::new(format!("one apply there and back in {what}"), trip(self)), trip),
        ]
    }
}

/// The configuration counts for a process, so another process measures.
fn elsewhere(backend: &str) -> anyhow::Result<Answer> {
    let output = Command::new(std::env::current_exe()?)
        .arg(WITH_BACKEND)
        .env("FIBER_BACKEND", backend)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "measuring with `{backend}` failed ({}): {}",
        output.status,
        said.trim_end()
    );
    let last = output
        .stdout
        .split(|byte| *byte == b'\n')
        .rfind(|line| !line.is_empty())
        .unwrap_or_default();
    eprintln!("  {}", said.lines().last().unwrap_or_default());
    serde_json::from_slice(last)
        .with_context(|| format!("measuring with `{backend}` printed no result"))
}

/// Measures and prints a line of JSON.
pub(super) fn answer_with_backend() -> anyhow::Result<()> {
    let backend = std::env::var("FIBER_BACKEND").unwrap_or_default();
    // The image and the connection to the engine are made once.
    let pool = ready_pool(1)?;
    let engine: Option<Box<dyn Engine>> = match backend.as_str() {
        "docker" => Some(Box::new(docker::Model::of_a_worker()?)),
        "kubernetes" => Some(Box::new(pods::Model::of_a_worker()?)),
        _ => None,
    };
    pool.kill();
    pool.join().wait()?;
    let settle = || engine.iter().try_for_each(|engine| engine.settle());

    let (mut ready, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        settle()?;
        let start = Instant::now();
        let pool = ready_pool(WORKERS)?;
        ready.push(start.elapsed());
        pool.kill();
        pool.join().wait()?;
        if let Some(engine) = &engine {
            settle()?;
            bare.push(engine.run_bare(WORKERS)?);
        }
    }
    eprintln!("{backend}: ready {ready:.2?}, bare {bare:.2?}");
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
    pool.kill();
    pool.join().wait()?;
    let many = engine.as_deref().map(hosts::Ready::measure).transpose()?;
    print(&Answer {
        ready: median(ready).as_secs_f64(),
        bare: engine.map(|_| median(bare).as_secs_f64()),
        many,
        tasks,
        trip: median(trips).as_secs_f64(),
    })
}

/// An engine's work apart from running workers.
trait Engine {
    /// Waits until it has cleaned up after what ran before.
    fn settle(&self) -> anyhow::Result<()>;

    /// How long until so many bare containers are there.
    fn run_bare(&self, count: usize) -> anyhow::Result<Duration>;
}

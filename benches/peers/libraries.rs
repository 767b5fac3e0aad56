//! Figures of other libraries: runs a case of `*_bench.py`, or of the actor frameworks in
//! `savina`, and reads the line of JSON that it prints.
//!
//! `BENCH_PEERS` names those to run, separated by commas, and `BENCH_PYTHON` the Python to run them
//! with, which `make bench-all` sets. The frameworks are built when they are first needed, into
//! fiber's cache directory.

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::suite::topics::{MESSAGES, PROCESSES, SUBSCRIPTIONS_EACH};
use crate::table::{Figure, Table};

/// Past this a case is ended and reported as failed: Dask needs some minutes for 50,000 short
/// sleeps.
const LIMIT: Duration = Duration::from_secs(600);

/// The figures of one library in one case. The line of JSON holds more, for human readers:
/// see `protocol.py`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PeerResult {
    /// `multiprocessing`, `ray`, `dask`, `joblib`, `hyperqueue`, or an actor framework.
    pub(crate) library: String,
    /// The library's version; Python's for multiprocessing.
    pub(crate) version: String,
    /// The median over the repeats.
    pub(crate) seconds: f64,
    /// Tasks, items or bytes a second, at that median.
    pub(crate) rate: Option<f64>,
    /// Where the case is not quite the one that fiber runs.
    pub(crate) note: Option<String>,
}

impl PeerResult {
    /// Returns the figure that stands beside one of fiber.
    fn beside(&self, own: Figure) -> Option<Figure> {
        match own {
            Figure::Seconds(_) => Some(Figure::Seconds(self.seconds)),
            Figure::Throughput(_) => self.rate.map(Figure::Throughput),
            Figure::Rate(_) => self.rate.map(Figure::Rate),
            Figure::Bytes(_) => None,
        }
    }
}

/// Erlang with a node for each process.
const ERLANG_NODES: &str = "erlang_nodes";

/// The libraries, each with a script of its name.
const LIBRARIES: [&str; 5] = ["multiprocessing", "ray", "dask", "joblib", "hyperqueue"];

/// The rows that libraries measure, each with the case of their scripts and its arguments.
const BESIDE: [(&str, &str); 22] = [
    ("no-op tasks, each tracked on its own", "noop"),
    ("one call of an actor, there and back", "manager"),
    ("queue: small elements from a child", "queue"),
    ("4 workers ready", "ready"),
    ("map of a million integers", "map"),
    ("5 × 1s on 5 workers", "sleep 5 1"),
    ("50 × 100ms on 5 workers", "sleep 50 0.1"),
    ("500 × 10ms on 5 workers", "sleep 500 0.01"),
    ("5000 × 1ms on 5 workers", "sleep 5000 0.001"),
    ("50000 × 100µs on 5 workers", "sleep 50000 0.0001"),
    ("one apply there and back", "apply"),
    ("1 MiB there and back", "bytes"),
    ("64 arrays of 16 MiB there and back", "arrays"),
    ("256 MiB to 4 workers, 16 tasks that read it", "broadcast"),
    ("a chain of tasks, each edge, 2 workers", "chain"),
    ("outputs to one task", "fan"),
    ("outcomes of calls as they come", "completed"),
    ("tasks of a tree of pairs", "tree"),
    ("sort of 4096 MiB, 1024 MiB of values", "sort 4096 1024"),
    ("no-op tasks of a durable call", "durable"),
    ("recorded outcomes, delivered again", "recorded"),
    ("`fiber map` of 10000 × /bin/true", "commands 10000 /bin/true"),
];

/// Adds what libraries measure in the cases of a table. One that fails is named in a note.
pub(crate) fn measure(table: &mut Table) {
    for (name, call) in BESIDE {
        let Some(place) = table.rows.iter().position(|row| row.case == name) else { continue };
        for library in LIBRARIES.into_iter().filter(|library| is_wanted(library)) {
            match run(library, call) {
                Ok(None) => {}
                Ok(Some(result)) => {
                    eprintln!("  {name}: {library}: {:.3} s", result.seconds);
                    note_version(table, library, &result.version);
                    let row = &mut table.rows[place];
                    if let Some(figure) = result.beside(row.fiber) {
                        row.others.push((library.into(), figure));
                    }
                    row.notes.extend(result.note.map(|note| format!("{library}: {note}")));
                }
                Err(error) => {
                    eprintln!("  {name}: {error:#}");
                    table.rows[place].notes.push(format!("{error:#}"));
                }
            }
        }
    }
    let name = "a topic with 1000 subscriptions in 8 processes";
    let row = table.rows.iter_mut().find(|row| row.case == name);
    if let Some(row) = row.filter(|_| is_wanted(ERLANG_NODES)) {
        match run_pg() {
            Ok(result) => {
                let figure = result.beside(row.fiber);
                row.others.extend(figure.map(|figure| (ERLANG_NODES.to_string(), figure)));
            }
            Err(error) => row.notes.push(format!("{error:#}")),
        }
    }
}

/// Names the version of something that is measured, once.
pub(crate) fn note_version(table: &mut Table, name: &str, version: &str) {
    let named = format!("{name} {version}");
    if !table.versions.contains(&named) {
        table.versions.push(named);
    }
}

/// Returns whether a library or an actor framework is measured in this run: all are unless
/// `BENCH_PEERS` is set.
pub(crate) fn is_wanted(name: &str) -> bool {
    let Ok(names) = env::var("BENCH_PEERS") else { return true };
    names.split(',').any(|wanted| wanted.trim() == name)
}

/// Runs a case with its arguments of one library, in a Python process of its own. Returns `None` if
/// the library lacks the case.
///
/// # Errors
/// When Python or the library is missing, when the script fails (with the last that it wrote on
/// stderr), when it takes more than ten minutes, and when it prints no result.
fn run(library: &str, call: &str) -> anyhow::Result<Option<PeerResult>> {
    let python = env::var("BENCH_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = Path::new(HERE).join(format!("{library}_bench.py"));
    // To import a library takes longer than to look for the case.
    let case = call.split(' ').next().unwrap_or_default();
    let text = fs::read_to_string(&script).context(script.display().to_string())?;
    if !text.contains(&format!("\"{case}\": ")) {
        return Ok(None);
    }
    let mut command = Command::new(&python);
    command.arg(&script).args(call.split(' '));
    result_of(command, library, case).map(Some)
}

/// Runs a command that prints a result.
fn result_of(mut command: Command, library: &str, case: &str) -> anyhow::Result<PeerResult> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("can't run {:?}", command.get_program()))?;

    let stdout = collect(child.stdout.take().context("the script's stdout was asked for")?);
    let stderr = collect(child.stderr.take().context("the script's stderr was asked for")?);
    let Ok(printed) = stdout.recv_timeout(LIMIT) else {
        child.kill()?;
        child.wait()?;
        bail!("{library} {case}: not done within {} s", LIMIT.as_secs());
    };
    let status = child.wait()?;
    if !status.success() {
        // A library's own processes may hold stderr open for longer than the script lives.
        let said = stderr.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        let said = said.trim_end().lines().next_back().unwrap_or("nothing on stderr").to_owned();
        bail!("{library} {case} failed ({status}): {said}");
    }
    parse(&printed).with_context(|| format!("{library} {case} printed no result"))
}

/// Runs a program of the Savina benchmarks with an actor framework, in a part of its size.
///
/// # Errors
/// As [`run`], and when the framework can't be built.
pub(crate) fn run_framework(
    framework: &str,
    program: &str,
    part: u64,
) -> anyhow::Result<PeerResult> {
    let part = part.to_string();
    let command = match framework {
        "erlang" => erlang("savina", &[framework, program, &part])?,
        ERLANG_NODES => erlang_node("savina", &[framework, program, &part])?,
        _ => {
            let mut command = Command::new(rust_frameworks(framework)?);
            command.args([framework, program, &part]);
            command
        }
    };
    result_of(command, framework, program)
}

/// Runs a group of Erlang's `pg` with members in other nodes, each of which gets a tenth of the
/// messages of the case `topics`. The rate is that of deliveries.
fn run_pg() -> anyhow::Result<PeerResult> {
    let sizes =
        [PROCESSES.to_string(), SUBSCRIPTIONS_EACH.to_string(), (MESSAGES / 10).to_string()];
    let sizes = [&*sizes[0], &*sizes[1], &*sizes[2]];
    result_of(erlang_node("topics", &sizes)?, ERLANG_NODES, "topics")
}

/// The folder of the libraries' scripts.
pub(crate) const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// The folder of the frameworks' sources.
const SAVINA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/savina");

/// Builds the program of the Rust frameworks, once in a run. Remote actors of kameo are in a build
/// of their own: the feature changes its local ones.
fn rust_frameworks(framework: &str) -> anyhow::Result<PathBuf> {
    static BUILT: [OnceLock<Result<PathBuf, String>>; 2] = [OnceLock::new(), OnceLock::new()];
    let (built, folder, features) = match framework {
        "kameo_remote" => (&BUILT[1], "savina-peers-remote", "remote"),
        _ => (&BUILT[0], "savina-peers", ""),
    };
    let built = built.get_or_init(|| {
        let folder = cache().join(folder);
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--release", "--features", features]);
        build.current_dir(SAVINA).env("CARGO_TARGET_DIR", &folder).env_remove("RUSTFLAGS");
        succeed(build)?;
        Ok(folder.join("release/savina-peers"))
    });
    built.clone().map_err(anyhow::Error::msg)
}

/// Returns the command that runs an Erlang module of the frameworks' folder in a named node.
fn erlang_node(module: &str, arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = erlang(module, arguments)?;
    let name = format!("fiber{}", std::process::id());
    // Other nodes connect to this one alone.
    command.args(["-sname", &name, "-connect_all", "false"]);
    Ok(command)
}

/// Returns the command that runs an Erlang module of the frameworks' folder. The modules are
/// compiled once in a run.
fn erlang(module: &str, arguments: &[&str]) -> anyhow::Result<Command> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = cache().join("savina-erlang");
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let mut compile = Command::new("erlc");
        compile.arg("-o").arg(&folder).args(["savina.erl", "topics.erl"]).current_dir(SAVINA);
        succeed(compile)?;
        Ok(folder)
    });
    let folder = built.clone().map_err(anyhow::Error::msg)?;
    let mut command = Command::new("erl");
    command.args(["-noshell", "-pa"]).arg(folder).args(["-run", module, "main"]).args(arguments);
    Ok(command)
}

/// Returns fiber's cache directory, as `scripts/setup.sh` has it.
fn cache() -> PathBuf {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    cache.or_else(home).unwrap_or_else(env::temp_dir).join("fiber")
}

fn succeed(mut command: Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("can't run {program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim_end().lines().next_back().unwrap_or("nothing on stderr");
    Err(format!("{program} failed ({}): {last}", output.status))
}

/// The result is the last line that looks like one: libraries like to say hello on stdout.
fn parse(printed: &str) -> anyhow::Result<PeerResult> {
    let line =
        printed.lines().rev().find(|line| line.starts_with('{')).context("no line of JSON")?;
    Ok(serde_json::from_str(line)?)
}

/// Reads all of a pipe on a thread of its own, so that neither pipe can fill up and stop the
/// script.
fn collect(mut from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (to, all) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A read that fails midway leaves what came before it, which the parser or the error
        // message then shows.
        if let Err(error) = from.read_to_end(&mut bytes) {
            eprintln!("reading from a peer's script: {error}");
        }
        // After the limit, the receiver is gone.
        to.send(String::from_utf8_lossy(&bytes).into_owned()).ok();
    });
    all
}

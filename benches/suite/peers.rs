//! The peers' side of a benchmark: runs a case of `benches/peers/*_bench.py`, or of the actor
//! frameworks in `benches/peers/savina`, and reads the line of JSON that it prints.
//!
//! `BENCH_PEERS` names the libraries to run, separated by commas (multiprocessing
//! and the actor frameworks by default), and `BENCH_PYTHON` the Python to run them with:
//! `make bench-all` sets both. The frameworks are built when they are first needed, into fiber's
//! cache directory.

use std::env;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;

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

/// The one that runs commands, and no functions.
pub(crate) const HYPERQUEUE: &str = "hyperqueue";

/// The actor frameworks, which have the Savina benchmarks alone.
const FRAMEWORKS: [&str; 6] =
    ["ractor", "ractor_cluster", "kameo", "kameo_remote", "erlang", "erlang_nodes"];

/// The libraries to measure beside fiber in this run.
pub(crate) fn wanted() -> Vec<String> {
    let mut named = named().unwrap_or_else(|| vec!["multiprocessing".into()]);
    named.retain(|name| !FRAMEWORKS.contains(&&**name));
    named
}

/// Returns whether an actor framework is measured in this run: all are unless `BENCH_PEERS` is set.
pub(crate) fn is_wanted(framework: &str) -> bool {
    named().is_none_or(|named| named.iter().any(|name| name == framework))
}

/// The names in `BENCH_PEERS`.
fn named() -> Option<Vec<String>> {
    let names = env::var("BENCH_PEERS").ok()?;
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    Some(names.map(String::from).collect())
}

/// Runs one case of one library, in a Python process of its own.
///
/// # Errors
/// When Python, the library or the case is missing, when the script fails (with the last that it
/// wrote on stderr), when it takes more than ten minutes, and when it prints no result.
pub(crate) fn run(library: &str, case: &str, args: &[&str]) -> anyhow::Result<PeerResult> {
    let python = env::var("BENCH_PYTHON").unwrap_or_else(|_| "python3".into());
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("benches/peers/{library}_bench.py"));
    if !script.exists() {
        bail!("no peer named {library}: there is no {}", script.display());
    }
    let mut command = Command::new(&python);
    command.arg(&script).arg(case).args(args);
    result_of(command, library, case)
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
        "erlang_nodes" => erlang_node("savina", &[framework, program, &part])?,
        _ => {
            let mut command = Command::new(rust_frameworks(framework)?);
            command.args([framework, program, &part]);
            command
        }
    };
    result_of(command, framework, program)
}

/// Runs a group of Erlang's `pg` with members in other nodes, each of which gets all messages. The
/// rate is that of deliveries.
///
/// # Errors
/// As [`run`], and when there is no Erlang.
pub(crate) fn run_pg(nodes: usize, members: usize, messages: u64) -> anyhow::Result<PeerResult> {
    let sizes = [nodes.to_string(), members.to_string(), messages.to_string()];
    let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
    result_of(erlang_node("topics", &sizes)?, "erlang_nodes", "topics")
}

/// The folder of the frameworks' sources.
const SAVINA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/savina");

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
        build.args(["build", "--quiet", "--locked", "--release", "--features", features]);
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

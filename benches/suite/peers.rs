//! The peers' side of a benchmark: runs a case of `benches/peers/*_bench.py` and reads the line of
//! JSON that it prints.
//!
//! `BENCH_PEERS` names the libraries to run, separated by commas (multiprocessing alone by
//! default), and `BENCH_PYTHON` the Python to run them with: `make bench-all` sets both.

use std::env;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
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
    /// `multiprocessing`, `ray`, `dask`, `joblib` or `hyperqueue`.
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

/// The libraries to measure beside fiber in this run.
pub(crate) fn wanted() -> Vec<String> {
    let names = env::var("BENCH_PEERS").unwrap_or_else(|_| "multiprocessing".into());
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect()
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
    let mut child = Command::new(&python)
        .arg(&script)
        .arg(case)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("can't run {python}, which the peers need"))?;

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

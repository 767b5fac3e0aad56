//! There and back: one task, and large arguments and results.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fiber::task::Portable;
use serde::{Deserialize, Serialize};

use crate::bare;
use crate::measure::{beside_peers, median, median_time, rate, ready_pool, seconds};
use crate::peers::PeerResult;
use crate::table::{Figure, Row, Table, Target};

/// Argument with which this binary starts itself again to measure over nng.
pub(crate) const OVER_NNG: &str = "apply-over-nng";

const TRIPS: usize = 20_000;
const WARM_UP: usize = 1_000;
const MIB: usize = 1 << 20;
const MESSAGES: usize = 512;
/// Workers that echo, and bare processes that do.
const ECHOES: usize = 2;

fn nothing() {}

fn echo<T>(data: T) -> T {
    data
}

pub(super) fn apply(table: &mut Table) -> anyhow::Result<()> {
    let time = round_trip()?;
    let bare = bare::unix_ping()?;
    eprintln!("  fiber: {time:?}, bare: {bare:?}");
    let row = Row::new("one apply there and back", seconds(time))
        .beside("bare", seconds(bare))
        .target(Target::at_most(4.0, "bare").aim(2.5))
        .note(
            "fiber's threads look again for 100 µs before they sleep; the ends of a bare ping, and \
             multiprocessing's, sleep at once.",
        );
    let row = beside_peers(row, table, "apply", &[], |peer| Some(Figure::Seconds(peer.seconds)));
    table.push(row);

    let time = round_trip_over_nng()?;
    let bare = bare::nng_ping()?;
    eprintln!("  over nng: fiber: {time:?}, bare: {bare:?}");
    let row = Row::new("one apply there and back over nng", seconds(time));
    table.push(row.beside("bare", seconds(bare)).target(Target::at_most(1.5, "bare")));
    Ok(())
}

/// The median of 20,000 tasks that follow each other.
fn round_trip() -> anyhow::Result<Duration> {
    let pool = ready_pool(1)?;
    let mut times = Vec::with_capacity(TRIPS);
    for trip in 0..WARM_UP + TRIPS {
        let start = Instant::now();
        pool.apply(nothing, ()).wait()?;
        if trip >= WARM_UP {
            times.push(start.elapsed());
        }
    }
    Ok(median(times))
}

/// The output of a process that was started to measure over nng.
#[derive(Serialize, Deserialize)]
struct Answer {
    seconds: f64,
}

/// The configuration counts for a process, so another process measures.
fn round_trip_over_nng() -> anyhow::Result<Duration> {
    let output =
        Command::new(std::env::current_exe()?).arg(OVER_NNG).env("FIBER_LINK", "nng").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "measuring over nng failed ({}): {}",
        output.status,
        said.trim_end()
    );
    let answer: Answer =
        serde_json::from_slice(&output.stdout).context("measuring over nng printed no result")?;
    Ok(Duration::from_secs_f64(answer.seconds))
}

/// Measures and prints a line of JSON.
pub(crate) fn answer_over_nng() -> anyhow::Result<()> {
    let answer = Answer { seconds: round_trip()?.as_secs_f64() };
    println!("{}", serde_json::to_string(&answer)?);
    Ok(())
}

pub(super) fn bytes(table: &mut Table) -> anyhow::Result<()> {
    let bare = bare::unix_stream(MIB, MESSAGES, ECHOES)?;
    eprintln!("  bare: {:.0} MB/s", bare / 1e6);
    let bytes = there_and_back("1 MiB there and back", bare, vec![7_u8; MIB])?
        .target(Target::at_least(3.0, "multiprocessing"))
        .note(
            "Each way the bytes are copied into shared memory and out of it, into a value. The \
             bare link copies them into the kernel and out of it.",
        );
    let peers = |peer: &PeerResult| peer.rate.map(Figure::Throughput);
    let bytes = beside_peers(bytes, table, "bytes", &[], peers);
    table.push(bytes);
    table.push(there_and_back("1 MiB as a String", bare, "x".repeat(MIB))?);
    table.push(there_and_back("1 MiB as a Vec<f64>", bare, vec![1.5_f64; MIB / 8])?);
    table.push(there_and_back("1 MiB as a Vec<i32>", bare, vec![-1 << 20; MIB / 4])?);
    Ok(())
}

fn there_and_back<T>(name: &str, bare: f64, message: T) -> anyhow::Result<Row>
where
    T: Portable + Clone + PartialEq + Send + 'static,
{
    let pool = ready_pool(ECHOES)?;
    let time = median_time(|| {
        let messages = std::iter::repeat_n(message.clone(), MESSAGES);
        let mut done = 0;
        for outcome in pool.imap_unordered(echo::<T>, messages).wait() {
            let data = outcome?;
            // To compare all would take a part of the time.
            ensure!(done % 64 != 0 || data == message, "a result is not what was sent");
            done += 1;
        }
        ensure!(done == MESSAGES, "{done} of {MESSAGES} messages came back");
        Ok(())
    })?;
    Ok(Row::new(name, Figure::Throughput(rate(2 * MIB * MESSAGES, time)))
        .beside("bare", Figure::Throughput(bare))
        .target(Target::at_least(0.5, "bare").aim(0.8)))
}

//! How long it takes until workers are there: the first ones, and one that takes the place of
//! another.

use std::io::Read as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Instant;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use crate::measure::{median, ready_pool, seconds};
use crate::table::{Figure, Row, Table};

const WORKERS: usize = 4;
const REPEATS: usize = 5;

/// Comes to the meeting of this name, and stays until it ends.
fn meet(name: String) -> Result<u32, std::io::Error> {
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    // The end of the stream is the end of the meeting.
    stream.read_to_end(&mut Vec::new())?;
    Ok(std::process::id())
}

/// The pids of workers who have all been busy at the same time: as many as the pool has.
fn meeting(pool: &fiber::Pool, round: usize) -> anyhow::Result<Vec<u32>> {
    let name = format!("fiber-bench-{}-{round}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let pids = pool.try_map(meet, std::iter::repeat_n(name, WORKERS).collect::<Vec<_>>());
    let mut present = Vec::new();
    while present.len() < WORKERS {
        present.push(listener.accept()?);
    }
    drop(present);
    Ok(pids.wait()?)
}

pub(super) fn ready(table: &mut Table) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let start = Instant::now();
        let pool = ready_pool(WORKERS)?;
        times.push(start.elapsed());
        pool.kill();
        pool.join().wait()?;
    }
    eprintln!("  fiber: {times:.1?}");
    let row = Row::new(format!("{WORKERS} workers ready"), seconds(median(times)))
        .below(Figure::Seconds(0.030));
    table.push(row);
    replace(table)
}

fn replace(table: &mut Table) -> anyhow::Result<()> {
    let pool = ready_pool(WORKERS)?;
    let mut pids = meeting(&pool, 0)?;
    let mut times = Vec::new();
    for round in 1..=REPEATS {
        let victim = *pids.first().context("a meeting has a participant")?;
        let victim = Pid::from_raw(victim as i32).context("a pid is not 0")?;
        let start = Instant::now();
        kill_process(victim, Signal::KILL)?;
        pids = meeting(&pool, round)?;
        times.push(start.elapsed());
    }
    eprintln!("  fiber: {times:.1?}");
    let note = format!(
        "From kill -9 until {WORKERS} tasks that wait for each other, on {WORKERS} workers, are \
         done."
    );
    let row = Row::new("a killed worker's replacement at work", seconds(median(times)));
    table.push(row.below(Figure::Seconds(0.050)).note(note));
    Ok(())
}

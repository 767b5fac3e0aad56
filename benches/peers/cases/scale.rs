//! One parent with 10,240 workers in 64 hosts: the size of a large cluster. The workers are threads
//! of their hosts, which this machine has room for; the hosts and their links are real.
//!
//! The session is a process of its own, whose memory is measured.

use std::collections::BTreeSet;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fiber::stats::ProcessRole;
use fiber::{Array, Broadcast, Pool};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::observed::answer_time;
use super::{ask, print, resident};
use crate::measure::{median, rate, seconds};
use crate::table::{Figure, Row, Table};

/// The argument of the process that is the session.
pub(super) const AT_SCALE: &str = "session-at-scale";

const HOSTS: usize = 64;
const PER_HOST: usize = 160;
const MANY: usize = HOSTS * PER_HOST;
const FEW: usize = 4;
const NOOPS: usize = 5_000_000;
const ROUNDS: usize = 5;
/// A round of the evolution strategy: tasks for each worker, their time, and elements of 100 kB.
const TASKS: usize = 2;
const TASK: Duration = Duration::from_secs(1);
const PARAMETERS: usize = 25_000;
/// How long the session rests while its use of the processor is measured.
const REST: Duration = Duration::from_secs(5);
/// Hosts that are killed in the middle of a call, and the time of its tasks.
const KILLED: usize = 4;
const KILLED_TASK: Duration = Duration::from_millis(500);

/// The session's own figures.
#[derive(Serialize, Deserialize)]
struct Measured {
    joined: Duration,
    noops_of_few: Duration,
    noops: Duration,
    round: Duration,
    answer: Duration,
    /// The share of a core that the parent takes while there is nothing to do.
    rest: f64,
    killed: Duration,
    memory: f64,
}

fn nothing(_: u64) {}

fn evaluate(parameters: Broadcast<Array<f32>>, index: usize) -> fiber::Result<f32> {
    let parameters = parameters.get()?;
    thread::sleep(TASK);
    Ok(parameters[index % PARAMETERS])
}

fn slow(x: u64) -> u64 {
    thread::sleep(KILLED_TASK);
    x * x
}

pub(super) fn scale(table: &mut Table) -> anyhow::Result<()> {
    let measured: Measured = ask(AT_SCALE, &[])?;
    let row = Row::new(format!("{MANY} workers in {HOSTS} hosts joined"), seconds(measured.joined));
    table.push(row.below(Figure::Seconds(10.0)));
    let few = format!("{FEW} workers");
    let figure = |time| Figure::Rate(rate(NOOPS, time));
    let row = Row::new(format!("no-op tasks on {MANY} workers"), figure(measured.noops))
        .beside(&few, figure(measured.noops_of_few))
        .at_least(0.8, &few)
        .note("The workers are threads of hosts, also the few.".to_string());
    table.push(row);
    let name = format!("round of an evolution strategy, {MANY} workers");
    let row = Row::new(name, seconds(measured.round))
        .beside("ideal", seconds(TASK * TASKS as u32))
        .at_most(1.1, "ideal");
    table.push(row);
    let name = format!("{KILLED} of {HOSTS} hosts killed in a call, all results");
    table.push(Row::new(name, seconds(measured.killed)));
    let name = format!("the inspector of {MANY} workers answers");
    table.push(Row::new(name, seconds(measured.answer)));
    let name = format!("memory of the parent of {MANY}");
    let note = format!("At rest it takes {:.0}% of a core.", 100.0 * measured.rest);
    let row = Row::new(name, Figure::Bytes(measured.memory)).below(Figure::Bytes(300e6)).note(note);
    table.push(row);
    Ok(())
}

/// Is the session, and prints what it measures.
pub(super) fn be_at_scale() -> anyhow::Result<()> {
    let few = simulated_pool(FEW, FEW)?;
    let noops_of_few = noops(&few)?;
    eprintln!("  {FEW} workers: {noops_of_few:.1?} for {NOOPS} tasks");
    few.kill();
    few.join().wait()?;

    let start = Instant::now();
    let pool = simulated_pool(MANY, PER_HOST)?;
    let joined = start.elapsed();
    eprintln!("  {MANY} workers: joined after {joined:.1?}, {}", memory()?);
    let noops = noops(&pool)?;
    eprintln!("  {MANY} workers: {noops:.1?} for {NOOPS} tasks, {}", memory()?);
    let before = cpu_time();
    thread::sleep(REST);
    let rest = (cpu_time() - before).as_secs_f64() / REST.as_secs_f64();
    eprintln!("  {MANY} workers: {rest:.2} of a core at rest");
    let round = evolution(&pool)?;
    let answer = answer_time()?;
    eprintln!("  {MANY} workers: the inspector answers after {answer:.1?}, {}", memory()?);
    let killed = kill_hosts(&pool)?;
    let memory = resident(process::id())?;
    eprintln!("  {KILLED} hosts killed: {killed:.1?}, {}", Figure::Bytes(memory));
    pool.kill();
    pool.join().wait()?;
    print(&Measured { joined, noops_of_few, noops, round, answer, rest, killed, memory })
}

fn memory() -> anyhow::Result<Figure> {
    Ok(Figure::Bytes(resident(process::id())?))
}

fn simulated_pool(processes: usize, per_host: usize) -> fiber::Result<Pool> {
    let builder = Pool::builder().processes(processes).processes_per_job(per_host).simulated();
    let pool = builder.build()?;
    pool.wait_until_ready().wait()?;
    Ok(pool)
}

fn noops(pool: &Pool) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut done = 0;
        for outcome in pool.imap_unordered(nothing, 0..NOOPS as u64).wait() {
            outcome?;
            done += 1;
        }
        ensure!(done == NOOPS, "{done} of {NOOPS} tasks came back");
        times.push(start.elapsed());
    }
    eprintln!("  {times:.1?}");
    Ok(median(times))
}

/// Returns the median time of a round of an evolution strategy.
fn evolution(pool: &Pool) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let start = Instant::now();
        let parameters: Array<f32> = (0..PARAMETERS).map(|index| (index + round) as f32).collect();
        let parameters = pool.broadcast(parameters)?;
        let tasks: Vec<_> = (0..TASKS * MANY).map(|index| (parameters.clone(), index)).collect();
        let results = pool.try_map(evaluate, tasks).wait()?;
        let expected = (0..TASKS * MANY).map(|index| (index % PARAMETERS + round) as f32);
        ensure!(results.into_iter().eq(expected), "the results are not those of the tasks");
        times.push(start.elapsed());
        eprintln!("  round: {:.2?}", times[round]);
    }
    Ok(median(times))
}

/// Kills whole hosts in the middle of a call. Returns the time of the call, whose results are
/// complete, and waits until the pool has all its workers again.
fn kill_hosts(pool: &Pool) -> anyhow::Result<Duration> {
    let victims = host_pids()?;
    let start = Instant::now();
    let tasks = (4 * MANY) as u64;
    let call = pool.map(slow, 0..tasks);
    for victim in victims.iter().take(KILLED) {
        thread::sleep(KILLED_TASK / 2);
        kill_process(*victim, Signal::KILL)?;
    }
    let results = call.wait()?;
    let time = start.elapsed();
    ensure!(results.into_iter().eq((0..tasks).map(|x| x * x)), "a result is lost or wrong");
    pool.wait_until_ready().wait()?;
    eprintln!("  {MANY} workers again after {:.1?}", start.elapsed());
    let now: BTreeSet<_> = host_pids()?.into_iter().map(|pid| pid.as_raw_nonzero()).collect();
    ensure!(now.len() == HOSTS, "there are {} hosts", now.len());
    Ok(time)
}

fn host_pids() -> anyhow::Result<Vec<Pid>> {
    let processes = fiber::stats()?.report.processes;
    let hosts = processes.into_iter().filter(|process| process.role == ProcessRole::Host);
    hosts
        .map(|host| {
            let pid = host.pid.context("a host has a pid")?;
            Pid::from_raw(pid.cast_signed()).context("a pid is not 0")
        })
        .collect()
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

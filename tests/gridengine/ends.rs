//! Failures in the middle of the work: no task is lost, and nothing is left.

use fiber_test_support::command::output;
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};

use crate::job::{Job, TWO_HOSTS, cluster, line};

#[track_caller]
fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("it is not 0");
    kill_process(pid, Signal::KILL).expect("it runs");
}

/// Returns the processes on a host: the one that started the others first.
fn host_and_workers(job: &Job, host: &str) -> (u32, Vec<u32>) {
    let processes = job.processes(Some(host));
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let is_below = |pid: &u32| parent(*pid).is_some_and(|parent| processes.contains(&parent));
    let (workers, hosts): (Vec<u32>, Vec<u32>) = processes.iter().copied().partition(is_below);
    (hosts[0], workers)
}

#[trial]
fn workers_that_end_tell_why() {
    let out = Job::run("deaths").succeeds();
    assert!(out.lines().any(|line| line.starts_with("exit: ") && line.contains("code 3")), "{out}");
    let abort = out.lines().find(|line| line.starts_with("abort: ")).unwrap_or_default();
    assert!(abort.contains("signal 6") || abort.contains("SIGABRT"), "{out}");
}

/// Each process has the limit for itself. Beyond it, it gets no memory.
#[trial]
fn a_worker_that_passes_the_memory_limit_says_so() {
    let limited = [TWO_HOSTS, &["-l", "h_vmem=1G"]].concat();
    let out = Job::submit(&limited, &line("hungry alone", "")).succeeds();
    assert!(out.contains("memory allocation of 3000000000 bytes failed"), "{out}");
    assert!(out.contains("signal 6") || out.contains("SIGABRT"), "{out}");
}

#[trial]
fn a_killed_worker_is_replaced_and_its_tasks_run_again() {
    let job = Job::work();
    let hosts = job.hosts();
    let (_, workers) = host_and_workers(&job, &hosts[1]);
    kill(workers[0]);
    job.release();
    let out = job.succeeds();
    assert!(out.contains("right: true") && out.contains("ready again: 4"), "{out}");
}

/// Grid Engine would delete the job if it saw the signal.
#[trial]
fn a_killed_host_process_is_replaced_in_the_same_job() {
    let job = Job::work();
    let hosts = job.hosts();
    kill(host_and_workers(&job, &hosts[1]).0);
    job.release();
    let out = job.succeeds();
    assert!(out.contains("right: true") && out.contains("ready again: 4"), "{out}");
}

/// The cut wire of a host, which is mended when this is dropped.
struct Cut(String);

impl Cut {
    fn of(host: &str) -> Cut {
        set_wire(host, "down");
        Cut(host.into())
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        set_wire(&self.0, "up");
        wait_until("the host answers again", || {
            let queue = format!("main.q@{}", self.0);
            let state = cluster("qstat", &["-f", "-q", &queue]);
            let state = state.lines().find(|line| line.starts_with(&queue));
            state.is_some_and(|line| line.split_whitespace().count() == 5)
        });
    }
}

fn set_wire(host: &str, state: &str) {
    let wire = format!("fib-grid-{host}");
    output("ip", &["link", "set", &wire, state], "").expect("the wire exists");
}

#[trial]
fn a_lost_host_loses_no_task() {
    let job = Job::work();
    let cut = Cut::of(&job.hosts()[1]);
    job.release();
    job.prints("right: true");
    drop(cut);
    // The job goes on: its tasks there end in order when they learn of it.
    let out = job.ends();
    assert!(out.contains("ready again: 4"), "{out}");
}

/// The qmaster stands still until this is dropped.
struct Silenced(Pid);

impl Silenced {
    fn qmaster() -> Silenced {
        let pids = output("ip", &["netns", "pids", "fib-grid-head"], "").expect("it is a host");
        let name = |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let is_qmaster = |pid: &&str| name(pid).is_ok_and(|name| name.trim() == "sge_qmaster");
        let pid = pids.lines().find(is_qmaster).expect("it runs there");
        let pid = Pid::from_raw(pid.parse().expect("a number")).expect("it is not 0");
        kill_process(pid, Signal::STOP).expect("it runs");
        Silenced(pid)
    }
}

impl Drop for Silenced {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[trial]
fn hosts_that_are_all_lost_without_the_qmaster_are_replaced() {
    let job = Job::work();
    let hosts = job.hosts();
    let silenced = Silenced::qmaster();
    // The program itself is on the first of them.
    let (_, here) = host_and_workers(&job, &hosts[0]);
    for process in here.into_iter().chain(job.processes(Some(&hosts[1]))) {
        // It may have ended with another one.
        let pid = Pid::from_raw(process.cast_signed()).expect("it is not 0");
        let _ = kill_process(pid, Signal::KILL);
    }
    job.release();
    job.prints("right: true");
    drop(silenced);
    let out = job.succeeds();
    assert!(out.contains("ready again: 4"), "{out}");
}

#[trial]
fn qdel_ends_all() {
    let job = Job::run("endless");
    job.prints("pid ");
    for host in job.hosts() {
        assert!(!job.processes(Some(&host)).is_empty(), "{host}");
    }
    job.delete();
    job.waits("the end of all processes", || job.processes(None).is_empty());
    job.ends();
}

#[trial]
fn a_killed_program_leaves_nothing_while_its_job_goes_on() {
    let lines = format!("{} &\nwait\necho over\nsleep 600", line("endless", ""));
    let job = Job::submit(TWO_HOSTS, &lines);
    job.prints("pid ");
    let out = job.out();
    let pid = out.lines().find_map(|line| line.strip_prefix("pid ")).expect("it was printed");
    kill(pid.parse().expect("a number"));
    job.prints("over");
    job.waits("the end of its processes", || job.processes(None).is_empty());
    assert!(job.exists());
}

#[trial]
fn a_program_that_ends_leaves_nothing() {
    let job = Job::submit(TWO_HOSTS, &format!("{}\necho over\nsleep 600", line("pi", "")));
    job.prints("over");
    job.waits("the end of its processes", || job.processes(None).is_empty());
    assert!(job.exists());
}

//! Failures in the middle of the work: no task is lost, and nothing is left.

use fiber_test_support::command::output;
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};

use crate::batch::{Batch, line, slurm};

#[trial]
fn cancelled_steps_lose_nothing() {
    let job = Batch::run("work");
    job.prints("begun");
    let steps = job.steps();
    assert_eq!(steps.len(), 2, "one for each node");
    slurm("scancel", &[&steps[0]]);
    let out = job.succeeds();
    assert!(out.contains("right: true"), "{out}");
}

#[trial]
fn a_node_that_goes_down_loses_nothing() {
    let job = Batch::submit(&["--no-kill"], &format!("exec {}", line("work")));
    job.prints("begun");
    // The batch script runs on the first one.
    let node = format!("NodeName={}", job.nodes()[1]);
    slurm("scontrol", &["update", &node, "State=DOWN", "Reason=test"]);
    let out = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.succeeds()));
    // It may be back by itself.
    let _ = output("scontrol", &["update", &node, "State=RESUME"], "");
    let out = out.expect("it goes on");
    assert!(out.contains("right: true"), "{out}");
}

/// The processes of a job on a node, and its daemons, which stand still until this is dropped: to
/// others, the wire of the node is cut.
struct Frozen(Vec<Pid>);

impl Frozen {
    fn node(job: &Batch, node: &str) -> Frozen {
        let steps = slurm("squeue", &["-h", "-s", "-j", &job.id, "-o", "%i %N"]);
        let step = steps.lines().find_map(|line| {
            let (step, at) = line.trim().split_once(' ')?;
            (at.trim() == node).then(|| format!("slurmstepd: [{step}]"))
        });
        let step = step.expect("a host runs there");
        let daemon = ["slurmd", "-N", node].map(|word| format!("{word}\0")).concat();
        let (job, node) = (format!("SLURM_JOB_ID={}", job.id), format!("SLURMD_NODENAME={node}"));
        let is_there = |process: &std::path::Path| {
            let read = |name| std::fs::read(process.join(name)).unwrap_or_default();
            let (command, environment) = (read("cmdline"), read("environ"));
            let has = |wanted: &str| {
                environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
            };
            command.ends_with(daemon.as_bytes())
                || command.starts_with(step.as_bytes())
                || has(&job) && has(&node)
        };
        let processes = std::fs::read_dir("/proc").expect("it is mounted").flatten();
        let found = processes.filter(|process| is_there(&process.path()));
        let pids =
            found.filter_map(|found| Pid::from_raw(found.file_name().to_str()?.parse().ok()?));
        let frozen = Frozen(pids.collect());
        // The host and its two workers are among them.
        assert!(frozen.0.len() >= 5, "{:?}", frozen.0);
        frozen.signal(Signal::STOP);
        frozen
    }

    fn signal(&self, signal: Signal) {
        for pid in &self.0 {
            let _ = kill_process(*pid, signal);
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
    }
}

#[trial]
fn a_node_that_can_not_be_reached_loses_nothing() {
    let job = Batch::submit(&["--no-kill"], &format!("exec {}", line("work after deaths")));
    job.prints("begun");
    let frozen = Frozen::node(&job, &job.nodes()[1]);
    // `srun` ends neither the step nor itself meanwhile.
    job.prints("right: true");
    drop(frozen);
    job.succeeds();
}

/// Lets the controller answer again when it is dropped.
struct Silenced(Pid);

impl Drop for Silenced {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Stops the controller.
fn silence() -> Silenced {
    let config = slurm("scontrol", &["show", "config"]);
    let file = config.lines().find_map(|line| line.strip_prefix("SlurmctldPidFile"));
    let file = file.expect("it has one").trim_start_matches([' ', '=']).trim();
    let pid = std::fs::read_to_string(file).expect("it runs").trim().parse().expect("a pid");
    let controller = Pid::from_raw(pid).expect("it is not 0");
    kill_process(controller, Signal::STOP).expect("it runs");
    Silenced(controller)
}

#[trial]
fn a_silent_controller_loses_nothing() {
    let job = Batch::run("work for 30 seconds");
    job.prints("begun");
    let silenced = silence();
    job.prints("right: true");
    drop(silenced);
    job.succeeds();
}

#[trial]
fn hosts_that_all_die_under_a_silent_controller_are_replaced_after_it() {
    let job = Batch::run("work after deaths");
    job.prints("begun");
    let silenced = silence();
    let out = job.out();
    let hosts: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("host ")).collect();
    assert_eq!(hosts.len(), 2, "one for each node: {out}");
    for host in hosts {
        let host = Pid::from_raw(host.parse().expect("a number")).expect("it is not 0");
        kill_process(host, Signal::KILL).expect("it runs");
    }
    // Whoever waits for the program knows what it waits for.
    job.prints("fiber: warning: ");
    drop(silenced);
    let out = job.succeeds();
    assert!(out.contains("right: true"), "{out}");
}

#[trial]
fn a_preempted_program_begins_again() {
    let lines = format!("echo try >>tries\n{}", line("work"));
    let job = Batch::submit(&["--requeue"], &lines);
    job.prints("begun");
    let nodes = format!("--nodelist={}", job.nodes().join(","));
    slurm("srun", &["--partition=urgent", "--exclusive", "--nodes=2", &nodes, "true"]);
    // Slurm would wait for two minutes.
    wait_until("the job is queued again", || job.state() == "PENDING");
    slurm("scontrol", &["update", &format!("JobId={}", job.id), "StartTime=now"]);
    let out = job.succeeds();
    assert!(out.contains("right: true"), "{out}");
    let tries = std::fs::read_to_string(job.file("tries")).expect("it was written");
    assert_eq!(tries.lines().count(), 2);
}

#[trial]
fn a_killed_program_leaves_nothing() {
    let job = Batch::submit(&[], &format!("{} &\nwait\nsleep 600", line("endless")));
    job.prints("pid ");
    assert_eq!(job.steps().len(), 2);
    let out = job.out();
    let pid = out.lines().find_map(|line| line.strip_prefix("pid ")).expect("it was printed");
    let pid = Pid::from_raw(pid.parse().expect("a number")).expect("it is not 0");
    kill_process(pid, Signal::KILL).expect("it runs");
    wait_until("the end of its steps", || job.steps().is_empty());
    assert_eq!(job.state(), "RUNNING");
}

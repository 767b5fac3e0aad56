//! Pilots of Slurm.

use std::path::Path;

use fiber_test_support::command::output;
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use tempfile::TempDir;

use crate::batch::slurm;
use crate::shared_pilots::{Endless, System, live, run};

pub(crate) const SYSTEM: System = System {
    backend: "slurm",
    env: || vec!["env".into()],
    pilots: &[],
    waits: "--begin=now+1hour",
    refused: &[
        ("PARTITION=nope", &["nope", "`slurm.partition`"]),
        ("PARTITION=staff", &["staff", "`slurm.account`"]),
        ("OPTIONS=--mem=900G", &["emory", "no more than the nodes have"]),
    ],
    script: &["#SBATCH --exclusive\n", "#SBATCH --time=5\n"],
    live: |directory| {
        let all = jobs(directory);
        let count = |states: &[&str]| {
            let has = |job: &&String| states.iter().any(|state| job.contains(state));
            all.iter().filter(has).count()
        };
        let running = count(&["JobState=RUNNING"]);
        (running + count(&["JobState=PENDING", "JobState=COMPLETING"]), running)
    },
};

/// Returns the jobs whose output goes into a directory.
fn jobs(directory: &Path) -> Vec<String> {
    let jobs = slurm("scontrol", &["show", "job", "-o"]);
    let directory = directory.display().to_string();
    jobs.lines().filter(|job| job.contains(&directory)).map(String::from).collect()
}

#[trial]
fn options_reach_slurm_verbatim() {
    let directory = TempDir::new().expect("a directory can be created");
    let name = "it's $HOME & *;[1-3]";
    let options = format!("OPTIONS=--begin=now+1hour,--nice=77,--job-name={name}");
    let program = Endless::start(directory.path(), &[&options]);
    wait_until("a pending pilot", || live(directory.path()) > 0);
    let own = jobs(directory.path());
    assert!(own[0].contains(&format!("JobName={name} ")), "{own:?}");
    assert!(own[0].contains("Nice=77 "), "{own:?}");
    drop(program);
    // Nothing of the program is left to do it.
    for job in own {
        let id = job.split(['=', ' ']).nth(1).expect("its id");
        let _ = output("scancel", &[id], "");
    }
}

#[trial]
fn all_nodes_on_this_machine_are_reached_by_its_loopback_interface() {
    let directory = TempDir::new().expect("a directory can be created");
    let network = ["FIBER_INTERFACE=127.0.0.0/8"];
    assert_eq!(run("pi", directory.path(), &network).as_deref(), Ok("pi: 3.14"));
}

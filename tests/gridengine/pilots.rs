//! Pilots of Grid Engine.

use std::path::Path;

use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use tempfile::TempDir;

use crate::job::{Job, cluster, enter, line, try_cluster};
use crate::shared_pilots::{Endless, System, live, run};

pub(crate) const SYSTEM: System = System {
    backend: "gridengine",
    env: || vec![enter(), "head".into(), "env".into()],
    pilots: &["PE=fiber", "SLOTS=2"],
    waits: "-h",
    refused: &[
        ("QUEUE=nope", &["unknown queue", "qconf -sql"]),
        ("PE=nope", &["no parallel environment `nope`", "`gridengine.pe`"]),
        ("SLOTS=4", &["`allocation_rule` 2", "`gridengine.slots`"]),
        ("SLOTS=0", &["a pilot has 0", "`gridengine.slots`"]),
        ("OPTIONS=-l nope=1", &["unknown resource", "qconf -sc"]),
        ("OPTIONS=-t 1-3", &["`-t 1-3` in `gridengine.options`", "`gridengine.pilots`"]),
        ("TIME=0s", &["time limit is too short"]),
    ],
    script: &["#$ -pe fiber 2\n", "#$ -l h_rt=300\n"],
    live: |directory| {
        let own = jobs(directory);
        let states = cluster("qstat", &["-u", "*"]);
        let state = |id: &String| {
            let mut lines = states.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            lines
                .find(|words| words.first() == Some(&id.as_str()))
                .map(|words| words[4].to_string())
        };
        let running = own.iter().filter_map(state).filter(|state| state == "r").count();
        (own.len(), running)
    },
};

/// Returns the ids of the jobs whose output goes into a directory.
fn jobs(directory: &Path) -> Vec<String> {
    let listed = cluster("qstat", &["-u", "*"]);
    let ids = listed.lines().skip(2).filter_map(|line| line.split_whitespace().next());
    let output = format!(":{}/", directory.display());
    let is_own =
        |id: &&str| try_cluster("qstat", &["-j", id]).is_ok_and(|job| job.contains(&output));
    ids.filter(is_own).map(String::from).collect()
}

#[trial]
fn options_reach_grid_engine() {
    let directory = TempDir::new().expect("a directory can be created");
    let program = Endless::start(directory.path(), &["OPTIONS=-h,-l s_rt=77,-A it"]);
    wait_until("a pending pilot", || live(directory.path()) > 0);
    let own = jobs(directory.path());
    let shown = cluster("qstat", &["-j", &own[0]]);
    assert!(shown.contains("s_rt=77") && shown.contains("h_rt=300"), "{shown}");
    assert!(
        shown.lines().any(|line| line.starts_with("account:") && line.ends_with(" it")),
        "{shown}"
    );
    drop(program);
    // Nothing of the program is left to do it.
    for job in own {
        let _ = try_cluster("qdel", &[&job]);
    }
}

/// Two of four workers find room in the job.
#[trial]
fn a_program_that_outgrows_its_job_gets_a_pilot() {
    let directory = TempDir::new().expect("a directory can be created");
    let section = "FIBER_GRIDENGINE_";
    let options = format!("PILOTS=1 {section}PE=fiber {section}SLOTS=2 {section}DIR=");
    let variables = format!("{section}{options}{}", directory.path().display());
    let out = Job::submit(&["-pe", "fiber", "2"], &line("four in jobs", &variables)).succeeds();
    assert_eq!(out, "4 workers in 2 jobs\n");
    wait_until("the end of its pilot", || live(directory.path()) == 0);
}

#[trial]
fn one_slot_needs_no_parallel_environment() {
    let directory = TempDir::new().expect("a directory can be created");
    let out = run("one task", directory.path(), &["SLOTS=1"]);
    assert_eq!(out.as_deref(), Ok("value: 7"));
    let error = run("one wide task", directory.path(), &["SLOTS=1"]).expect("it prints the error");
    assert!(error.contains("it asks for 2 cores, but a pilot has 1"), "{error}");
}

#[trial]
fn a_pilot_that_reaches_its_time_limit_is_replaced_and_no_task_is_blamed() {
    let directory = TempDir::new().expect("a directory can be created");
    let out = run("until another job", directory.path(), &["PILOTS=1", "TIME=5s"]);
    assert_eq!(out.as_deref(), Ok("ran in 2 jobs"));
}

/// Grid Engine ends the pilot, whose processes have more memory together than `h_vmem`.
#[trial]
fn a_pilot_that_passes_its_memory_limit_says_so() {
    let directory = TempDir::new().expect("a directory can be created");
    let options = ["PILOTS=1", "OPTIONS=-l h_vmem=1G"];
    let out = run("hungry together", directory.path(), &options).expect("it prints the error");
    assert!(out.contains("out of memory"), "{out}");
}

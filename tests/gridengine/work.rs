//! Programs that work on the hosts of a job.

use fiber_test_support::{TOGETHER, trial};

use crate::job::{Job, TWO_HOSTS, line};

#[trial]
fn a_pool_has_a_worker_for_each_slot_on_all_hosts() {
    let lines = format!("GREETING=\"it's \\$HOME\"\nexport GREETING\n{}", line("places", ""));
    let out = Job::submit(TWO_HOSTS, &lines).succeeds();
    assert!(out.contains("4 workers on 2 hosts"), "{out}");
    assert!(out.contains("in one directory: true"), "{out}");
    assert!(out.contains("greetings: {\"it's $HOME\"}"), "{out}");
    assert!(out.contains("the key is exported: false"), "{out}");
}

#[trial]
fn managers_queues_pipes_locks_and_rings_work_between_hosts() {
    let out = Job::submit(&["-pe", "fiber", "6"], &line("together", "")).succeeds();
    for words in TOGETHER {
        assert!(out.contains(words), "{words}: {out}");
    }
}

#[trial]
fn pools_in_workers_work_on_all_hosts() {
    // Its two workers are on two hosts, whose second slots are for the hosts of their pools.
    let job = Job::submit(TWO_HOSTS, &line("family", ""));
    job.prints("squares: [[0, 1, 4], [100, 121, 144]]");
    job.prints("nested: done");
}

#[trial]
fn output_of_all_hosts_comes_to_the_job() {
    let job = Job::submit(TWO_HOSTS, &line("voices", "FIBER_OUTPUT=prefix"));
    let out = job.succeeds();
    let hosts = |words: &str| {
        let said = out.lines().filter_map(|line| line.split_once(words));
        said.filter(|(prefix, _)| prefix.starts_with("[pool-1/worker-"))
            .map(|(_, host)| host.to_string())
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    };
    assert_eq!((hosts("out of "), hosts("err of ")), (2, 2), "{out}");
}

#[trial]
fn one_host_needs_no_task() {
    let out = Job::submit(&["-pe", "fiber", "2"], &line("pi", "")).succeeds();
    assert_eq!(out, "pi: 3.14\n");
}

#[trial]
fn several_programs_follow_each_other_in_a_job() {
    let line = line("pi", "");
    let out = Job::submit(TWO_HOSTS, &format!("{line}\n{line}\n{line}")).succeeds();
    assert_eq!(out, "pi: 3.14\n".repeat(3));
}

#[trial]
fn a_program_learns_of_the_time_limit_of_its_job_and_of_its_queue() {
    // The queue of `brief` has a limit of its own.
    for limited in [&["-pe", "fiber", "4", "-l", "h_rt=20"][..], &["-pe", "brief", "4"]] {
        let out = Job::submit(limited, &line("limited", "")).succeeds();
        assert!(out.contains("in order: true"), "{out}");
        assert!(out.contains("no more tasks of `") && out.contains("time limit"), "{out}");
    }
}

#[trial]
fn a_request_that_no_host_can_grant_is_refused_at_once() {
    // Grid Engine knows the slots, and only the hosts their GPUs.
    for (scenario, request) in [("too wide", "64 cores"), ("too many GPUs", "99 GPUs")] {
        let out = Job::submit(TWO_HOSTS, &line(scenario, "FIBER_SCHEDULE_TIMEOUT=1h")).succeeds();
        let problem = "no machine is large enough for a process of";
        let problem = format!("{problem} {request}: the largest have 2 cores");
        assert!(out.contains(&problem), "{out}");
    }
}

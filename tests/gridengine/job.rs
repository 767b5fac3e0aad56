//! Jobs of Grid Engine that run the program of a scenario.

use std::collections::BTreeSet;
use std::fs;

use fiber_test_support::command::output;
use fiber_test_support::program::SCENARIO;
use fiber_test_support::wait::wait_until;
use tempfile::TempDir;

/// Two slots on each of two hosts.
pub(crate) const TWO_HOSTS: &[&str] = &["-pe", "fiber", "4"];

/// Returns the script that runs a command on a host.
pub(crate) fn enter() -> String {
    std::env::var("TEST_GRIDENGINE").expect("TEST_GRIDENGINE names the script that enters hosts")
}

/// Runs a command of Grid Engine on the host `head`.
///
/// # Errors
/// Its output.
pub(crate) fn try_cluster(command: &str, arguments: &[&str]) -> Result<String, String> {
    let arguments: Vec<&str> = ["head", command].iter().chain(arguments).copied().collect();
    output(&enter(), &arguments, "")
}

/// Works as [`try_cluster`] for a command that has to succeed.
#[track_caller]
pub(crate) fn cluster(command: &str, arguments: &[&str]) -> String {
    try_cluster(command, arguments).unwrap_or_else(|problem| panic!("{command}: {problem}"))
}

/// Returns the line of a shell that runs the program of a scenario with more variables.
pub(crate) fn line(scenario: &str, variables: &str) -> String {
    let executable = std::env::current_exe().expect("this binary is somewhere");
    let executable = executable.display();
    format!("env {SCENARIO}='{scenario}' FIBER_BACKEND=gridengine {variables} {executable}")
}

/// A job in a directory of its own. Dropping this deletes it.
pub(crate) struct Job {
    id: String,
    directory: TempDir,
}

impl Job {
    /// Submits a script of these lines.
    #[track_caller]
    pub(crate) fn submit(options: &[&str], lines: &str) -> Job {
        let directory = TempDir::new().expect("a directory can be created");
        let path = |name: &str| directory.path().join(name).display().to_string();
        let text = format!("mark={}\nexport mark\n{lines}\necho $? >code\n", path(""));
        fs::write(path("script"), text).expect("there is room");
        let (out, place, script) = (path("out"), path(""), path("script"));
        let mut arguments = vec!["-terse", "-S", "/bin/sh", "-j", "y", "-o", &out, "-wd", &place];
        arguments.extend(options.iter().copied().chain([&*script]));
        Job { id: cluster("qsub", &arguments), directory }
    }

    /// Submits a job on two hosts that runs the program of a scenario.
    #[track_caller]
    pub(crate) fn run(scenario: &str) -> Job {
        Job::submit(TWO_HOSTS, &line(scenario, ""))
    }

    /// Runs the scenario `work` on two hosts, until the job is [released](Job::release).
    #[track_caller]
    pub(crate) fn work() -> Job {
        let wait = "until [ -e enough ]; do sleep 0.1; done";
        let job = Job::submit(TWO_HOSTS, &format!("{{ {wait}; }} | {}", line("work", "")));
        job.prints("begun: 200");
        job
    }

    pub(crate) fn release(&self) {
        fs::write(self.directory.path().join("enough"), "").expect("there is room");
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }

    pub(crate) fn out(&self) -> String {
        self.file("out")
    }

    pub(crate) fn exists(&self) -> bool {
        try_cluster("qstat", &["-j", &self.id]).is_ok()
    }

    pub(crate) fn delete(&self) {
        cluster("qdel", &[&self.id]);
    }

    /// Waits until the job has printed this.
    #[track_caller]
    pub(crate) fn prints(&self, text: &str) {
        self.waits(&format!("the output of `{text}`"), || self.out().contains(text));
    }

    /// Waits for the end of the job, and returns its output.
    #[track_caller]
    pub(crate) fn ends(&self) -> String {
        self.waits("the end of the job", || !self.exists());
        self.out()
    }

    /// Works as [`Job::ends`] for a program that has to succeed.
    #[track_caller]
    pub(crate) fn succeeds(&self) -> String {
        let out = self.ends();
        assert_eq!(self.file("code"), "0\n", "{out}");
        out
    }

    #[track_caller]
    pub(crate) fn waits(&self, what: &str, mut reached: impl FnMut() -> bool) {
        let reached = std::panic::AssertUnwindSafe(|| wait_until(what, &mut reached));
        if std::panic::catch_unwind(reached).is_err() {
            panic!("{what} did not happen; the output of job {}: {}", self.id, self.out());
        }
    }

    /// Returns the names of its hosts. The script runs on the first one.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let tasks = cluster("qstat", &["-g", "t", "-s", "r"]);
        let of_job = |line: &&str| line.split_whitespace().next() == Some(&self.id);
        let lines: Vec<&str> = tasks.lines().filter(of_job).collect();
        let host = |line: &&str| Some(line.split_once('@')?.1.split_whitespace().next()?.into());
        let (first, others): (Vec<&str>, Vec<&str>) =
            lines.iter().partition(|line| line.contains("MASTER"));
        let first: Vec<String> = first.iter().filter_map(host).collect();
        let others: BTreeSet<String> = others.iter().filter_map(host).collect();
        first.iter().cloned().chain(others.into_iter().filter(|host| *host != first[0])).collect()
    }

    /// Returns the processes of this test's program in the job, on all of its hosts or on one.
    pub(crate) fn processes(&self, host: Option<&str>) -> Vec<u32> {
        let mark = format!("mark={}", self.directory.path().join("").display());
        let own = std::env::current_exe().expect("this binary is somewhere");
        let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let wanted = host.map(|host| {
            let daemon = output("ip", &["netns", "pids", &format!("fib-grid-{host}")], "");
            let daemon = daemon.expect("the host exists");
            daemon.lines().find_map(network).expect("it runs sge_execd")
        });
        let runs = |pid: &String| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == own)
                && environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
                && wanted.as_ref().is_none_or(|wanted| network(pid).as_ref() == Some(wanted))
        };
        let all = fs::read_dir("/proc").expect("it is mounted").flatten();
        let pids = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
        pids.filter(runs).filter_map(|pid| pid.parse().ok()).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = try_cluster("qdel", &[&self.id]);
        wait_until("the end of a deleted job", || !self.exists());
    }
}

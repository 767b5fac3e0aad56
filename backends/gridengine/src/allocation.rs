//! The job in which this process runs, with its hosts.

use std::time::{Duration, SystemTime};

use fiber_backends::BackendError;
use fiber_backends::batch::variable;
use futures_util::future::join;

use super::queue;

const NO_JOB: &str = "this process is in no job of Grid Engine: start it in a script that `qsub \
                      -pe NAME SLOTS` submits (`qconf -spl` lists the names), or let it submit \
                      jobs of its own (`gridengine.pilots`)";

/// The variable by which tasks know the hosts of their job, as [`Allocation::list`] has them. Names
/// that begin with `FIBER_` are options of the configuration.
pub(super) const HOSTS: &str = "JOB_HOSTS_BY_FIBER";

/// The variable by which the head of `fiber run` knows the end of its job: its id, and the time in
/// seconds since 1970.
pub(super) const ENDS_AT: &str = "JOB_ENDS_BY_FIBER";

/// The hosts that a parallel environment has given to this process.
#[derive(Debug)]
pub(super) struct Allocation {
    /// The id of its job.
    pub(super) job: String,
    pub(super) hosts: Vec<Host>,
    /// Its queues on these hosts, `main.q@n1`, as far as they are known here.
    queues: Vec<String>,
    /// When Grid Engine asks it to end, if that is known.
    pub(super) ends_at: Option<SystemTime>,
}

/// A host of the job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Host {
    pub(super) name: String,
    /// The slots of the job there, each for a core.
    pub(super) slots: u32,
}

impl Allocation {
    /// Finds the job of this process, if it has a parallel environment.
    ///
    /// # Errors
    /// The list of its hosts can't be used.
    pub(super) fn find() -> Result<Option<Allocation>, BackendError> {
        let Some(job) = job() else { return Ok(None) };
        // Only the first host has the file. Another job may have been submitted with this variable.
        let list = variable(HOSTS).filter(|list| list.lines().next() == Some(&job));
        if let Some(hosts) = list.and_then(|list| hosts(list.split_once('\n')?.1).ok()) {
            return Ok(Some(Allocation { job, hosts, queues: Vec::new(), ends_at: None }));
        }
        let Some(path) = variable("PE_HOSTFILE") else { return Ok(None) };
        let list = std::fs::read_to_string(&path)
            .map_err(|error| BackendError::unreadable(format!("PE_HOSTFILE: {path}"), &error))?;
        let hosts = hosts(&list).map_err(|line| {
            refused!(
                "{path} (PE_HOSTFILE) has the line `{line}`, which does not begin with a host and \
                 its number of slots"
            )
        })?;
        let ends_at = variable(ENDS_AT).and_then(|end| end_of(&end, &job));
        Ok(Some(Allocation { job, hosts, queues: queues(&list), ends_at }))
    }

    /// Returns the error of a process that [`Allocation::find`] finds no hosts for.
    pub(super) fn missing() -> BackendError {
        let Some(job) = job() else { return NO_JOB.into() };
        refused!(
            "the job {job} of Grid Engine has no parallel environment, which gives it slots on \
             hosts: submit it with `qsub -pe NAME SLOTS`; `qconf -spl` lists the names"
        )
    }

    /// Asks Grid Engine for the time limits of the job and of its queues. That of `fiber run` may
    /// not be the first.
    pub(super) async fn ask_for_the_end(&mut self) {
        // Only the first host has the file, which Grid Engine writes at the start of the job.
        let Some(path) = std::env::var_os("PE_HOSTFILE") else { return };
        let begun = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        // Hosts that may not ask have no answer.
        let (id, queues) = ([self.job.as_str()], &self.queues);
        let (mut details, of_queues) =
            join(queue::details(&id), queue::limit_of_queues(queues)).await;
        let requested = details.remove(&self.job).and_then(|details| details.limit);
        let limit = queue::first([requested, of_queues]);
        let end = begun.ok().zip(limit).map(|(begun, limit)| begun + limit);
        self.ends_at = self.ends_at.into_iter().chain(end).min();
    }

    /// Returns the job and its hosts with their slots, each in a line.
    pub(super) fn list(&self) -> String {
        let hosts = self.hosts.iter().map(|host| format!("{} {}\n", host.name, host.slots));
        format!("{}\n{}", self.job, hosts.collect::<String>())
    }

    /// Returns a host, or the first one without a name.
    ///
    /// # Errors
    /// The job has no such host.
    pub(super) fn host(&self, name: Option<&str>) -> Result<&Host, BackendError> {
        let found = match name {
            Some(name) => self.hosts.iter().find(|host| host.name == name),
            None => self.hosts.first(),
        };
        found.ok_or_else(|| {
            let names: Vec<_> = self.hosts.iter().map(|host| format!("`{}`", host.name)).collect();
            refused!(
                "the job {} has no host `{}`; it has {}",
                self.job,
                name.unwrap_or_default(),
                names.join(", ")
            )
        })
    }
}

/// Returns the id of the job in which this process runs.
fn job() -> Option<String> {
    variable("JOB_ID").filter(|_| variable("SGE_TASK_ID").is_some())
}

/// Parses the value of [`ENDS_AT`] for a job. That of another job may be in the environment.
fn end_of(value: &str, job: &str) -> Option<SystemTime> {
    let (_, seconds) = value.split_once(' ').filter(|(id, _)| *id == job)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.parse().ok()?))
}

/// Parses lines of `HOST SLOTS QUEUE PROCESSORS`. A host has a line for each of its queues.
///
/// # Errors
/// The line that can't be parsed.
fn hosts(list: &str) -> Result<Vec<Host>, &str> {
    let mut hosts: Vec<Host> = Vec::new();
    for line in list.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let slots = |word: &str| word.parse().ok().filter(|slots: &u32| *slots > 0);
        let (Some(name), Some(slots)) = (words.next(), words.next().and_then(slots)) else {
            return Err(line);
        };
        match hosts.iter_mut().find(|host| host.name == name) {
            Some(host) => host.slots += slots,
            None => hosts.push(Host { name: name.to_string(), slots }),
        }
    }
    Ok(hosts)
}

/// Returns the queues in the lines that [`hosts`] parses.
fn queues(list: &str) -> Vec<String> {
    let queues = list.lines().filter_map(|line| line.split_whitespace().nth(2));
    queues.filter(|queue| queue.contains('@')).map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_host_in_several_queues_add_up() {
        let list = "n1 2 main.q@n1 UNDEFINED\nn2.site 4 main.q@n2 0,1\nn1 1 other.q@n1 <NULL>\n";
        let expected =
            [("n1", 3), ("n2.site", 4)].map(|(name, slots)| Host { name: name.into(), slots });
        let hosts = hosts(list).unwrap();
        let allocation = Allocation { job: "7".into(), hosts, queues: queues(list), ends_at: None };
        assert_eq!(allocation.hosts, expected);
        assert_eq!(allocation.queues, ["main.q@n1", "main.q@n2", "other.q@n1"]);
        assert_eq!(allocation.list(), "7\nn1 3\nn2.site 4\n");
    }

    #[test]
    fn the_end_of_another_job_does_not_count() {
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(90);
        assert_eq!(end_of("7 90", "7"), Some(end));
        assert_eq!(
            (end_of("8 90", "7"), end_of("7 soon", "7"), end_of("", "7")),
            (None, None, None)
        );
    }

    #[test]
    fn a_line_without_slots_is_named() {
        assert_eq!(hosts("n1 2 main.q\nn2 many\n"), Err("n2 many"));
        assert_eq!(hosts("n1 0\n"), Err("n1 0"));
        assert_eq!(hosts("n1\n"), Err("n1"));
    }

    #[test]
    fn a_host_of_another_job_is_refused_with_those_of_this_one() {
        let hosts = hosts("n1 2\nn2 2\n").unwrap();
        let allocation = Allocation { job: "7".into(), hosts, queues: Vec::new(), ends_at: None };
        assert_eq!(allocation.host(None).unwrap().name, "n1");
        assert_eq!(allocation.host(Some("n2")).unwrap().name, "n2");
        let problem = allocation.host(Some("n3")).unwrap_err().to_string();
        assert_eq!(problem, "the job 7 has no host `n3`; it has `n1`, `n2`");
    }
}

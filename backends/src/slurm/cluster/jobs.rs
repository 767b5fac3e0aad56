//! The jobs and steps of this user, as `squeue` lists them.

use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use fiber_core::Meta;
use rustix::process::getuid;

use super::commands;
use super::status;
use crate::cluster::session::{ExitStatus, Location, ProcessState, SessionProcess};

/// The first word of the comment of each job that `fiber run` has submitted.
pub(super) const MARK: &str = "fiber";
/// Ends each field: a character that no name has.
const END: char = '\x1f';
/// The fields of a job, in the order in which [`Job::parse`] takes them.
const FIELDS: [&str; 13] = [
    "JobID",
    "Name",
    "State",
    "Reason",
    "exit_code",
    "restartcnt",
    "SubmitTime",
    "tres-alloc",
    "BatchHost",
    "STDOUT",
    "UserName",
    "Requeue",
    "Comment",
];
/// The steps that Slurm itself adds to a job, and those of `fiber top` and others.
const NOT_HOSTS: [&str; 3] = ["batch", "extern", super::inspect::STEP];

/// A job that `fiber run` has submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) id: String,
    /// The name of its session.
    pub(super) name: String,
    /// The id of its session.
    pub(super) session: String,
    /// The path of its program.
    pub(super) program: String,
    /// Its state in Slurm's words.
    pub(super) word: String,
    pub(super) reason: String,
    exit: String,
    restarts: u64,
    submitted: Option<SystemTime>,
    resources: String,
    /// The node of its head.
    pub(super) node: String,
    /// The file of its output.
    pub(super) output: String,
    /// Whether its script starts the program again.
    pub(super) is_restarted: bool,
}

impl Job {
    fn parse(line: &str) -> Option<Job> {
        let mut fields = line.split(END).map(str::trim);
        let mut next = || fields.next().map(str::to_string);
        let (id, name, word, reason, exit) = (next()?, next()?, next()?, next()?, next()?);
        let restarts = next()?.parse().unwrap_or(0);
        let submitted = instant(&next()?);
        let (resources, node, output) = (next()?, next()?, next()?);
        let (user, requeue, comment) = (next()?, next()?, next()?);
        let mut words = comment.splitn(3, ' ');
        if words.next() != Some(MARK) {
            return None;
        }
        let (session, program) = (words.next()?.to_string(), words.next()?.to_string());
        let output = expand(&output, &id, &name, &user);
        let is_restarted = requeue == "1";
        Some(Job {
            id,
            name,
            session,
            program,
            word,
            reason,
            exit,
            restarts,
            submitted,
            resources,
            node,
            output,
            is_restarted,
        })
    }

    pub(super) fn state(&self) -> ProcessState {
        status::of(&self.word, &self.reason, &self.exit)
    }

    pub(super) fn is_pending(&self) -> bool {
        matches!(self.state(), ProcessState::Starting(_))
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state(), ProcessState::Ended(_))
    }

    pub(super) fn exit_status(&self) -> ExitStatus {
        status::exit_status(&self.word, &self.exit)
    }

    /// Returns its head, as `fiber ps` shows it.
    pub(super) fn process(&self) -> SessionProcess {
        SessionProcess {
            name: self.name.clone(),
            role: role(&self.program),
            parent: None,
            location: Location::Cluster,
            state: self.state(),
            restarts: self.restarts,
            meta: meta(&self.resources),
            started_at: self.submitted,
            usage: None,
        }
    }
}

/// A step of a job: a host of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) id: String,
    pub(super) job: String,
    name: String,
    started: Option<SystemTime>,
}

impl Step {
    fn parse(line: &str) -> Option<Step> {
        let mut fields = line.splitn(3, '|');
        let id = fields.next()?.trim().to_string();
        let started = instant(fields.next()?);
        let name = fields.next()?.trim().to_string();
        if NOT_HOSTS.contains(&name.as_str()) || !is_step(&id) {
            return None;
        }
        let job = id.split('.').next()?.to_string();
        Some(Step { id, job, name, started })
    }

    pub(super) fn process(self, job: &Job) -> SessionProcess {
        SessionProcess {
            name: self.id,
            role: self.name,
            parent: Some(job.name.clone()),
            location: Location::Cluster,
            state: ProcessState::Running,
            restarts: 0,
            meta: Meta::new(),
            started_at: self.started,
            usage: None,
        }
    }
}

/// Returns all jobs of sessions that Slurm knows, newest first.
pub(super) async fn all() -> Result<Vec<Job>, String> {
    let fields: Vec<String> = FIELDS.iter().map(|field| format!("{field}:{END}")).collect();
    let (user, format) = (getuid().as_raw().to_string(), fields.join(","));
    let arguments = ["--noheader", "--states=all", "--user", &user, "--Format", &format];
    let listed = commands::squeue(&arguments).await?;
    let mut jobs: Vec<Job> = listed.lines().filter_map(Job::parse).collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.id.parse::<u64>().unwrap_or(0)));
    Ok(jobs)
}

/// Returns the steps of all jobs of this user.
pub(super) async fn steps() -> Result<Vec<Step>, String> {
    let user = getuid().as_raw().to_string();
    let arguments = ["--noheader", "--steps", "--user", &user, "--format", "%i|%S|%j"];
    let listed = commands::squeue(&arguments).await?;
    Ok(listed.lines().filter_map(Step::parse).collect())
}

/// Returns whether a name is that of a step: `4711.0`.
pub(super) fn is_step(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('.').is_some_and(|(job, step)| is_number(job) && is_number(step))
}

/// Keeps a job from being queued again after its end. A job that has ended needs nothing.
pub(super) async fn forbid_requeue(id: &str) {
    let _ = commands::scontrol(&["update", &format!("JobId={id}"), "Requeue=0"]).await;
}

/// Returns the name of the cluster.
pub(super) async fn cluster_name() -> Result<String, String> {
    let shown = commands::scontrol(&["show", "config"]).await?;
    let mut fields = shown.lines().filter_map(|line| line.split_once('='));
    let name = fields.find(|(key, _)| key.trim() == "ClusterName").map(|(_, name)| name.trim());
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let name = name.filter(|name| !name.is_empty() && name.chars().all(plain));
    name.map(String::from)
        .ok_or_else(|| "`scontrol show config` does not say the cluster's name".to_string())
}

/// Returns the file that Slurm makes of a pattern for file names.
fn expand(pattern: &str, id: &str, name: &str, user: &str) -> String {
    let mut path = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match (c, (c == '%').then(|| rest.next()).flatten()) {
            ('%', Some('j' | 'A')) => path.push_str(id),
            ('%', Some('x')) => path.push_str(name),
            ('%', Some('u')) => path.push_str(user),
            ('%', Some('%')) => path.push('%'),
            ('%', Some(other)) => path.extend(['%', other]),
            (c, _) => path.push(c),
        }
    }
    path
}

pub(super) fn role(program: &str) -> String {
    program.rsplit_once('/').map_or(program, |(_, name)| name).to_string()
}

fn instant(seconds: &str) -> Option<SystemTime> {
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.trim().parse().ok()?))
}

/// Returns the resources of a job, of all its nodes together: `cpu=4,mem=8000M,gres/gpu=2`.
fn meta(resources: &str) -> Meta {
    let mut meta = Meta::new();
    for (name, amount) in resources.split(',').filter_map(|part| part.split_once('=')) {
        match name {
            "cpu" => meta.cpu = amount.parse().ok(),
            // Slurm counts in powers of 1024.
            "mem" => {
                meta.memory = amount
                    .trim_end_matches('B')
                    .replace(['K', 'M', 'G', 'T'], "")
                    .parse::<f64>()
                    .ok()
                    .map(|number| ByteSize((number * unit(amount)) as u64))
                    .filter(|size| size.as_u64() > 0);
            }
            "gres/gpu" => meta.gpu = amount.parse().ok(),
            _ => {}
        }
    }
    meta
}

fn unit(amount: &str) -> f64 {
    match amount.trim_end_matches('B').chars().last() {
        Some('K') => 1024.0,
        Some('G') => 1024f64.powi(3),
        Some('T') => 1024f64.powi(4),
        _ => 1024f64.powi(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: [&str; 13]) -> String {
        fields.map(|field| format!("{field}{END}")).concat()
    }

    #[test]
    fn a_job_is_known_by_its_comment() {
        let mut fields = [
            "17",
            "pi",
            "FAILED",
            "NonZeroExitCode",
            "768",
            "1",
            "1795397256",
            "cpu=4,mem=1.5G,node=2,billing=4,gres/gpu=2",
            "n1",
            "/home/a b/%x.%j.out",
            "eve",
            "1",
            "fiber 00aa11bb /home/a b/pi",
        ];
        let job = Job::parse(&line(fields)).expect("it is one");
        assert_eq!((job.id.as_str(), job.session.as_str()), ("17", "00aa11bb"));
        assert_eq!(
            (job.output.as_str(), job.program.as_str()),
            ("/home/a b/pi.17.out", "/home/a b/pi")
        );
        let process = job.process();
        assert_eq!((process.role.as_str(), process.restarts), ("pi", 1));
        assert_eq!((process.meta.cpu, process.meta.gpu), (Some(4.0), Some(2)));
        assert_eq!(process.meta.memory, Some(ByteSize(1536 << 20)));
        assert_eq!(process.state, ProcessState::Ended(ExitStatus { code: 3, reason: None }));
        fields[12] = "fibers of others";
        assert_eq!(Job::parse(&line(fields)), None);
        assert_eq!(Job::parse("squeue: warning"), None);
    }

    #[test]
    fn steps_of_slurm_itself_are_no_hosts() {
        let step = Step::parse("17.0|1795397256|pool|x").expect("it is one");
        assert_eq!(
            (step.id.as_str(), step.job.as_str(), step.name.as_str()),
            ("17.0", "17", "pool|x")
        );
        assert_eq!(Step::parse("17.batch|1795397256|batch"), None);
        assert!(is_step("1.0") && !is_step("1.batch") && !is_step("fiber-1") && !is_step("."));
    }
}

//! The jobs and steps of this user, as `squeue` lists them.

use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use fiber_core::Meta;
use rustix::process::getuid;

use super::commands::{self, CommandError};
use super::states::{ScriptExit, State};

/// Ends each field: a character that no name has.
const END: char = '\x1f';
/// The fields of a job, in the order in which [`Job::parse`] takes them.
const FIELDS: [&str; 12] = [
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
    "Comment",
];

/// A job in Slurm's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) id: String,
    pub(super) name: String,
    /// The name of its state.
    pub(super) word: String,
    /// Why it waits or has ended: `Priority`, `Resources`, ….
    pub(super) reason: String,
    pub(super) exit: ScriptExit,
    pub(super) restarts: u64,
    pub(super) submitted: Option<SystemTime>,
    /// The sum of all of its nodes.
    pub(super) resources: String,
    /// The node of its script.
    pub(super) node: Option<String>,
    /// The file of its output.
    pub(super) output: String,
    pub(super) comment: String,
}

impl Job {
    fn parse(line: &str) -> Option<Job> {
        let mut fields = line.split(END).map(str::trim);
        let mut next = || fields.next().map(str::to_string);
        let (id, name, word, reason) = (next()?, next()?, next()?, next()?);
        id.parse::<u64>().ok()?;
        let exit = ScriptExit::parse(&next()?);
        let restarts = next()?.parse().unwrap_or(0);
        let submitted = instant(&next()?);
        let (resources, node, output) = (next()?, next()?, next()?);
        let (user, comment) = (next()?, next()?);
        let (node, output) = (node_name(node), expand(&output, &id, &name, &user));
        Some(Job {
            id,
            name,
            word,
            reason,
            exit,
            restarts,
            submitted,
            resources,
            node,
            output,
            comment,
        })
    }

    pub(super) fn state(&self) -> State {
        State::named(&self.word)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.state() == State::Pending
    }

    pub(super) fn meta(&self) -> Meta {
        meta(&self.resources)
    }
}

/// A step of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) id: String,
    pub(super) job: String,
    pub(super) name: String,
    pub(super) node: Option<String>,
    pub(super) started: Option<SystemTime>,
}

impl Step {
    fn parse(line: &str) -> Option<Step> {
        let mut fields = line.splitn(4, '|');
        let id = fields.next()?.trim().to_string();
        let started = instant(fields.next()?);
        let node = node_name(fields.next()?.trim().to_string());
        let name = fields.next()?.trim().to_string();
        let job = id.split('.').next().filter(|_| is_step(&id))?.to_string();
        Some(Step { id, job, name, node, started })
    }
}

#[cfg(test)]
impl Job {
    /// Returns a job about which nothing else is known.
    pub(super) fn sample(id: &str, word: &str) -> Job {
        Job {
            id: id.into(),
            name: "fiber".into(),
            word: word.into(),
            reason: "None".into(),
            exit: ScriptExit::default(),
            restarts: 0,
            submitted: None,
            resources: String::new(),
            node: None,
            output: String::new(),
            comment: String::new(),
        }
    }
}

/// Returns the jobs of this user that Slurm still knows, also those that ended some minutes ago,
/// newest first.
pub(super) async fn of_this_user() -> Result<Vec<Job>, CommandError> {
    let fields: Vec<String> = FIELDS.iter().map(|field| format!("{field}:{END}")).collect();
    let (user, format) = (getuid().as_raw().to_string(), fields.join(","));
    let arguments = ["--noheader", "--states=all", "--user", &user, "--Format", &format];
    let listed = commands::run("squeue", &arguments).await?;
    let mut jobs: Vec<Job> = listed.lines().filter_map(Job::parse).collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.id.parse::<u64>().unwrap_or(0)));
    Ok(jobs)
}

/// Returns the steps of all jobs of this user, without those that Slurm itself adds.
pub(super) async fn steps() -> Result<Vec<Step>, CommandError> {
    let user = getuid().as_raw().to_string();
    let arguments = ["--noheader", "--steps", "--user", &user, "--format", "%i|%S|%N|%j"];
    let listed = commands::run("squeue", &arguments).await?;
    Ok(listed.lines().filter_map(Step::parse).collect())
}

/// Returns whether a name is that of a step: `4711.0`.
pub(super) fn is_step(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('.').is_some_and(|(job, step)| is_number(job) && is_number(step))
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

/// Returns the node that `squeue` names: a job that waits has none.
fn node_name(name: String) -> Option<String> {
    Some(name).filter(|name| !name.is_empty() && !name.starts_with('(') && name != "n/a")
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
            "mem" => meta.memory = commands::size(amount).filter(|size| *size > 0).map(ByteSize),
            "gres/gpu" => meta.gpu = amount.parse().ok(),
            _ => {}
        }
    }
    meta
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::states::Ending;

    #[test]
    fn a_job_is_parsed_whatever_its_name() {
        let line = [
            "17",
            "a|b c",
            "FAILED",
            "NonZeroExitCode",
            "768",
            "1",
            "1795397256",
            "cpu=4,mem=1.5G,node=2,billing=4,gres/gpu=2",
            "n1",
            "/home/a b/%x.%j.out",
            "eve",
            "(null)",
        ]
        .map(|field| format!("{field}{END}"))
        .concat();
        let job = Job::parse(&line).expect("it is one");
        assert_eq!((&*job.id, &*job.name, &*job.comment), ("17", "a|b c", "(null)"));
        assert_eq!((job.output.as_str(), job.restarts), ("/home/a b/a|b c.17.out", 1));
        assert_eq!(job.node.as_deref(), Some("n1"));
        assert_eq!(job.state(), State::Ended(Ending::Failed));
        assert_eq!(job.exit, ScriptExit { code: 3, signal: 0 });
        let meta = job.meta();
        assert_eq!((meta.cpu, meta.gpu), (Some(4.0), Some(2)));
        assert_eq!(meta.memory, Some(ByteSize(1536 << 20)));
        assert_eq!(Job::parse("slurm_load_jobs error: Invalid job id specified"), None);
    }

    #[test]
    fn steps_of_slurm_itself_are_left_out() {
        let step = Step::parse("17.0|1795397256|n2|host|x").expect("it is one");
        assert_eq!((&*step.id, &*step.job, &*step.name), ("17.0", "17", "host|x"));
        assert_eq!(step.node.as_deref(), Some("n2"));
        assert_eq!(Step::parse("17.batch|1795397256|n1|batch"), None);
        assert!(is_step("1.0") && !is_step("1.batch") && !is_step("fiber-1") && !is_step("."));
    }
}

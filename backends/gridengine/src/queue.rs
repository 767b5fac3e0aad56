//! The jobs of this user, as `qstat` lists them.

use std::collections::HashMap;
use std::time::Duration;

use fiber_backends::batch::CommandError;
use fiber_backends::cluster::ProcessState;

use super::commands;

/// A job that waits or runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct QueuedJob {
    pub(super) id: String,
    pub(super) name: String,
    /// The letters of its state: `qw`, `hqw`, `r`, `dr`, `Eqw`.
    pub(super) letters: String,
    /// The first host of a job that runs.
    pub(super) host: Option<String>,
    pub(super) slots: Option<f64>,
}

/// The answer of `qstat -j` about a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Details {
    /// Why it waits, or is in an error state.
    pub(super) reasons: Vec<String>,
    /// Its context: `name=value` with commas.
    pub(super) context: String,
    /// The time limit that it asks for: the first of `h_rt` and `s_rt`.
    pub(super) limit: Option<Duration>,
}

impl QueuedJob {
    /// Returns whether it could not be started.
    pub(super) fn has_failed(&self) -> bool {
        self.letters.contains('E')
    }

    pub(super) fn is_pending(&self) -> bool {
        matches!(self.process_state(None), ProcessState::Starting(_))
    }

    /// Returns the state of its head.
    pub(super) fn process_state(&self, details: Option<&Details>) -> ProcessState {
        let has = |letters: &[char]| self.letters.contains(letters);
        let reasons = details.map(|details| details.reasons.join("; "));
        let reasons = reasons.filter(|reasons| !reasons.is_empty());
        if self.has_failed() {
            let reason = reasons.unwrap_or_else(|| "no reason is known".into());
            let id = &self.id;
            let remedy = format!("`qmod -cj {id}` lets it start again");
            return ProcessState::Starting(Some(format!("error state: {reason}: {remedy}")));
        }
        if has(&['h']) {
            return ProcessState::Starting(Some(format!("held: `qrls {}` lets it start", self.id)));
        }
        if has(&['s', 'S', 'T']) {
            return ProcessState::Paused(format!("qmod -usj {}", self.id));
        }
        if has(&['r', 't']) {
            return ProcessState::Running;
        }
        ProcessState::Starting(reasons)
    }
}

#[cfg(test)]
impl QueuedJob {
    /// Returns a job that runs.
    pub(super) fn sample(id: &str, name: &str) -> QueuedJob {
        let (host, slots) = (None, None);
        QueuedJob { id: id.into(), name: name.into(), letters: "r".into(), host, slots }
    }
}

/// Returns the jobs of this user that wait or run.
pub(super) async fn jobs() -> Result<Vec<QueuedJob>, CommandError> {
    let user = rustix::process::getuid().as_raw();
    let user = user_name(user).unwrap_or_else(|| user.to_string());
    let listed = commands::run("qstat", &["-xml", "-u", &user]).await?;
    Ok(parse(&listed))
}

/// Returns what `qstat -j` says about jobs. One that has ended has no entry.
pub(super) async fn details(ids: &[&str]) -> HashMap<String, Details> {
    if ids.is_empty() {
        return HashMap::new();
    }
    match commands::run("qstat", &["-j", &ids.join(",")]).await {
        Ok(shown) => parse_details(&shown),
        // One of them may have ended just now.
        Err(error) => {
            tracing::debug!("the reasons of pending jobs are not known: {error}");
            HashMap::new()
        }
    }
}

/// Returns the name of a user, as the system knows it.
fn user_name(uid: u32) -> Option<String> {
    // Names may be any bytes.
    let users = std::fs::read("/etc/passwd").unwrap_or_default();
    let users = String::from_utf8_lossy(&users);
    let of_file = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_string())
    });
    // A directory service has the others.
    of_file.or_else(|| std::env::var("USER").ok()).filter(|name| !name.is_empty())
}

/// Parses the answer of `qstat -xml`: a list of elements without attributes that matter.
fn parse(xml: &str) -> Vec<QueuedJob> {
    let jobs = xml.split("<job_list").skip(1);
    let jobs = jobs.filter_map(|job| {
        let job = job.split("</job_list>").next()?;
        let text = |tag: &str| {
            let (_, rest) = job.split_once(&format!("<{tag}>"))?;
            Some(rest.split('<').next()?.trim().to_string())
        };
        let host = text("queue_name").and_then(|queue| Some(queue.split_once('@')?.1.to_string()));
        Some(QueuedJob {
            id: text("JB_job_number")?,
            name: text("JB_name").unwrap_or_default(),
            letters: text("state")?,
            host,
            slots: text("slots").and_then(|slots| slots.parse().ok()),
        })
    });
    jobs.collect()
}

/// The most reasons of a job: a large cluster has one for each of its hosts.
const REASONS: usize = 2;

fn parse_details(shown: &str) -> HashMap<String, Details> {
    let mut jobs = HashMap::new();
    let mut job: Option<&mut Details> = None;
    let mut is_reason = false;
    for line in shown.lines() {
        let (key, value) = match line.split_once(':') {
            _ if line.starts_with(' ') => ("", line.trim()),
            Some((key, value)) => (key.trim(), value.trim()),
            // A rule between two jobs.
            None => ("=", ""),
        };
        if key == "job_number" {
            job = Some(jobs.entry(value.to_string()).or_default());
        }
        let Some(job) = job.as_deref_mut() else { continue };
        match key {
            "context" => job.context = value.to_string(),
            "hard resource_list" => {
                job.limit = first(["h_rt", "s_rt"].map(|name| requested_limit(value, name)));
            }
            _ => {}
        }
        is_reason = match key {
            "" => is_reason,
            key => key == "scheduling info" || key.starts_with("error reason"),
        };
        // The time and the ids of a user are before the error.
        let value = value.split_once("]: ").map_or(value, |(_, error)| error);
        let value = value.trim_start_matches("error: ");
        let is_new = !value.is_empty() && !job.reasons.iter().any(|reason| reason == value);
        if is_reason && is_new && !value.contains("no messages") && job.reasons.len() < REASONS {
            job.reasons.push(value.to_string());
        }
    }
    jobs
}

/// Returns the limit of this name in resource requests such as `h_vmem=1G,h_rt=1:00:05`.
pub(super) fn requested_limit(requests: &str, name: &str) -> Option<Duration> {
    let values = requests.split(',').filter_map(|request| request.trim().split_once('='));
    let mut limits = values.filter(|(key, _)| *key == name).filter_map(|(_, text)| seconds(text));
    limits.next_back().map(Duration::from_secs)
}

/// Returns the first time limit of queues, such as `main.q@n1`: the hard ones and the soft ones.
/// `None` also if this host may not ask.
pub(super) async fn limit_of_queues(queues: &[String]) -> Option<Duration> {
    if queues.is_empty() {
        return None;
    }
    match commands::run("qconf", &["-sq", &queues.join(",")]).await {
        Ok(shown) => limit_in(&shown),
        Err(error) => {
            tracing::debug!("the time limits of the job's queues are not known: {error}");
            None
        }
    }
}

fn limit_in(shown: &str) -> Option<Duration> {
    let fields = shown.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let limits = fields.filter(|(name, _)| matches!(*name, "h_rt" | "s_rt"));
    first(limits.map(|(_, text)| seconds(text).map(Duration::from_secs)))
}

/// Returns the first of these time limits, if there is any.
pub(super) fn first(limits: impl IntoIterator<Item = Option<Duration>>) -> Option<Duration> {
    limits.into_iter().flatten().min()
}

/// Parses Grid Engine's `[[HOURS:]MINUTES:]SECONDS`.
fn seconds(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.trim().split(':').collect();
    if parts.len() > 3 {
        return None;
    }
    let number = |part: &str| if part.is_empty() { Some(0) } else { part.parse::<u64>().ok() };
    parts.into_iter().try_fold(0, |sum, part| Some(sum * 60 + number(part)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_parsed_with_their_first_host() {
        let xml = "<job_info><queue_info>\n<job_list state=\"running\">\n\
                   <JB_job_number>1</JB_job_number><JB_name>a</JB_name><state>dr</state>\n\
                   <queue_name>main.q@n1</queue_name><slots>4</slots></job_list></queue_info>\n\
                   <job_info><job_list state=\"pending\"><JB_job_number>2</JB_job_number>\n\
                   <state>qw</state><queue_name></queue_name><slots>400</slots></job_list>\n\
                   </job_info></job_info>";
        let jobs = parse(xml);
        let shown: Vec<_> =
            jobs.iter().map(|job| (&*job.id, &*job.letters, job.host.as_deref())).collect();
        assert_eq!(shown, [("1", "dr", Some("n1")), ("2", "qw", None)]);
        assert_eq!(parse("<?xml version='1.0'?><job_info></job_info>"), []);
    }

    #[test]
    fn states_come_from_letters() {
        let state = |letters: &str, details: Option<&Details>| {
            QueuedJob { letters: letters.into(), ..QueuedJob::sample("7", "pi") }
                .process_state(details)
        };
        for letters in ["r", "dr", "t", "Rr"] {
            assert_eq!(state(letters, None), ProcessState::Running, "{letters}");
        }
        for letters in ["s", "S", "T", "Ts"] {
            let paused = ProcessState::Paused("qmod -usj 7".into());
            assert_eq!(state(letters, None), paused, "{letters}");
        }
        assert_eq!(state("qw", None), ProcessState::Starting(None));
        let held = ProcessState::Starting(Some("held: `qrls 7` lets it start".into()));
        assert_eq!(state("hqw", None), held);
        let details = Details { reasons: vec!["no disk".into()], ..Details::default() };
        let error = "error state: no disk: `qmod -cj 7` lets it start again";
        let error = ProcessState::Starting(Some(error.into()));
        assert_eq!(state("Eqw", Some(&details)), error);
    }

    #[test]
    fn limits_are_in_grid_engines_form() {
        let limit = |text| requested_limit(text, "h_rt").map(|limit| limit.as_secs());
        assert_eq!(limit("h_vmem=1G,h_rt=1:00:05"), Some(3605));
        assert_eq!(
            (limit("h_rt=::7"), limit("h_rt=INFINITY"), limit("s_rt=9")),
            (Some(7), None, None)
        );
        assert_eq!(limit("h_rt=1:2:3:4"), None);
        let shown =
            "qname   main.q\ns_rt    INFINITY\nh_rt    1:00:00\nqname   b.q\ns_rt    00:59:00\n";
        assert_eq!(limit_in(shown), Some(Duration::from_secs(3540)));
        assert_eq!(limit_in("h_rt INFINITY\n"), None);
    }

    #[test]
    fn reasons_are_those_of_the_scheduler_and_of_errors() {
        let shown = "====\njob_number:                 3\nhard resource_list:         h_rt=60\ncontext:     fiber=00aa,x=y\n\
             error reason          1:      11/25/2026 19:54:37 [0:8997]: error: can't open \"/x\"\n\
             scheduling info:            There are no messages available\n====\n\
             job_number:                 4\njob_type:                   NONE\n\
             scheduling info:            cannot run in PE \"a\" because it only offers 8 slots\n\
             \u{20}                           queue instance \"q@n1\" dropped because it is full\n\
             \u{20}                           a third one\n";
        let details = parse_details(shown);
        assert_eq!(details["3"].reasons, ["can't open \"/x\""]);
        assert_eq!(details["3"].context, "fiber=00aa,x=y");
        assert_eq!(details["3"].limit, Some(Duration::from_secs(60)));
        let four = &details["4"].reasons;
        assert_eq!(four[0], "cannot run in PE \"a\" because it only offers 8 slots");
        assert_eq!((four[1].ends_with("it is full"), four.len()), (true, 2));
    }
}

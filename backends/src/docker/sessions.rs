//! The sessions that an engine's containers belong to.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bollard::errors::Error;
use bollard::models::{ContainerState, ContainerStateStatusEnum, ContainerSummary, HostConfig};
use bollard::query_parameters::ListContainersOptions;
use fiber_core::Meta;

use super::engine::{Engine, found};
use super::labels::{NAME, OWNER, RESTARTS, SESSION};
use crate::JobPlace;
use crate::cluster::session::{ExitStatus, Location, ProcessState, SessionProcess};
use crate::owner::JobOwner;

/// Returns the processes of all sessions, from the labels of the containers.
pub(super) async fn list(engine: &Engine) -> Result<Vec<SessionProcess>, Error> {
    let containers = containers(engine, SESSION).await?;
    if containers.is_empty() {
        return Ok(Vec::new());
    }
    let machine = engine.api.info().await?.name.filter(|name| !name.is_empty());
    let mut names: HashMap<String, String> = HashMap::new();
    for container in &containers {
        if let (Some(id), Some(name)) = (&container.id, name(container)) {
            names.insert(id.clone(), name);
        }
    }
    let mut processes: Vec<SessionProcess> = Vec::new();
    for container in &containers {
        let (Some(id), Some(name)) = (&container.id, name(container)) else { continue };
        // It may be removed meanwhile.
        let Some(details) = found(engine.api.inspect_container(id, None).await)? else { continue };
        let label =
            |key| container.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
        let owner = label(OWNER).and_then(JobOwner::from_text);
        let parent = match &owner {
            None => None,
            Some(JobOwner::Container { id, .. }) if names.contains_key(id) => {
                names.get(id).cloned()
            }
            Some(owner) => {
                let head = external_head(engine, owner, &machine).await?;
                let job = head.job.clone();
                if !processes.iter().any(|other| other.job == job) {
                    processes.push(head);
                }
                Some(job)
            }
        };
        let named = label(NAME).unwrap_or_default().to_string();
        processes.push(SessionProcess {
            machine: machine.clone(),
            state: state(&name, details.state.unwrap_or_default()),
            restarts: match label(RESTARTS) {
                Some(count) => count.parse().unwrap_or(0),
                // The engine itself restarts heads.
                None => details.restart_count.and_then(|count| count.try_into().ok()).unwrap_or(0),
            },
            meta: meta(&details.host_config.unwrap_or_default()),
            started_at: container.created.and_then(instant),
            ..SessionProcess::of_job(name.clone(), named, parent, JobPlace::Container { name })
        });
    }
    Ok(processes)
}

/// Removes the containers of heads that have ended, and returns their names.
pub(super) async fn remove_ended_heads(engine: &Engine) -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    for container in containers(engine, SESSION).await? {
        let (Some(id), Some(name)) = (&container.id, name(&container)) else { continue };
        let is_head = container.labels.is_some_and(|labels| !labels.contains_key(OWNER));
        let Some(details) = found(engine.api.inspect_container(id, None).await)? else { continue };
        let state = state(&name, details.state.unwrap_or_default());
        if is_head && matches!(state, ProcessState::Ended(_)) {
            engine.remove(id).await?;
            removed.push(name);
        }
    }
    Ok(removed)
}

/// Returns the exit status of a container that has ended.
pub(super) fn exit_status(state: &ContainerState) -> ExitStatus {
    let code = state.exit_code.and_then(|code| i32::try_from(code).ok()).unwrap_or(-1);
    let reason = match state.oom_killed {
        Some(true) => Some("out of memory".to_string()),
        _ => state.error.clone().filter(|error| !error.is_empty()),
    };
    ExitStatus { code, reason }
}

/// Returns the containers of sessions: `session` is their label, perhaps with its value.
pub(super) async fn containers(
    engine: &Engine,
    session: &str,
) -> Result<Vec<ContainerSummary>, Error> {
    // Somebody else's container may have one of the labels.
    let labels = vec![session.to_string(), NAME.to_string()];
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".into(), labels)])),
        ..Default::default()
    };
    engine.api.list_containers(Some(options)).await
}

pub(super) fn name(container: &ContainerSummary) -> Option<String> {
    container.names.as_ref()?.first().map(|name| name.trim_start_matches('/').to_string())
}

/// Returns a head outside of fiber's containers: a program on this or another host, or in a user's
/// own container.
async fn external_head(
    engine: &Engine,
    owner: &JobOwner,
    machine: &Option<String>,
) -> Result<SessionProcess, Error> {
    let JobOwner::Container { id, .. } = owner else { return Ok(owner.head_on_host()) };
    let details = match found(engine.api.inspect_container(id, None).await)? {
        Some(details) => details,
        None => {
            let name = id.get(..12).unwrap_or(id).to_string();
            return Ok(SessionProcess {
                program: Some("program".into()),
                location: Location::Host,
                has_output: false,
                state: ProcessState::Gone,
                ..SessionProcess::new(name.clone(), JobPlace::Other { words: name })
            });
        }
    };
    let name = details.name.as_deref().unwrap_or(id).trim_start_matches('/').to_string();
    Ok(SessionProcess {
        program: Some(details.config.and_then(|config| config.image).unwrap_or_default()),
        machine: machine.clone(),
        state: state(&name, details.state.unwrap_or_default()),
        ..SessionProcess::new(name.clone(), JobPlace::Container { name })
    })
}

/// Returns the state of the container `name`.
fn state(name: &str, state: ContainerState) -> ProcessState {
    match state.status {
        Some(ContainerStateStatusEnum::RUNNING) => ProcessState::Running,
        Some(ContainerStateStatusEnum::RESTARTING) => {
            let code = exit_status(&state).code;
            ProcessState::Starting(Some(format!("again, after exit code {code}")))
        }
        Some(ContainerStateStatusEnum::PAUSED) => {
            ProcessState::Paused(format!("docker unpause {name}"))
        }
        Some(ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD) => {
            ProcessState::Ended(exit_status(&state))
        }
        Some(ContainerStateStatusEnum::REMOVING) => ProcessState::Gone,
        _ => ProcessState::Starting(None),
    }
}

/// Returns the resource limits of a container.
fn meta(host: &HostConfig) -> Meta {
    let positive = |number: Option<i64>| {
        number.and_then(|number| u64::try_from(number).ok()).filter(|n| *n > 0)
    };
    let gpus = host.device_requests.iter().flatten().map(|request| {
        match (&request.device_ids, request.count) {
            (Some(ids), _) if !ids.is_empty() => ids.len() as u32,
            (_, Some(count)) => u32::try_from(count).unwrap_or(0),
            _ => 0,
        }
    });
    let mut meta = Meta::new();
    meta.cpu = positive(host.nano_cpus).map(|nanos| nanos as f64 / 1e9);
    meta.memory = positive(host.memory).map(bytesize::ByteSize);
    meta.gpu = Some(gpus.sum()).filter(|count| *count > 0);
    meta
}

fn instant(seconds: i64) -> Option<SystemTime> {
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
}

//! What a pod's status says of its process.

use fiber_core::ExitReason;
use k8s_openapi::api::core::v1::{ContainerState, Pod, PodCondition};

use super::names::CONTAINER;
use crate::WaitReason;

/// What a shell's, and a container's, exit code is for a program that a signal killed, beside the
/// signal.
const BY_SIGNAL: i32 = 128;

/// Of a pod that is deleted, the node may forget the container before it has told of its end.
pub(super) const DELETED: &str = "its pod was deleted";

/// How far a pod has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    /// Nothing is known yet.
    Starting,
    Waiting(WaitReason),
    /// Something is missing without which it will not start, in Kubernetes' words.
    MissingClaim(String),
    /// It will not start any more, in Kubernetes' words.
    CannotStart(String),
    /// Its node had no room for it after all, in Kubernetes' words: another pod may find some.
    Rejected(String),
    Running,
    Ended(ExitReason),
}

/// What this pod's status says. The state of the program's container counts before the phase of the
/// whole pod: a node may report the end of a container long before it calls its pod `Succeeded`,
/// and other containers may keep the pod running.
pub(super) fn pod_state(pod: &Pod) -> PodState {
    let Some(status) = &pod.status else { return PodState::Starting };
    let state = program(pod);
    let message = status.message.clone().unwrap_or_default();
    let disruption =
        condition(pod, "DisruptionTarget").filter(|condition| condition.status == "True");
    let removal = || status.reason.as_deref().and_then(|reason| removed(reason, &message));
    if let Some(reason) = disruption.map(disrupted).or_else(removal)
        && (ended(state) || status.phase.as_deref() == Some("Failed"))
    {
        return PodState::Ended(reason);
    }
    if let Some(ended) = state.and_then(|state| state.terminated.as_ref()) {
        return PodState::Ended(match (ended.exit_code, ended.reason.as_deref()) {
            (_, Some("OOMKilled")) => ExitReason::OutOfMemory,
            (_, Some("ContainerCannotRun" | "StartError")) => {
                ExitReason::NotStarted(ended.message.clone().unwrap_or_default())
            }
            (_, Some("ContainerStatusUnknown")) => ExitReason::LinkLost(DELETED.into()),
            (0, _) => ExitReason::Normal,
            (code @ 129..=192, _) => ExitReason::Signal(code - BY_SIGNAL),
            (code, _) => ExitReason::Code(code),
        });
    }
    if state.is_some_and(|state| state.running.is_some()) {
        return PodState::Running;
    }
    match status.phase.as_deref() {
        Some("Failed") if pod.metadata.deletion_timestamp.is_some() => {
            return PodState::Ended(ExitReason::LinkLost(DELETED.into()));
        }
        // It never had a container: its node refused it.
        Some("Failed") => {
            let reason = status.reason.as_deref().unwrap_or_default();
            let words = format!("its node refused it: {reason}: {message}");
            return if is_for_now(reason) {
                PodState::Rejected(words)
            } else {
                PodState::Ended(ExitReason::NotStarted(words))
            };
        }
        Some("Succeeded") => return PodState::Ended(ExitReason::Normal),
        _ => {}
    }
    if let Some(condition) =
        condition(pod, "PodScheduled").filter(|condition| condition.status == "False")
    {
        let words = condition.message.clone().unwrap_or_default();
        return match words.contains("persistentvolumeclaim") && words.contains("not found") {
            true => PodState::MissingClaim(words),
            false => PodState::Waiting(WaitReason::Resources(words)),
        };
    }
    let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) else {
        return PodState::Starting;
    };
    let reason = waiting.reason.clone().unwrap_or_default();
    let words = match waiting.message.as_deref().unwrap_or_default() {
        "" => reason.clone(),
        message => format!("{reason}: {message}"),
    };
    match &*reason {
        _ if is_passing(&words) => PodState::Waiting(WaitReason::Image(words)),
        "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "CrashLoopBackOff" => PodState::CannotStart(words),
        _ => PodState::Waiting(WaitReason::Image(words)),
    }
}

/// The state of the container that has the program: the one of fiber's name, or the first. The
/// statuses of containers are in the order of their names, and a cluster may add containers to each
/// pod.
fn program(pod: &Pod) -> Option<&ContainerState> {
    let statuses = pod.status.as_ref()?.container_statuses.as_deref()?;
    let named = |name: &str| statuses.iter().find(|status| status.name == name);
    let first = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.containers.first())
        .map(|container| container.name.as_str());
    named(CONTAINER).or_else(|| named(first?)).or(statuses.first())?.state.as_ref()
}

/// Whether a node may take a pod later that it refuses for this reason: the scheduler can know less
/// of what a node has left, and of how it is marked, than the node itself.
fn is_for_now(reason: &str) -> bool {
    let passing = ["UnexpectedAdmissionError", "TopologyAffinityError", "NodeAffinity"];
    reason.starts_with("OutOf") || passing.contains(&reason)
}

/// Whether a node will succeed with what it could not do in time: it tries again.
fn is_passing(words: &str) -> bool {
    ["timed out waiting for the condition", "context deadline exceeded"]
        .iter()
        .any(|passing| words.contains(passing))
}

/// What an image's words are while it can't be pulled, before Kubernetes only says that it will try
/// again.
pub(super) fn pull_problem(pod: &Pod) -> Option<String> {
    let waiting = program(pod)?.waiting.as_ref()?;
    let tried = waiting.reason.as_deref() == Some("ErrImagePull");
    waiting.message.clone().filter(|_| tried)
}

fn ended(state: Option<&ContainerState>) -> bool {
    state.is_some_and(|state| state.terminated.is_some())
}

fn condition<'pod>(pod: &'pod Pod, name: &str) -> Option<&'pod PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == name)
}

/// Since 1.26 a condition says why a pod had to go.
fn disrupted(condition: &PodCondition) -> ExitReason {
    let words = condition.message.clone().or_else(|| condition.reason.clone()).unwrap_or_default();
    match condition.reason.as_deref() {
        Some("PreemptionByScheduler") => ExitReason::Preempted(words),
        _ => ExitReason::Evicted(words),
    }
}

fn removed(reason: &str, message: &str) -> Option<ExitReason> {
    match reason {
        "Evicted" | "Shutdown" | "NodeShutdown" | "Terminated" | "NodeLost" => {
            Some(ExitReason::Evicted(message.to_string()))
        }
        "Preempting" => Some(ExitReason::Preempted(message.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, PodStatus,
    };

    use super::*;

    fn pod(status: PodStatus) -> Pod {
        Pod { status: Some(status), ..Default::default() }
    }

    fn ended_with(exit_code: i32, reason: &str) -> PodState {
        let terminated = ContainerStateTerminated {
            exit_code,
            reason: Some(reason.into()),
            ..Default::default()
        };
        let state = ContainerState { terminated: Some(terminated), ..Default::default() };
        let container = ContainerStatus { state: Some(state), ..Default::default() };
        pod_state(&pod(PodStatus {
            container_statuses: Some(vec![container]),
            ..Default::default()
        }))
    }

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(ended_with(0, "Completed"), PodState::Ended(ExitReason::Normal));
        assert_eq!(ended_with(3, "Error"), PodState::Ended(ExitReason::Code(3)));
        assert_eq!(ended_with(127, "Error"), PodState::Ended(ExitReason::Code(127)));
        assert_eq!(ended_with(143, "Error"), PodState::Ended(ExitReason::Signal(15)));
        assert_eq!(ended_with(137, "OOMKilled"), PodState::Ended(ExitReason::OutOfMemory));
    }

    fn terminated(name: &str, exit_code: i32) -> ContainerStatus {
        let terminated = ContainerStateTerminated { exit_code, ..Default::default() };
        let state = ContainerState { terminated: Some(terminated), ..Default::default() };
        ContainerStatus { name: name.into(), state: Some(state), ..Default::default() }
    }

    fn running(name: &str) -> ContainerStatus {
        let state = ContainerState { running: Some(Default::default()), ..Default::default() };
        ContainerStatus { name: name.into(), state: Some(state), ..Default::default() }
    }

    fn running_pod(containers: Vec<ContainerStatus>) -> PodState {
        let status = PodStatus {
            phase: Some("Running".into()),
            container_statuses: Some(containers),
            ..Default::default()
        };
        pod_state(&pod(status))
    }

    #[test]
    fn a_container_that_has_ended_counts_before_its_pods_phase() {
        assert_eq!(
            running_pod(vec![terminated(CONTAINER, 0)]),
            PodState::Ended(ExitReason::Normal)
        );
        assert_eq!(
            running_pod(vec![terminated(CONTAINER, 3)]),
            PodState::Ended(ExitReason::Code(3))
        );
    }

    #[test]
    fn containers_that_a_cluster_adds_say_nothing_of_the_program() {
        let containers = |added: ContainerStatus, own| running_pod(vec![added, own]);
        assert_eq!(
            containers(running("a-proxy"), terminated(CONTAINER, 0)),
            PodState::Ended(ExitReason::Normal)
        );
        assert_eq!(containers(terminated("a-proxy", 1), running(CONTAINER)), PodState::Running);
    }

    #[test]
    fn what_a_node_tries_again_is_no_end() {
        let waiting = |reason: &str, message: &str| {
            let waiting = ContainerStateWaiting {
                reason: Some(reason.into()),
                message: Some(message.into()),
            };
            let state = ContainerState { waiting: Some(waiting), ..Default::default() };
            let container = ContainerStatus { state: Some(state), ..Default::default() };
            pod_state(&pod(PodStatus {
                container_statuses: Some(vec![container]),
                ..Default::default()
            }))
        };
        let busy = "failed to sync secret cache: timed out waiting for the condition";
        assert!(matches!(
            waiting("CreateContainerConfigError", busy),
            PodState::Waiting(WaitReason::Image(_))
        ));
        assert!(matches!(
            waiting("CreateContainerConfigError", "secret \"x\" not found"),
            PodState::CannotStart(_)
        ));
    }

    #[test]
    fn evicted_preempted_and_refused_pods_are_told_from_others() {
        let failed = |reason: &str| {
            let text = |text: &str| Some(text.to_string());
            pod_state(&pod(PodStatus {
                phase: text("Failed"),
                reason: text(reason),
                message: text("words"),
                ..Default::default()
            }))
        };
        assert_eq!(failed("Evicted"), PodState::Ended(ExitReason::Evicted("words".into())));
        assert_eq!(failed("Preempting"), PodState::Ended(ExitReason::Preempted("words".into())));
        assert_eq!(
            failed("OutOfcpu"),
            PodState::Rejected("its node refused it: OutOfcpu: words".into())
        );
        let refused = "its node refused it: SysctlForbidden: words".to_string();
        assert_eq!(failed("SysctlForbidden"), PodState::Ended(ExitReason::NotStarted(refused)));
        let condition = PodCondition {
            type_: "DisruptionTarget".into(),
            status: "True".into(),
            reason: Some("PreemptionByScheduler".into()),
            message: Some("words".into()),
            ..Default::default()
        };
        let status = PodStatus {
            phase: Some("Failed".into()),
            conditions: Some(vec![condition]),
            ..Default::default()
        };
        assert_eq!(pod_state(&pod(status)), PodState::Ended(ExitReason::Preempted("words".into())));
    }
}

//! The state of a job, derived from its pod's status.

use fiber_core::ExitReason;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodCondition, PodStatus};

use super::names::CONTAINER;
use crate::{WaitReason, reason_of_code};

/// The problem of a deleted pod: its node may forget the container before it reports the exit
/// status.
pub(super) const DELETED: &str = "its pod was deleted";

/// The state of a job's pod. Messages are Kubernetes' own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    /// Kubernetes reports nothing yet.
    Starting,
    Waiting(WaitReason),
    /// It can't start because a claim that it mounts does not exist, or not yet.
    MissingClaim(String),
    /// It can't start any more.
    CannotStart(String),
    /// Its node rejected it, because the scheduler knew less than the node about its free
    /// resources. Another pod may fit.
    Rejected(String),
    Running,
    Ended(ExitReason),
}

/// Derives the state from a pod's status. The state of the program's container counts before the
/// phase of the whole pod: a node may report the end of a container long before it calls its pod
/// `Succeeded`, and other containers may keep the pod running.
pub(super) fn pod_state(pod: &Pod) -> PodState {
    let Some(status) = &pod.status else { return PodState::Starting };
    let state = program(pod);
    let message = status.message.clone().unwrap_or_default();
    let removal = || status.reason.as_deref().and_then(|reason| removal(reason, &message));
    if let Some(reason) = disruption(pod).or_else(removal)
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
            (code, _) => reason_of_code(code),
        });
    }
    if state.is_some_and(|state| state.running.is_some()) {
        return PodState::Running;
    }
    match status.phase.as_deref() {
        Some("Failed") if pod.metadata.deletion_timestamp.is_some() => {
            return PodState::Ended(ExitReason::LinkLost(DELETED.into()));
        }
        // Without a container: its node rejected it, or an init container has failed.
        Some("Failed") => {
            if let Some(problem) = failed_init_container(status) {
                return PodState::Ended(ExitReason::NotStarted(problem));
            }
            let reason = status.reason.as_deref().unwrap_or_default();
            let problem = format!("its node rejected it: {reason}: {message}");
            return if may_fit_later(reason) {
                PodState::Rejected(problem)
            } else {
                PodState::Ended(ExitReason::NotStarted(problem))
            };
        }
        Some("Succeeded") => return PodState::Ended(ExitReason::Normal),
        _ => {}
    }
    if let Some(condition) =
        condition(pod, "PodScheduled").filter(|condition| condition.status == "False")
    {
        let problem = condition.message.clone().unwrap_or_default();
        return match problem.contains("persistentvolumeclaim") && problem.contains("not found") {
            true => PodState::MissingClaim(problem),
            false => PodState::Waiting(WaitReason::Resources(problem)),
        };
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let unstarted = |node: &str| format!("node {node} has not started its container yet");
    let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) else {
        // A kubelet reports the containers of a pod as soon as it knows of it.
        return match node.filter(|_| state.is_none()) {
            Some(node) => PodState::Waiting(WaitReason::Node(unstarted(node))),
            None => PodState::Starting,
        };
    };
    let reason = waiting.reason.clone().unwrap_or_default();
    let is_usual = matches!(&*reason, "ContainerCreating" | "PodInitializing");
    let problem = match (waiting.message.as_deref().unwrap_or_default(), node) {
        ("", Some(node)) if is_usual => unstarted(node),
        ("", _) => reason.clone(),
        (message, _) => format!("{reason}: {message}"),
    };
    match &*reason {
        _ if is_transient(&problem) => PodState::Waiting(WaitReason::Image(problem)),
        "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "CrashLoopBackOff" => PodState::CannotStart(problem),
        _ => PodState::Waiting(WaitReason::Image(problem)),
    }
}

/// Returns the reason of a wait with the last event of its pod, which says more than the status.
/// Returns `None` for a pull without an event: an earlier one stays known.
pub(super) fn with_event(reason: &WaitReason, event: Option<String>) -> Option<WaitReason> {
    match (reason, event) {
        (WaitReason::Node(message), Some(event)) => {
            Some(WaitReason::Node(format!("{message}: {event}")))
        }
        (WaitReason::Node(_), None) => Some(reason.clone()),
        (WaitReason::Image(_), Some(event)) => Some(WaitReason::Image(event)),
        _ => None,
    }
}

/// Returns why the program of a pod has ended, if it has.
pub(super) fn exit_reason(pod: &Pod) -> Option<ExitReason> {
    match pod_state(pod) {
        PodState::Ended(reason) => Some(reason),
        _ => None,
    }
}

/// Returns the state of the program's container: the one of fiber's name, or the first. Container
/// statuses are ordered by name, and a cluster may add containers to each pod.
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

fn failed_init_container(status: &PodStatus) -> Option<String> {
    let failed = |one: &ContainerStatus| {
        let ended = one.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
        Some(format!(
            "its init container `{}` has failed with exit code {}",
            one.name, ended.exit_code
        ))
    };
    status.init_container_statuses.iter().flatten().find_map(failed)
}

/// Returns whether a node may admit a pod later that it rejects for this reason: the scheduler may
/// know less about a node's free resources and labels than the node itself.
fn may_fit_later(reason: &str) -> bool {
    let transient = ["UnexpectedAdmissionError", "TopologyAffinityError", "NodeAffinity"];
    reason.starts_with("OutOf") || transient.contains(&reason)
}

/// Returns whether this is a timeout on the node, which tries again.
fn is_transient(message: &str) -> bool {
    ["timed out waiting for the condition", "context deadline exceeded"]
        .iter()
        .any(|transient| message.contains(transient))
}

/// Returns the error of an image pull. Later, Kubernetes only reports that it will try again.
pub(super) fn pull_problem(pod: &Pod) -> Option<String> {
    let waiting = program(pod)?.waiting.as_ref()?;
    let tried = waiting.reason.as_deref() == Some("ErrImagePull");
    waiting.message.clone().filter(|_| tried)
}

/// Returns whether the pod's status shows that its program has run.
pub(super) fn has_run(pod: &Pod) -> bool {
    program(pod).is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

fn ended(state: Option<&ContainerState>) -> bool {
    state.is_some_and(|state| state.terminated.is_some())
}

fn condition<'pod>(pod: &'pod Pod, name: &str) -> Option<&'pod PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == name)
}

/// Returns the reason why the cluster ends a pod, from a condition that Kubernetes 1.26 and later
/// set.
pub(super) fn disruption(pod: &Pod) -> Option<ExitReason> {
    let condition = condition(pod, "DisruptionTarget").filter(|found| found.status == "True")?;
    let problem =
        condition.message.clone().or_else(|| condition.reason.clone()).unwrap_or_default();
    Some(match condition.reason.as_deref() {
        Some("PreemptionByScheduler") => ExitReason::Preempted(problem),
        _ => ExitReason::Evicted(problem),
    })
}

fn removal(reason: &str, message: &str) -> Option<ExitReason> {
    match reason {
        "Evicted" | "Shutdown" | "NodeShutdown" | "Terminated" | "NodeLost" => {
            Some(ExitReason::Evicted(message.to_string()))
        }
        "Preempting" => Some(ExitReason::Preempted(message.to_string())),
        _ => None,
    }
}

/// Returns the exit reason of a pod about whose end Kubernetes has no event. The kubelet of a pod
/// that somebody deletes sends SIGTERM, and SIGKILL later.
pub(super) fn without_reason(reason: ExitReason, pod: &Pod) -> ExitReason {
    match reason {
        ExitReason::Signal(9 | 15) | ExitReason::LinkLost(_)
            if pod.metadata.deletion_timestamp.is_some() =>
        {
            ExitReason::Terminated
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, PodSpec, PodStatus,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

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
    fn exit_codes_and_signals_are_distinguished() {
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
    fn a_terminated_container_counts_before_its_pods_phase() {
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
    fn sidecar_containers_do_not_count() {
        let containers = |added: ContainerStatus, own| running_pod(vec![added, own]);
        assert_eq!(
            containers(running("a-proxy"), terminated(CONTAINER, 0)),
            PodState::Ended(ExitReason::Normal)
        );
        assert_eq!(containers(terminated("a-proxy", 1), running(CONTAINER)), PodState::Running);
    }

    #[test]
    fn an_init_container_that_fails_is_named() {
        let state = pod_state(&pod(PodStatus {
            phase: Some("Failed".into()),
            init_container_statuses: Some(vec![terminated("first", 0), terminated("prepare", 2)]),
            ..Default::default()
        }));
        let problem = "its init container `prepare` has failed with exit code 2";
        assert_eq!(state, PodState::Ended(ExitReason::NotStarted(problem.into())));
    }

    fn waiting_pod(reason: &str, message: &str) -> Pod {
        let waiting = ContainerStateWaiting {
            reason: Some(reason.into()),
            message: (!message.is_empty()).then(|| message.to_string()),
        };
        let state = ContainerState { waiting: Some(waiting), ..Default::default() };
        let container = ContainerStatus { state: Some(state), ..Default::default() };
        pod(PodStatus { container_statuses: Some(vec![container]), ..Default::default() })
    }

    #[test]
    fn a_node_that_has_not_started_the_container_is_named() {
        let on_a_node = |mut pod: Pod| {
            pod.spec = Some(PodSpec { node_name: Some("vm".into()), ..Default::default() });
            pod_state(&pod)
        };
        let pending = || pod(PodStatus { phase: Some("Pending".into()), ..Default::default() });
        assert_eq!(pod_state(&pending()), PodState::Starting);
        let why = "node vm has not started its container yet";
        let silent = WaitReason::Node(why.into());
        assert_eq!(on_a_node(pending()), PodState::Waiting(silent.clone()));
        // From its first report on, the time limit of pulls counts.
        let creating = WaitReason::Image(why.into());
        for reason in ["ContainerCreating", "PodInitializing"] {
            let state = on_a_node(waiting_pod(reason, ""));
            assert_eq!(state, PodState::Waiting(creating.clone()));
        }

        let not_ready = || Some("Node is not ready".to_string());
        let said = with_event(&silent, not_ready()).expect("it says more");
        assert_eq!(said, WaitReason::Node(format!("{why}: Node is not ready")));
        assert_eq!(with_event(&silent, None), Some(silent));
        let pulls = WaitReason::Image("Pulling image \"x\"".into());
        assert_eq!(with_event(&creating, Some(pulls.message().into())), Some(pulls));
        assert_eq!(with_event(&creating, None), None);
    }

    #[test]
    fn a_timeout_on_the_node_is_no_end() {
        let waiting = |reason: &str, message: &str| pod_state(&waiting_pod(reason, message));
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
    fn evicted_preempted_and_rejected_pods_are_distinguished() {
        let failed = |reason: &str| {
            let text = |text: &str| Some(text.to_string());
            pod_state(&pod(PodStatus {
                phase: text("Failed"),
                reason: text(reason),
                message: text("text"),
                ..Default::default()
            }))
        };
        assert!(!has_run(&pod(PodStatus { phase: Some("Failed".into()), ..Default::default() })));
        assert_eq!(failed("Evicted"), PodState::Ended(ExitReason::Evicted("text".into())));
        assert_eq!(failed("Preempting"), PodState::Ended(ExitReason::Preempted("text".into())));
        assert_eq!(
            failed("OutOfcpu"),
            PodState::Rejected("its node rejected it: OutOfcpu: text".into())
        );
        let rejected = "its node rejected it: SysctlForbidden: text".to_string();
        assert_eq!(failed("SysctlForbidden"), PodState::Ended(ExitReason::NotStarted(rejected)));
        let condition = PodCondition {
            type_: "DisruptionTarget".into(),
            status: "True".into(),
            reason: Some("PreemptionByScheduler".into()),
            message: Some("text".into()),
            ..Default::default()
        };
        let status = PodStatus {
            phase: Some("Failed".into()),
            conditions: Some(vec![condition]),
            ..Default::default()
        };
        assert_eq!(pod_state(&pod(status)), PodState::Ended(ExitReason::Preempted("text".into())));
    }

    #[test]
    fn a_pod_that_somebody_deletes_was_asked_to_end() {
        let mut pod = Pod::default();
        let killed = || ExitReason::Signal(9);
        assert_eq!(without_reason(killed(), &pod), killed(), "nobody deletes it");
        pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(without_reason(killed(), &pod), ExitReason::Terminated);
        let lost = ExitReason::LinkLost(DELETED.into());
        assert_eq!(without_reason(lost, &pod), ExitReason::Terminated);
        assert_eq!(without_reason(ExitReason::Signal(11), &pod), ExitReason::Signal(11));
    }
}

//! The names, labels and annotations of pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::owner::JobOwner;
use crate::program_name;

/// The label with the session's id.
pub(crate) const SESSION: &str = "fiber.session";
/// The annotation with the process that created a pod.
pub(crate) const OWNER: &str = "fiber.owner";
/// The annotation with the job's name.
pub(crate) const NAME: &str = "fiber.name";
/// The annotation with the number of the job's earlier restarts.
pub(crate) const RESTARTS: &str = "fiber.restarts";

/// The name of the program's container in its pod.
pub(crate) const CONTAINER: &str = "fiber";
/// The resource name of GPUs.
pub(crate) const GPU: &str = "nvidia.com/gpu";

/// The maximal length of a label's value, and of a host name.
const LONGEST: usize = 63;

/// Returns the container with the program: the one of fiber's name, or the first.
pub(super) fn program_container(spec: &PodSpec) -> Option<&Container> {
    spec.containers.iter().find(|one| one.name == CONTAINER).or(spec.containers.first())
}

/// Returns Kubernetes' recommended labels, and the session's.
pub(crate) fn labels(session: &str, program: &str, component: &str) -> BTreeMap<String, String> {
    let label = |key: &str, value: String| (key.to_string(), value);
    BTreeMap::from([
        label("app.kubernetes.io/name", label_value(program)),
        label("app.kubernetes.io/instance", label_value(&format!("fiber-{session}"))),
        label("app.kubernetes.io/component", label_value(component)),
        label("app.kubernetes.io/part-of", label_value(program)),
        label("app.kubernetes.io/managed-by", "fiber".into()),
        label(SESSION, label_value(session)),
    ])
}

pub(super) fn annotations(owner: &JobOwner, name: &str, restarts: u64) -> BTreeMap<String, String> {
    let annotations =
        [(OWNER, owner.to_text()), (NAME, name.to_string()), (RESTARTS, restarts.to_string())];
    annotations.map(|(key, value)| (key.to_string(), value)).into()
}

/// Returns a readable, valid pod name.
pub(super) fn pod_name(session: &str, number: u64, job: &str) -> String {
    let job: String = job
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let mut name = format!("fiber-{session}-{number}-{job}");
    name.truncate(LONGEST);
    name.trim_end_matches('-').to_string()
}

/// Returns the file name of this program.
pub(super) fn program() -> String {
    program_name(&fiber_core::executable_name().unwrap_or_default())
}

/// Replaces characters that a label's value may not have.
fn label_value(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let mut value: String = text.chars().map(plain).collect();
    value.truncate(LONGEST);
    value.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_names_are_valid() {
        assert_eq!(pod_name("0a1b", 3, "Pool 1/worker ä"), "fiber-0a1b-3-pool-1-worker");
        assert_eq!(pod_name("0a1b", 3, ""), "fiber-0a1b-3");
        assert_eq!(pod_name("0a1b", 3, &"long".repeat(100)).len(), LONGEST);
    }

    #[test]
    fn label_values_are_valid() {
        assert_eq!(label_value("_my program (1)"), "my-program--1");
        assert_eq!(label_value(&"x".repeat(100)).len(), LONGEST);
        assert_eq!(label_value("ä"), "");
    }
}

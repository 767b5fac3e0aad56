//! The user's manifest of a pod, from which all pods of a program start: sidecars, affinities and
//! other parts that no option names.

use std::fs;
use std::path::Path;

use fiber_core::ConfigProblem;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde_json::Value;
use serde_saphyr::from_str_with_options;

use super::names::CONTAINER;

/// The annotation that hands the manifest on to a pod that starts pods itself: it lacks the file.
pub(super) const ANNOTATION: &str = "fiber.pod-template";

/// Reads a manifest in YAML or JSON.
///
/// # Errors
/// The file can't be read, is not a `Pod`, has a field that pods don't have, or a container that
/// nothing can run.
pub(super) fn read(path: &Path) -> Result<Pod, ConfigProblem> {
    let problem =
        |problem: String| ConfigProblem::value("kubernetes.pod_template", path.display(), problem);
    let text = fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
    parse(&text).map_err(problem)
}

/// Takes the program's container out of the manifest's others.
pub(super) fn take_container(spec: &mut PodSpec) -> Option<Container> {
    let index = spec.containers.iter().position(|container| container.name == CONTAINER)?;
    Some(spec.containers.remove(index))
}

fn parse(text: &str) -> Result<Pod, String> {
    // Without lines of the manifest in errors: they may hold secrets. With modes as in `0400`.
    let options = || serde_saphyr::options! { with_snippet: false, legacy_octal_numbers: true };
    let wrong = |error: serde_saphyr::Error| error.to_string();
    let given: Value = from_str_with_options(text, options()).map_err(wrong)?;
    let pod: Pod = from_str_with_options(text, options()).map_err(wrong)?;
    let known = serde_json::to_value(&pod).map_err(|error| error.to_string())?;
    if let Some(field) = unknown_field(&given, &known) {
        return Err(format!("a Pod has no field `{field}`"));
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    for container in containers.filter(|container| container.name != CONTAINER) {
        if container.image.is_none() {
            return Err(format!(
                "the container `{}` has no image; the program's container is called `{CONTAINER}`",
                container.name
            ));
        }
    }
    Ok(pod)
}

/// Returns the path of the first field of `given` that is missing in `known`, which was made of it.
fn unknown_field(given: &Value, known: &Value) -> Option<String> {
    let below = |step: String, given: &Value, known: Option<&Value>| match known {
        _ if given.is_null() => None,
        None => Some(step),
        Some(known) => unknown_field(given, known).map(|rest| match rest.starts_with('[') {
            true => step + &rest,
            false => step + "." + &rest,
        }),
    };
    match given {
        Value::Object(fields) => {
            fields.iter().find_map(|(name, field)| below(name.clone(), field, known.get(name)))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| below(format!("[{index}]"), item, known.get(index))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn manifests_are_yaml_or_json() {
        let yaml = "\
apiVersion: v1
kind: Pod
metadata: {creationTimestamp: null, labels: {team: a}}
spec:
  containers:
  - {name: fiber, resources: {limits: {cpu: 2, memory: 1Gi}}}
  - {name: proxy, image: 'proxy:1', ports: [{containerPort: 80}]}
  volumes: [{name: keys, secret: {secretName: keys, defaultMode: 0400}}]
status: {}
";
        let pod = parse(yaml).unwrap();
        let spec = pod.spec.as_ref().unwrap();
        let limits = spec.containers[0].resources.as_ref().unwrap().limits.as_ref().unwrap();
        assert_eq!((limits["cpu"].0.as_str(), limits["memory"].0.as_str()), ("2", "1Gi"));
        let keys = spec.volumes.as_ref().unwrap()[0].secret.as_ref().unwrap();
        assert_eq!(keys.default_mode, Some(0o400));
        assert_eq!(parse(&serde_json::to_string(&pod).unwrap()).unwrap(), pod);
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let field = problem("spec: {containers: [{name: fiber, securitycontext: {}}]}");
        assert_eq!(field, "a Pod has no field `spec.containers[0].securitycontext`");
        let kind = problem("apiVersion: apps/v1\nkind: Deployment\nspec: {}");
        assert!(kind.contains("apps/v1"), "{kind}");
        let image = problem("spec: {containers: [{name: main}]}");
        assert!(image.starts_with("the container `main` has no image"), "{image}");
        let value = problem("spec:\n  containers: []\n  hostNetwork: perhaps");
        assert!(value.contains("line 3") && !value.contains('\n'), "{value}");
        assert!(problem("spec: [").contains("line"));
    }
}

//! Messages about pods that can't start.

use fiber_core::{Meta, gpus_in_words};
use k8s_openapi::api::core::v1::Pod;

/// Returns the message with a remedy if the node can't get the image of a pod with these pull
/// secrets. `pull` is the message of the last attempt to pull it.
pub(super) fn of_image(
    image: &str,
    secrets: &[String],
    message: &str,
    pull: Option<&str>,
) -> Option<String> {
    let reason = message.split(':').next().unwrap_or_default();
    ["ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"].contains(&reason).then(|| {
        let credentials = match secrets {
            [] => "name the Secret with the credentials in `kubernetes.pull_secrets`".to_string(),
            [one] => format!("check that the Secret `{one}` exists and has the credentials"),
            many => {
                let names = many.join("`, `");
                format!("check that the Secrets `{names}` exist and have the credentials")
            }
        };
        format!(
            "its node can't get the image `{image}`: {}. Push it to a registry that the nodes can \
             pull from (fiber does so if `registry`, or FIBER_REGISTRY, is set), {credentials}, or \
             correct `image`",
            pull.unwrap_or(message)
        )
    })
}

/// Returns the names of the Secrets with which a pod's image is pulled.
pub(super) fn pull_secrets(pod: &Pod) -> Vec<String> {
    let secrets = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    secrets.map(|secret| secret.name.clone()).collect()
}

/// Formats the requested resources and their remedy as an appendix to a message; empty if there are
/// none.
pub(super) fn requested(meta: &Meta, remedy: &str) -> String {
    let cpu = meta.cpu.map(|cores| format!("{cores} CPU cores"));
    let memory = meta.memory.map(|size| format!("{size} of memory"));
    let gpu = meta.gpu.map(gpus_in_words);
    let all: Vec<String> = [cpu, memory, gpu].into_iter().flatten().collect();
    if all.is_empty() {
        String::new()
    } else {
        format!(" (it asks for {}{remedy})", all.join(", "))
    }
}

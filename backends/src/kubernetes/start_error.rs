//! Messages about pods that can't start.

use fiber_core::Meta;

/// Returns the message with a remedy if the node can't get the pod's image. `pull` is the message
/// of the last attempt to pull it.
pub(super) fn of_image(image: &str, message: &str, pull: Option<&str>) -> Option<String> {
    let reason = message.split(':').next().unwrap_or_default();
    ["ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"].contains(&reason).then(|| {
        format!(
            "its node can't get the image `{image}`: {}. Push it to a registry that the nodes can \
             pull from (fiber does so if `registry`, or FIBER_REGISTRY, is set), name the Secret \
             with the credentials in `kubernetes.pull_secrets`, or correct `image`",
            pull.unwrap_or(message)
        )
    })
}

/// Formats the requested resources and their remedy as an appendix to a message; empty if there are
/// none.
pub(super) fn requested(meta: &Meta, remedy: &str) -> String {
    let cpu = meta.cpu.map(|cores| format!("{cores} CPU cores"));
    let memory = meta.memory.map(|size| format!("{size} of memory"));
    let gpu = meta.gpu.map(|count| format!("{count} GPUs"));
    let all: Vec<String> = [cpu, memory, gpu].into_iter().flatten().collect();
    if all.is_empty() {
        String::new()
    } else {
        format!(" (it asks for {}{remedy})", all.join(", "))
    }
}

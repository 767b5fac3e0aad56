//! The way to the inspector of a head in a pod.

use fiber_core::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::AttachParams;

use super::api_server::{ApiServer, is_forbidden, is_missing};
use crate::cluster::bridge::{Greeting, NO_BRIDGE, commands, failed, greeting};
use crate::cluster::session::ByteStream;

/// Connects to the inspector of the head in a pod.
pub(super) async fn connect(server: &ApiServer, name: &str) -> Result<Box<dyn ByteStream>> {
    let pod = match server.api::<Pod>().get(name).await {
        Ok(pod) => pod,
        Err(error) => return failed(name, server.explain(&error)),
    };
    let container = pod.spec.and_then(|spec| spec.containers.into_iter().next());
    let Some(container) = container else { return failed(name, "its pod has no container") };
    let words = container.command.iter().chain(&container.args).flatten();
    for command in commands(words.map(String::as_str)) {
        let parameters =
            AttachParams::default().container(&container.name).stdin(true).stderr(false);
        let asked = server.streams::<Pod>().exec(name, command, &parameters).await;
        let mut process = match asked {
            Ok(process) => process,
            Err(error) if is_forbidden(&error) || is_missing(&error) => {
                return failed(name, server.explain(&error));
            }
            Err(kube::Error::Api(status)) if status.code < 500 => {
                return failed(name, status.message);
            }
            // The runtime of the node may answer so if there is no such program.
            Err(kube::Error::Api(_)) => continue,
            Err(error) => return failed(name, server.explain(&error)),
        };
        let (Some(stdout), Some(stdin)) = (process.stdout(), process.stdin()) else { continue };
        let mut stream = Box::new(tokio::io::join(stdout, stdin));
        match greeting(&mut stream).await {
            Greeting::Ready => return Ok(stream),
            Greeting::Failed(problem) => return failed(name, problem),
            Greeting::Other => {}
        }
    }
    failed(name, NO_BRIDGE)
}

//! The way to the inspector of a head in a pod.

use fiber_core::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::AttachParams;
use tokio_util::io::InspectReader;

use super::api_server::{ApiServer, is_forbidden, is_missing};
use super::names::program_container;
use super::restarted;
use crate::cluster::bridge::{Greeting, NO_BRIDGE, commands, failed, greeting};
use crate::cluster::session::ByteStream;

/// Connects to the inspector of the head in a pod.
pub(super) async fn connect(server: &ApiServer, name: &str) -> Result<Box<dyn ByteStream>> {
    let found = async {
        let current = restarted::current(server, name).await?;
        let pod = server.api::<Pod>().get(&current).await?;
        Ok((current, pod))
    };
    let (current, pod) = match found.await {
        Ok(found) => found,
        Err(error) => return failed(name, server.explain(&error)),
    };
    let Some(container) = pod.spec.as_ref().and_then(program_container) else {
        return failed(name, "its pod has no container");
    };
    let words = container.command.iter().chain(&container.args).flatten();
    for command in commands(words.map(String::as_str)) {
        let parameters =
            AttachParams::default().container(&container.name).stdin(true).stderr(false);
        let asked = server.streams::<Pod>().exec(&current, command, &parameters).await;
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
        let mut stream = tokio::io::join(stdout, stdin);
        match greeting(&mut stream).await {
            Greeting::Ready => {
                let (stdout, stdin) = stream.into_inner();
                // Dropping the process would end its streams.
                let stdout = InspectReader::new(stdout, move |_| {
                    let _ = &process;
                });
                return Ok(Box::new(tokio::io::join(stdout, stdin)));
            }
            Greeting::Failed(problem) => return failed(name, problem),
            Greeting::Other => {}
        }
    }
    failed(name, NO_BRIDGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::api_server::test_server;

    const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"fiber-1"},
        "spec":{"containers":[{"name":"main","command":["/program"]}]}}"#;
    const FORBIDDEN: &str = r#"{"apiVersion":"v1","kind":"Status","status":"Failure","code":403,
        "reason":"Forbidden","message":"pods \"fiber-1\" is forbidden: User \"anna\" cannot create
 resource \"pods/exec\" in API group \"\" in the namespace \"default\""}"#;

    /// Answers like an API server that lets its user read pods, and run nothing in them.
    fn reads_only(request: &str) -> (u16, String) {
        match request.contains("/exec") {
            true => (403, FORBIDDEN.replace('\n', " ")),
            false => (200, POD.to_string()),
        }
    }

    #[tokio::test]
    async fn a_missing_right_to_run_commands_in_pods_is_named() {
        let server = test_server::start(reads_only).await;
        let refused = connect(&server, "fiber-1").await;
        let Err(problem) = refused else { panic!("it is forbidden") };
        let problem = problem.to_string();
        for words in ["cannot create", "pods/exec", "deploy/kubernetes/rbac.yaml"] {
            assert!(problem.contains(words), "`{words}` is missing in: {problem}");
        }
    }
}

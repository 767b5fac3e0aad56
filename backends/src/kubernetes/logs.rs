//! Logs of pods. Kubernetes keeps them, with standard output and error together, and sends them
//! from the beginning to each reader, as long as the pod exists.

use std::time::Duration;

use bytes::Bytes;
use futures_util::io::{AsyncBufRead, AsyncBufReadExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::api_server::{ApiServer, is_missing, is_transient};
use super::names::CONTAINER;
use super::status::{PodState, pod_state};
use crate::output::{LineForwarder, OutputTarget, Tail};

/// The pause before a stream that ended is requested again.
const PAUSE: Duration = Duration::from_millis(500);
/// The node's message in place of a log whose container is gone.
const NO_LOG: &[u8] = b"unable to retrieve container logs for ";
/// The number of lines to read when only the last ones are needed.
const LAST: i64 = 20;

/// Selects the program's container, not others that a cluster may have added to the pod.
fn of_program() -> LogParams {
    LogParams { container: Some(CONTAINER.into()), ..Default::default() }
}

/// Forwards a pod's log until `ended` is `true` and the log is complete. Resumes a broken stream
/// where it broke. A node may report a container's end before it has written the end of its log, so
/// the log counts as complete when another read after that end brings nothing new.
pub(super) async fn follow(
    pods: Api<Pod>,
    pod: String,
    target: OutputTarget,
    tail: Tail,
    mut ended: watch::Receiver<bool>,
) {
    let mut forwarder = LineForwarder::new(target, tail);
    let mut passed = 0;
    let parameters = LogParams { follow: true, ..of_program() };
    loop {
        let was_ended = *ended.borrow_and_update();
        let passed_before = passed;
        let whole = match pods.log_stream(&pod, &parameters).await {
            Ok(stream) => pass(stream, &mut forwarder, &mut passed).await,
            Err(error) => {
                tracing::debug!("the log of {pod} can't be read for now: {error}");
                false
            }
        };
        if whole && was_ended && passed == passed_before {
            break;
        }
        let _ = timeout(PAUSE, ended.wait_for(|ended| *ended && !was_ended)).await;
    }
    forwarder.finish().await;
}

/// Forwards a stream except for its first `passed` bytes, which were forwarded before. Returns
/// whether it came to its end.
async fn pass(
    stream: impl AsyncBufRead,
    forwarder: &mut LineForwarder,
    passed: &mut usize,
) -> bool {
    let mut stream = std::pin::pin!(stream);
    let mut known = *passed;
    loop {
        let chunk = match stream.fill_buf().await {
            Ok([]) => return true,
            Ok(chunk) if known == *passed && chunk.starts_with(NO_LOG) => return true,
            Ok(chunk) => chunk,
            Err(error) => {
                tracing::debug!("a log stream broke: {error}");
                return false;
            }
        };
        let length = chunk.len();
        let old = known.min(length);
        forwarder.push(&chunk[old..]).await;
        known -= old;
        *passed += length - old;
        stream.as_mut().consume(length);
    }
}

/// Reads the last lines of a pod's log.
pub(super) async fn take_last(pods: &Api<Pod>, pod: &str, tail: &Tail) {
    let parameters = LogParams { tail_lines: Some(LAST), ..of_program() };
    match pods.logs(pod, &parameters).await {
        Ok(text) if text.as_bytes().starts_with(NO_LOG) => {}
        Ok(text) => tail.add(text.as_bytes()),
        Err(error) => tracing::debug!("the last lines of {pod} can't be read: {error}"),
    }
}

/// Sends a pod's log, with `follow` until the pod has ended. Resumes a broken stream where it
/// broke, except with `tail`, because it is unknown where those lines began.
///
/// # Errors
/// The API server's error.
pub(super) async fn read(
    server: &ApiServer,
    name: &str,
    follow: bool,
    tail: Option<u64>,
    chunks: &mpsc::Sender<fiber_core::Result<Bytes>>,
) -> Result<(), kube::Error> {
    let (pods, streams) = (server.api::<Pod>(), server.streams::<Pod>());
    let parameters = LogParams {
        follow,
        tail_lines: tail.map(|lines| i64::try_from(lines).unwrap_or(i64::MAX)),
        ..of_program()
    };
    let mut passed = 0;
    loop {
        let ended = match pods.get_opt(name).await {
            Ok(pod) => pod.is_none_or(|pod| matches!(pod_state(&pod), PodState::Ended(_))),
            Err(error) if is_transient(&error) => false,
            Err(error) => return Err(error),
        };
        let mut whole = true;
        match streams.log_stream(name, &parameters).await {
            Ok(stream) => {
                let mut stream = std::pin::pin!(stream);
                let mut known = passed;
                loop {
                    let chunk = match stream.fill_buf().await {
                        Ok([]) => break,
                        Ok(chunk) => chunk,
                        Err(error) => {
                            tracing::debug!("a log stream broke: {error}");
                            whole = false;
                            break;
                        }
                    };
                    let length = chunk.len();
                    let old = known.min(length);
                    let new = Bytes::copy_from_slice(&chunk[old..]);
                    known -= old;
                    passed += length - old;
                    stream.as_mut().consume(length);
                    if !new.is_empty() && chunks.send(Ok(new)).await.is_err() {
                        return Ok(());
                    }
                }
            }
            // The pod was removed meanwhile, which is its end.
            Err(error) if is_missing(&error) && (passed > 0 || follow) => return Ok(()),
            Err(error) if follow && is_transient(&error) => whole = false,
            Err(error) => return Err(error),
        }
        if whole && (ended || !follow || tail.is_some()) {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

//! What a pod prints. Kubernetes keeps it, standard output and error together, and tells it from
//! the beginning to whoever asks, as long as there is a pod.

use std::time::Duration;

use bytes::Bytes;
use futures_util::io::{AsyncBufRead, AsyncBufReadExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::api_server::{ApiServer, is_missing, is_passing};
use super::names::CONTAINER;
use super::status::{PodState, pod_state};
use crate::output::{LineForwarder, OutputTarget, Tail};

/// How long to wait before a stream that ended is asked for again.
const PAUSE: Duration = Duration::from_millis(500);
/// What a node says in the place of a log when the container is gone already.
const NO_LOG: &[u8] = b"unable to retrieve container logs for ";
/// Lines that are asked for when only the last ones are wanted.
const LAST: i64 = 20;

/// What the program prints, and no other container that a cluster may have added to its pod.
fn of_program() -> LogParams {
    LogParams { container: Some(CONTAINER.into()), ..Default::default() }
}

/// Passes on what a pod prints, until `ended` says that it prints no more and all of it came. A
/// stream that breaks is taken up where it was. A node may report a container's end before it has
/// written the end of its log, so the log counts as whole when it is read once more after that and
/// has nothing new.
pub(super) async fn follow(
    pods: Api<Pod>,
    pod: String,
    target: OutputTarget,
    tail: Tail,
    mut ended: watch::Receiver<bool>,
) {
    let mut pump = LineForwarder::new(target, tail);
    let mut passed = 0;
    let parameters = LogParams { follow: true, ..of_program() };
    loop {
        let was_ended = *ended.borrow_and_update();
        let passed_before = passed;
        let whole = match pods.log_stream(&pod, &parameters).await {
            Ok(stream) => pass(stream, &mut pump, &mut passed).await,
            Err(error) => {
                tracing::debug!("what {pod} prints can't be read for now: {error}");
                false
            }
        };
        if whole && was_ended && passed == passed_before {
            break;
        }
        let _ = timeout(PAUSE, ended.wait_for(|ended| *ended && !was_ended)).await;
    }
    pump.end().await;
}

/// Whether the stream came to its end. What was passed before is left out.
async fn pass(stream: impl AsyncBufRead, pump: &mut LineForwarder, passed: &mut usize) -> bool {
    let mut stream = std::pin::pin!(stream);
    let mut known = *passed;
    loop {
        let part = match stream.fill_buf().await {
            Ok([]) => return true,
            Ok(part) if known == *passed && part.starts_with(NO_LOG) => return true,
            Ok(part) => part,
            Err(error) => {
                tracing::debug!("a stream of output broke: {error}");
                return false;
            }
        };
        let length = part.len();
        let old = known.min(length);
        pump.take(&part[old..]).await;
        known -= old;
        *passed += length - old;
        stream.as_mut().consume(length);
    }
}

/// Takes the last lines that a pod printed.
pub(super) async fn take_last(pods: &Api<Pod>, pod: &str, tail: &Tail) {
    let parameters = LogParams { tail_lines: Some(LAST), ..of_program() };
    match pods.logs(pod, &parameters).await {
        Ok(text) if text.as_bytes().starts_with(NO_LOG) => {}
        Ok(text) => tail.add(text.as_bytes()),
        Err(error) => tracing::debug!("what {pod} printed last can't be read: {error}"),
    }
}

/// Sends on what a pod has printed, with `follow` until it has ended. A stream that breaks is taken
/// up where it was; not if only the last lines are wanted, of which it is not known where they
/// began.
///
/// # Errors
/// What the API server refuses.
pub(super) async fn read(
    server: &ApiServer,
    name: &str,
    follow: bool,
    tail: Option<u64>,
    parts: &mpsc::Sender<fiber_core::Result<Bytes>>,
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
            Err(error) if is_passing(&error) => false,
            Err(error) => return Err(error),
        };
        let mut whole = true;
        match streams.log_stream(name, &parameters).await {
            Ok(stream) => {
                let mut stream = std::pin::pin!(stream);
                let mut known = passed;
                loop {
                    let part = match stream.fill_buf().await {
                        Ok([]) => break,
                        Ok(part) => part,
                        Err(error) => {
                            tracing::debug!("a stream of output broke: {error}");
                            whole = false;
                            break;
                        }
                    };
                    let length = part.len();
                    let old = known.min(length);
                    let new = Bytes::copy_from_slice(&part[old..]);
                    known -= old;
                    passed += length - old;
                    stream.as_mut().consume(length);
                    if !new.is_empty() && parts.send(Ok(new)).await.is_err() {
                        return Ok(());
                    }
                }
            }
            // Removed meanwhile, which is its end.
            Err(error) if is_missing(&error) && (passed > 0 || follow) => return Ok(()),
            Err(error) if follow && is_passing(&error) => whole = false,
            Err(error) => return Err(error),
        }
        if whole && (ended || !follow || tail.is_some()) {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

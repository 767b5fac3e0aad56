//! Logs of pods. Kubernetes keeps them, with standard output and error together, and sends them
//! from the beginning to each reader, as long as the pod exists.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::io::{AsyncBufRead, AsyncBufReadExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::api_server::{ApiServer, is_missing, is_transient};
use super::kept::KeptPod;
use super::names::CONTAINER;
use super::restarted;
use super::status::{exit_reason, has_run};
use crate::output::{LineForwarder, OutputTarget, Tail};

/// The pause before a stream that ended is requested again.
const PAUSE: Duration = Duration::from_millis(500);
/// Time limit for the API server to learn that a container runs. Its node reports that a moment
/// after the process has begun.
const START: Duration = Duration::from_secs(10);
/// After this time without output, a reader checks whether the pod still exists.
const SILENCE: Duration = Duration::from_secs(2);
/// The beginning of the node's message in place of a log whose container is gone.
const NO_LOG: &[u8] = b"unable to retrieve container logs for ";
/// The beginnings of the node's messages at the end of a stream, without a line break, if the
/// container is removed while its log is read. Before the log begins, they are all of the stream.
const REMOVED: [&[u8]; 3] = [
    b"rpc error: code = ",
    b"failed to try resolving symlinks in path \"/var/log/pods/",
    b"failed to open log file \"/var/log/pods/",
];
/// The number of lines to read when only the last ones are needed.
const LAST: i64 = 20;

/// Selects the program's container, not others that a cluster may have added to the pod.
fn of_program() -> LogParams {
    LogParams { container: Some(CONTAINER.into()), ..Default::default() }
}

/// Forwards a pod's log until `ended` is `true` and the log is complete. Resumes a broken stream
/// where it broke. A node may report a container's end before it has written the end of its log, so
/// the log counts as complete when another read after that end brings nothing new. Each answer of
/// the node changes `news`.
pub(super) async fn follow(
    pods: Api<Pod>,
    pod: String,
    target: OutputTarget,
    tail: Tail,
    mut ended: watch::Receiver<bool>,
    news: watch::Sender<()>,
) {
    let mut forwarder = LineForwarder::new(target, tail);
    let mut passed = 0;
    let parameters = LogParams { follow: true, ..of_program() };
    loop {
        let was_ended = *ended.borrow_and_update();
        let passed_before = passed;
        let whole = match pods.log_stream(&pod, &parameters).await {
            Ok(stream) => {
                let push = async |chunk: &[u8]| {
                    forwarder.push(chunk).await;
                    news.send_replace(());
                    true
                };
                let over = async || false;
                let end = read_stream(stream, &mut passed, push, over).await;
                news.send_replace(());
                end == StreamEnd::Complete
            }
            // The pod is gone, with its log.
            Err(error) if is_missing(&error) && was_ended => break,
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

/// The end of one stream of a log.
#[derive(Debug, PartialEq, Eq)]
enum StreamEnd {
    Complete,
    Broken,
    ReaderGone,
}

/// Reads a stream, which begins at the log's beginning, and passes on all but its first `passed`
/// bytes, which an earlier stream has brought. `take` returns `false` if the reader is gone, and
/// `over` returns `true` if a silent stream has nothing more to bring.
async fn read_stream(
    stream: impl AsyncBufRead,
    passed: &mut usize,
    mut take: impl AsyncFnMut(&[u8]) -> bool,
    over: impl AsyncFn() -> bool,
) -> StreamEnd {
    let mut stream = pin!(stream);
    let mut known = *passed;
    // The end of the last chunk, which is the node's message if no other chunk follows.
    let mut message = Vec::new();
    loop {
        let Ok(filled) = timeout(SILENCE, stream.fill_buf()).await else {
            if over().await {
                return StreamEnd::Complete;
            }
            continue;
        };
        let chunk = match filled {
            Ok([]) => return StreamEnd::Complete,
            Ok(chunk) if known == *passed && chunk.starts_with(NO_LOG) => {
                return StreamEnd::Complete;
            }
            Ok(chunk) => chunk,
            Err(error) => {
                tracing::debug!("a log stream broke: {error}");
                return StreamEnd::Broken;
            }
        };
        let length = chunk.len();
        let text = [&message[..], chunk].concat();
        let output = &text[..text.len() - message_len(&text)];
        let old = known.min(output.len());
        if old < output.len() && !take(&output[old..]).await {
            return StreamEnd::ReaderGone;
        }
        known -= old;
        *passed += output.len() - old;
        message = text[output.len()..].to_vec();
        stream.as_mut().consume(length);
    }
}

/// Returns the length of what may be the node's message at the end of a text.
fn message_len(text: &[u8]) -> usize {
    let last_line = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let line = &text[last_line..];
    if REMOVED.iter().any(|beginning| line.starts_with(beginning)) { line.len() } else { 0 }
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
    let begun = Instant::now();
    loop {
        let ended = match pods.get_opt(name).await {
            Ok(pod) => pod.is_none_or(|pod| exit_reason(&pod).is_some()),
            Err(error) if is_transient(&error) => false,
            Err(error) => return Err(error),
        };
        let (mut whole, passed_before) = (true, passed);
        // A node may leave a request for the log of a pod open that was deleted.
        let over = async || pods.get_opt(name).await.is_ok_and(|pod| pod.is_none());
        let mut request = pin!(streams.log_stream(name, &parameters));
        let opened = loop {
            match timeout(SILENCE, &mut request).await {
                Ok(opened) => break opened,
                Err(_) if over().await => return Ok(()),
                Err(_) => {}
            }
        };
        match opened {
            Ok(stream) => {
                let send = async |chunk: &[u8]| {
                    chunks.send(Ok(Bytes::copy_from_slice(chunk))).await.is_ok()
                };
                match read_stream(stream, &mut passed, send, over).await {
                    StreamEnd::Complete => {}
                    StreamEnd::Broken => whole = false,
                    StreamEnd::ReaderGone => return Ok(()),
                }
            }
            // The pod was removed meanwhile, which is its end.
            Err(error) if is_missing(&error) && (passed > 0 || follow) => return Ok(()),
            Err(error) if follow && is_transient(&error) => whole = false,
            Err(error) if is_starting(&error) && (follow || begun.elapsed() < START) => {
                whole = false;
            }
            Err(error) => return Err(error),
        }
        // As in `follow`. Where the last lines began is unknown.
        if whole && (!follow || tail.is_some() || ended && passed == passed_before) {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns whether an error says that the API server knows of no start of the container yet, and
/// that nothing stands in its way.
fn is_starting(error: &kube::Error) -> bool {
    let states = ["ContainerCreating", "PodInitializing"];
    let kube::Error::Api(status) = error else { return false };
    let reason = status.message.rsplit_once("is waiting to start: ").map(|(_, reason)| reason);
    status.code == 400 && reason.is_some_and(|reason| states.contains(&reason))
}

/// Sends the output of a head or worker. That of a head which was started again is the output of
/// its pods, one after the other; with `tail` it begins with the last of them.
///
/// # Errors
/// The API server's error.
pub(super) async fn read_head(
    server: &ApiServer,
    name: &str,
    follow: bool,
    tail: Option<u64>,
    chunks: &mpsc::Sender<fiber_core::Result<Bytes>>,
) -> Result<(), kube::Error> {
    let mut pods = restarted::pods(server, name).await?;
    if pods.is_empty() {
        return read(server, name, follow, tail, chunks).await;
    }
    let mut known: HashSet<String> = HashSet::new();
    if tail.is_some() {
        let last = pods.iter().rposition(has_run).unwrap_or(0);
        known.extend(pods.drain(..last).filter_map(|pod| pod.metadata.name));
    }
    let mut tail = tail;
    let mut kept = KeptPod::default();
    loop {
        // Before the pods are listed: no other can follow after the last one.
        let finished = !follow
            || restarted::has_finished(server, name).await?
            || kept.ends(server, name).await;
        for pod in restarted::pods(server, name).await? {
            let over = exit_reason(&pod).is_some();
            let Some(pod) = pod.metadata.name.clone().filter(|_| over || has_run(&pod)) else {
                continue;
            };
            if known.insert(pod.clone()) {
                read(server, &pod, follow, tail.take(), chunks).await?;
            }
        }
        if finished || chunks.is_closed() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::io::Cursor;
    use futures_util::{AsyncReadExt, TryStreamExt};

    use super::*;
    use crate::kubernetes::api_server::test_server;

    async fn read_text(log: &str, passed: &mut usize) -> (String, StreamEnd) {
        let mut text = String::new();
        let take = async |chunk: &[u8]| {
            text.push_str(&String::from_utf8_lossy(chunk));
            true
        };
        let end = read_stream(Cursor::new(log), passed, take, async || false).await;
        (text, end)
    }

    #[tokio::test]
    async fn a_second_stream_brings_only_what_is_new() {
        let mut passed = 0;
        let first = read_text("one\n", &mut passed).await;
        let second = read_text("one\ntwo\n", &mut passed).await;
        assert_eq!(first, ("one\n".to_string(), StreamEnd::Complete));
        assert_eq!(second, ("two\n".to_string(), StreamEnd::Complete));
        assert_eq!(passed, 8);
    }

    #[tokio::test]
    async fn a_stream_that_stays_open_ends_with_its_pod() {
        let open = futures_util::stream::pending::<std::io::Result<Bytes>>().into_async_read();
        let end = read_stream(open, &mut 0, async |_: &[u8]| true, async || true).await;
        assert_eq!(end, StreamEnd::Complete);
    }

    /// The API server's answer while `fiber-1` waits to start.
    fn waiting(reason: &str) -> (u16, String) {
        let message =
            format!(r#"container \"fiber\" in pod \"fiber-1\" is waiting to start: {reason}"#);
        let status = format!(
            r#"{{"apiVersion":"v1","kind":"Status","status":"Failure","code":400,
                "reason":"BadRequest","message":"{message}"}}"#
        );
        (400, status)
    }

    /// Reads the log of `fiber-1`, whose requests have these answers, one after the other.
    async fn read_answers(
        follow: bool,
        answers: Vec<(u16, String)>,
    ) -> (String, Result<(), kube::Error>) {
        const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"fiber-1"},
            "status":{"phase":"Succeeded"}}"#;
        let mut answers = answers.into_iter();
        let server = test_server::start(move |request| match request.contains("/log?") {
            true => answers.next().expect("no log is asked for after an error"),
            false => (200, POD.into()),
        });
        let (sender, mut chunks) = mpsc::channel(10);
        let end = read(&server.await, "fiber-1", follow, None, &sender).await;
        drop(sender);
        let mut text = Vec::new();
        while let Some(chunk) = chunks.recv().await {
            text.extend_from_slice(&chunk.unwrap());
        }
        (String::from_utf8(text).unwrap(), end)
    }

    #[tokio::test]
    async fn a_pod_of_whose_start_the_api_server_learns_late_has_its_log() {
        for follow in [false, true] {
            let answers = ["ContainerCreating", "PodInitializing"].map(waiting);
            let answers = answers.into_iter().chain([(200, "hello\n".into())]);
            // The node may have written the end of the log after the end of the container.
            let again = follow.then(|| (200, "hello\nand goodbye\n".to_string()));
            let last = again.clone();
            let answers = answers.chain(again).chain(last).collect();
            let (text, end) = read_answers(follow, answers).await;
            assert!(end.is_ok(), "{end:?}");
            assert_eq!(text, if follow { "hello\nand goodbye\n" } else { "hello\n" });
        }
    }

    #[tokio::test]
    async fn a_pod_whose_start_fails_is_an_error_at_once() {
        let (text, end) = read_answers(true, vec![waiting("ImagePullBackOff")]).await;
        assert_eq!(text, "");
        assert!(end.unwrap_err().to_string().contains("ImagePullBackOff"));
    }

    #[tokio::test]
    async fn the_message_of_a_node_without_the_log_is_no_output() {
        let message = "unable to retrieve container logs for docker://4711";
        let (text, end) = read_text(message, &mut 0).await;
        assert_eq!((text.as_str(), end), ("", StreamEnd::Complete));
    }

    #[tokio::test]
    async fn the_message_of_a_node_without_the_file_of_the_log_is_no_output() {
        let message = "failed to try resolving symlinks in path \"/var/log/pods/x/fiber/0.log\": \
                       lstat /var/log/pods/x/fiber/0.log: no such file or directory";
        let mut passed = 0;
        assert_eq!(read_text(message, &mut passed).await, (String::new(), StreamEnd::Complete));
        let log = format!("one\n{message}");
        assert_eq!(read_text(&log, &mut passed).await, ("one\n".into(), StreamEnd::Complete));
    }

    #[tokio::test]
    async fn the_message_of_a_node_at_the_end_of_the_log_is_no_output() {
        let message = "rpc error: code = Unknown desc = Error: No such container: 4711";
        let (mut passed, log) = (0, format!("one\n{message}"));
        assert_eq!(read_text(&log, &mut passed).await, ("one\n".into(), StreamEnd::Complete));
        assert_eq!(passed, 4);
        let line = format!("one\n{message}\ntwo\n");
        assert_eq!(read_text(&line, &mut 0).await, (line, StreamEnd::Complete));
        // Until its second chunk comes, the line may be the message.
        let mut text = Vec::new();
        let take = async |chunk: &[u8]| {
            text.extend_from_slice(chunk);
            true
        };
        let chunks = AsyncReadExt::chain(message.as_bytes(), &b"\ntwo\n"[..]);
        let end = read_stream(chunks, &mut 0, take, async || false).await;
        let text = String::from_utf8(text).unwrap();
        assert_eq!((text, end), (format!("{message}\ntwo\n"), StreamEnd::Complete));
    }
}

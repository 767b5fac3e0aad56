//! The connection to a cluster's API server, and explanations of its errors.

use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use fiber_core::Config;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, Error, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error_chain::{causes, chain, shortage_behind};
use crate::{BackendError, KubernetesSection};

/// The manifest that grants the rights of programs and their users, and its namespace.
const MANIFEST: &str = "deploy/kubernetes/rbac.yaml";
const MANIFEST_NAMESPACE: &str = "fiber";
/// The variable that the container of each pod has.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";
/// The time to keep trying while the API server is away, and the pause between attempts, at first
/// and at most.
const RETRY_LIMIT: Duration = Duration::from_secs(60);
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The time for an API server that was away to learn who has which rights.
const RIGHTS: Duration = Duration::from_secs(30);
/// The limit for connecting, and for the first answer.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest silence of the API server during a request. Without a limit, a request on a
/// connection that the network has silently lost would wait until the system closes the connection,
/// if ever.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A kind of objects that namespaces have.
pub(crate) trait Object:
    Resource<Scope = NamespaceResourceScope, DynamicType: Default>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + 'static
{
}

impl<K> Object for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + 'static
{
}

/// A connection to a cluster's API server, with a namespace.
#[derive(Clone)]
pub(crate) struct ApiServer {
    client: Client,
    /// The client without a read timeout, for [streams](ApiServer::streams). It is created on first
    /// use.
    streaming: Arc<OnceLock<Client>>,
    access: kube::Config,
    namespace: String,
    url: String,
    host: String,
    /// When it was seen to be away last.
    away_at: Arc<Mutex<Option<Instant>>>,
}

impl ApiServer {
    /// Connects to the cluster of the kubeconfig, or to the one in which this process is a pod.
    ///
    /// # Errors
    /// The reason, with a remedy.
    pub(crate) async fn connect(config: &Config) -> Result<ApiServer, BackendError> {
        let mut access = kube::Config::infer().await.map_err(|error| {
            if let Some(problem) = shortage_behind(&error) {
                return BackendError::Shortage(format!(
                    "the cluster's configuration can't be read: {problem}"
                ));
            }
            let remedy = match std::env::var_os(IN_CLUSTER) {
                Some(_) => {
                    "This pod has no token of its service account: set \
                     `automountServiceAccountToken: true` in it, or KUBECONFIG to a kubeconfig file"
                }
                None => {
                    "Set KUBECONFIG to a kubeconfig file (~/.kube/config is the default), or run \
                     this in a pod, or unset FIBER_BACKEND to use processes of this host"
                }
            };
            BackendError::NotAvailable(format!(
                "no cluster is configured: {}. {remedy}",
                chain(&error)
            ))
        })?;
        access.connect_timeout = Some(CONNECT);
        let configured = config.section::<KubernetesSection>().namespace;
        let namespace = configured.unwrap_or_else(|| access.default_namespace.clone());
        let url = access.cluster_url.to_string().trim_end_matches('/').to_string();
        let host =
            access.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_string();
        let mut limited = access.clone();
        limited.read_timeout = Some(READ_TIMEOUT);
        limited.reset_reader_on_write = true;
        let client = Client::try_from(limited).map_err(|error| {
            let problem = shortage_behind(&error).unwrap_or_else(|| chain(&error));
            format!("the kubeconfig for {url} can't be used: {problem}")
        })?;
        let (streaming, away_at) = Default::default();
        let server = ApiServer { client, streaming, access, namespace, url, host, away_at };
        match tokio::time::timeout(CONNECT, server.client.apiserver_version()).await {
            Ok(Ok(_)) => Ok(server),
            Ok(Err(error)) => Err(server.explain(&error)),
            Err(_) => {
                let problem = server.unreachable(&format!("no answer within {CONNECT:?}"));
                Err(BackendError::OutOfReach(problem))
            }
        }
    }

    /// Returns a connection to a stand-in for the API server.
    #[cfg(test)]
    pub(super) fn at(url: &str) -> ApiServer {
        let access = kube::Config::new(url.parse().expect("it is a URL"));
        let client = Client::try_from(access.clone()).expect("it needs no files");
        ApiServer {
            client,
            streaming: Arc::default(),
            access,
            namespace: "default".into(),
            url: url.into(),
            host: "localhost".into(),
            away_at: Arc::default(),
        }
    }

    /// Returns the namespace of pods.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the same connection with another namespace.
    pub(super) fn in_namespace(&self, namespace: &str) -> ApiServer {
        ApiServer { namespace: namespace.to_string(), ..self.clone() }
    }

    /// Returns the API server's host name or address.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the API for objects of a kind in the namespace.
    pub(crate) fn api<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Returns the same API without a read timeout, for streams that may be silent or have limits
    /// of their own: logs, commands, watches.
    pub(super) fn streams<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.streaming_client(), &self.namespace)
    }

    fn streaming_client(&self) -> Client {
        if let Some(client) = self.streaming.get() {
            return client.clone();
        }
        match Client::try_from(self.access.clone()) {
            Ok(client) => self.streaming.get_or_init(|| client).clone(),
            // The cause may pass, so a later stream tries again.
            Err(error) => {
                tracing::debug!("a stream shares the client with a read timeout: {error}");
                self.client.clone()
            }
        }
    }

    /// Creates an object with a unique name, also if an earlier attempt has done so and its answer
    /// was lost.
    ///
    /// # Errors
    /// The API server's error. [`may_pass`](ApiServer::may_pass) says whether to try again.
    pub(crate) async fn create<K: Object>(&self, object: &K) -> Result<(), Error> {
        let (api, parameters) = (self.api::<K>(), PostParams::default());
        match api.create(&parameters, object).await {
            Err(Error::Api(status)) if status.is_already_exists() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Returns whether the same request may succeed later: the API server is away or busy, or it is
    /// back and does not know all rights yet.
    pub(super) fn may_pass(&self, error: &Error) -> bool {
        let mut away_at = self.away_at.lock();
        if is_transient(error) {
            *away_at = Some(Instant::now());
            return true;
        }
        is_forbidden(error) && away_at.is_some_and(|away_at| away_at.elapsed() < RIGHTS)
    }

    /// Creates an object with a name that may exist already. Tries again for a minute while the API
    /// server responds that it is too early: a new service account, for example, gets its token a
    /// moment later.
    ///
    /// # Errors
    /// The API server's error, also if the name exists.
    pub(super) async fn create_new<K: Object>(&self, object: &K) -> Result<(), Error> {
        let (api, parameters) = (self.api::<K>(), PostParams::default());
        let early =
            |error: &Error| matches!(error, Error::Api(status) if status.reason == "ServerTimeout");
        (|| api.create(&parameters, object)).retry(backoff()).when(early).await.map(drop)
    }

    /// Deletes an object, without a grace period, and returns whether it existed. Tries again for a
    /// minute while the API server is away.
    ///
    /// # Errors
    /// The API server's error; or it stays away for a minute.
    pub(crate) async fn remove<K: Object>(&self, name: &str) -> Result<bool, Error> {
        let (api, parameters) = (self.api::<K>(), DeleteParams::default().grace_period(0));
        match retried(|| api.delete(name, &parameters)).await {
            Err(error) if is_missing(&error) => Ok(false),
            result => result.map(|_| true),
        }
    }

    /// Formats an error, with a remedy.
    pub(crate) fn explain(&self, error: &Error) -> BackendError {
        let status = match error {
            Error::Api(status) => status,
            Error::Auth(error) => {
                return BackendError::NotAvailable(format!(
                    "the credentials for {} are not available: {}: log in again",
                    self.url,
                    chain(error)
                ));
            }
            other => {
                return match shortage_behind(other) {
                    Some(problem) => BackendError::Shortage(self.unreachable(&problem)),
                    None => BackendError::OutOfReach(self.unreachable(&innermost(other))),
                };
            }
        };
        let message = &status.message;
        match status.code {
            401 => refused!(
                "the API server at {} does not accept this user's credentials ({message}): they \
                 may have expired; log in again, or renew the kubeconfig",
                self.url
            ),
            403 if message.contains(" cannot ") => {
                let changed = match self.namespace.as_str() {
                    MANIFEST_NAMESPACE => String::new(),
                    other => {
                        format!(", with the namespace `{MANIFEST_NAMESPACE}` changed to `{other}`")
                    }
                };
                refused!(
                    "{message}: this right has to be granted. {MANIFEST} has Roles with all rights \
                     that fiber needs, and a service account for pods (kubectl apply -f \
                     {MANIFEST}{changed})"
                )
            }
            403 if message.contains("violates PodSecurity") => refused!(
                "{message}: as a user who is not root, a pod of fiber's meets the standard \
                 \"restricted\", so set `user` (FIBER_USER=1000), or use another namespace"
            ),
            403 if message.contains("must specify ") => refused!(
                "{message}: the namespace limits these, so each pod has to name them: for the \
                 program `--cpu` and `--memory`, for its processes `#[fiber::meta]`, for all the \
                 container `fiber` of a `kubernetes.pod_template`, or a LimitRange of the namespace"
            ),
            404 if message.starts_with("namespaces ") => refused!(
                "there is no namespace `{0}`: create it (kubectl create namespace {0}), or correct \
                 `kubernetes.namespace` (FIBER_KUBERNETES_NAMESPACE)",
                self.namespace
            ),
            _ if message.is_empty() => {
                refused!("the API server at {} refused: {}", self.url, status.reason)
            }
            _ => refused!("the API server at {} refused: {message}", self.url),
        }
    }

    fn unreachable(&self, problem: &str) -> String {
        format!(
            "no API server answers at {} ({problem}): start the cluster, correct the kubeconfig, \
             or unset FIBER_BACKEND to use processes of this host",
            self.url
        )
    }
}

impl Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer")
            .field("url", &self.url)
            .field("namespace", &self.namespace)
            .finish()
    }
}

fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(BACKOFF.0)
        .with_max_delay(BACKOFF.1)
        .without_max_times()
        .with_total_delay(Some(RETRY_LIMIT))
        .with_jitter()
}

async fn retried<T, F: Future<Output = Result<T, Error>>>(
    request: impl FnMut() -> F,
) -> Result<T, Error> {
    let begun = Instant::now();
    request
        .retry(backoff())
        .when(|error| is_transient(error) && begun.elapsed() < RETRY_LIMIT)
        .await
}

/// Returns whether an error may pass by itself: the API server is away or busy.
pub(super) fn is_transient(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 429 | 500..=599),
        Error::HyperError(_) | Error::Service(_) | Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// Returns Kubernetes' words if a quota of the namespace has no room for an object for now.
pub(super) fn over_quota(error: &Error) -> Option<&str> {
    let Error::Api(status) = error else { return None };
    // The second are of a quota that was just created.
    let words = ["exceeded quota: ", "status unknown for quota: "];
    let begin = words.iter().find_map(|words| status.message.find(words))?;
    status.is_forbidden().then(|| &status.message[begin..])
}

pub(super) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

pub(super) fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.is_forbidden())
}

/// Returns the innermost cause of an error. The other ones name layers of the client.
fn innermost(error: &Error) -> String {
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// An API server whose answers a test chooses.
#[cfg(test)]
pub(super) mod test_server {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::ApiServer;

    /// Starts a server that answers each request, given as text, with a status code and a body.
    pub(in crate::kubernetes) async fn start(
        mut answer: impl FnMut(&str) -> (u16, String) + Send + 'static,
    ) -> ApiServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (status, body) = answer(&read_request(&mut stream).await);
                let text = format!(
                    "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\n\
                     Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        ApiServer::at(&url)
    }

    async fn read_request(stream: &mut TcpStream) -> String {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => request.push(byte),
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&request).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    /// Returns a server that gives these answers in turn.
    async fn answering(codes: &'static [u16]) -> ApiServer {
        let mut codes = codes.iter();
        test_server::start(move |_| {
            let code = *codes.next().expect("it is asked no more");
            let reason = if code == 403 { "Forbidden" } else { "InternalError" };
            (code, json!({ "status": "Failure", "code": code, "reason": reason }).to_string())
        })
        .await
    }

    #[tokio::test]
    async fn a_refusal_passes_after_an_outage_and_stays_without_one() {
        let refused = answering(&[403]).await;
        let error = refused.create(&Pod::default()).await.expect_err("it refuses");
        assert!(!refused.may_pass(&error));

        // The client itself tries again after 503.
        let back = answering(&[500, 403]).await;
        for _ in 0..2 {
            let error = back.create(&Pod::default()).await.expect_err("it refuses");
            assert!(back.may_pass(&error), "{error}");
        }
    }

    /// The file of a token stands for anything that can't be read for a while.
    #[tokio::test]
    async fn streams_get_their_own_client_when_a_passing_problem_is_over() {
        let place = tempfile::tempdir().unwrap();
        let token = place.path().join("token");
        let mut server = ApiServer::at("http://localhost:1");
        server.access.auth_info.token_file = Some(token.display().to_string());
        server.streaming_client();
        assert!(server.streaming.get().is_none());
        std::fs::write(token, "secret").unwrap();
        server.streaming_client();
        assert!(server.streaming.get().is_some());
    }
}

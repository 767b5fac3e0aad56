//! The cluster: its API server, and what its refusals mean.

use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use fiber_core::Config;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error_chain::{causes, chain};

/// What grants the rights that programs and their users need.
const MANIFEST: &str = "deploy/kubernetes/rbac.yaml";
const MANIFEST_NAMESPACE: &str = "fiber";
/// How long an API server may be away before what is asked of it fails, and pauses between
/// attempts.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long the first answer may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the API server may be silent within a request. Without a limit, a request on a
/// connection that the network has lost without a word is waited for until the system gives the
/// connection up, if ever.
const ANSWER: Duration = Duration::from_secs(30);

/// A cluster whose API server answers, and the namespace there.
#[derive(Clone)]
pub struct ApiServer {
    client: Client,
    /// What [streams](ApiServer::streams) go through, made when it is first needed, as the
    /// kubeconfig says.
    patient: Arc<OnceLock<Client>>,
    access: kube::Config,
    namespace: String,
    url: String,
    host: String,
}

impl ApiServer {
    /// The one of the kubeconfig, or the one in which this process is a pod.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub async fn connect(config: &Config) -> Result<ApiServer, String> {
        let mut access = kube::Config::infer().await.map_err(|error| {
            format!(
                "no cluster is known: {}. Set KUBECONFIG to a kubeconfig file (~/.kube/config is the default), or run this in \
                 a pod, or leave FIBER_BACKEND out to use processes of this host",
                chain(&error)
            )
        })?;
        access.connect_timeout = Some(CONNECT);
        let namespace =
            config.namespace.clone().unwrap_or_else(|| access.default_namespace.clone());
        let url = access.cluster_url.to_string().trim_end_matches('/').to_string();
        let host =
            access.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_string();
        let mut limited = access.clone();
        limited.read_timeout = Some(ANSWER);
        limited.reset_reader_on_write = true;
        let client = Client::try_from(limited).map_err(|error| {
            format!("the kubeconfig for {url} can't be used: {}", chain(&error))
        })?;
        let server = ApiServer { client, patient: Arc::default(), access, namespace, url, host };
        match tokio::time::timeout(CONNECT, server.client.apiserver_version()).await {
            Ok(Ok(_)) => Ok(server),
            Ok(Err(error)) => Err(server.explain(&error)),
            Err(_) => Err(server.absent(&format!("no answer within {CONNECT:?}"))),
        }
    }

    /// What all requests go through.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where pods come to be.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The same cluster, in another namespace.
    pub(super) fn in_namespace(&self, namespace: &str) -> ApiServer {
        ApiServer { namespace: namespace.to_string(), ..self.clone() }
    }

    /// The API server's name or address.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The objects of a kind in its namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The same for what may be silent for any time, and for what has limits of its own: logs,
    /// commands, watches.
    pub(super) fn streams<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        let client = self.patient.get_or_init(|| {
            Client::try_from(self.access.clone()).unwrap_or_else(|error| {
                tracing::debug!("streams will be taken up again after each silence: {error}");
                self.client.clone()
            })
        });
        Api::namespaced(client.clone(), &self.namespace)
    }

    /// Creates an object under a name that nothing else has, and tries again for a while if the API
    /// server is away.
    ///
    /// # Errors
    /// The API server's refusal; that it is away, after a minute or as soon as `wanted` says no.
    pub async fn create<K>(&self, object: &K, wanted: impl Fn() -> bool) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope> + Serialize + Clone + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        let (api, parameters) = (self.api::<K>(), PostParams::default());
        let result = retried(|| api.create(&parameters, object), wanted).await;
        match result {
            // The answer to an earlier attempt was lost.
            Err(Error::Api(status)) if status.is_already_exists() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Creates an object under a name that something else may have, and tries again for a while if
    /// the API server says that it was asked too early: a service account, say, gets its token a
    /// moment after it was made.
    ///
    /// # Errors
    /// The API server's refusal, also that there is something of this name.
    pub(super) async fn create_new<K>(&self, object: &K) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope> + Serialize + Clone + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        let (api, parameters) = (self.api::<K>(), PostParams::default());
        let early =
            |error: &Error| matches!(error, Error::Api(status) if status.reason == "ServerTimeout");
        (|| api.create(&parameters, object)).retry(pauses()).when(early).await.map(drop)
    }

    /// Removes an object, at once, and tries again for a while if the API server is away. One that
    /// is gone is fine.
    ///
    /// # Errors
    /// The API server's refusal; that it is away, after a minute.
    pub async fn remove<K>(&self, name: &str) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        let (api, parameters) = (self.api::<K>(), DeleteParams::default().grace_period(0));
        match retried(|| api.delete(name, &parameters), || true).await {
            Err(error) if is_missing(&error) => Ok(()),
            result => result.map(drop),
        }
    }

    /// What went wrong, with what to do.
    pub fn explain(&self, error: &Error) -> String {
        let status = match error {
            Error::Api(status) => status,
            Error::Auth(error) => {
                return format!(
                    "credentials for {} can't be had: {}: log in again",
                    self.url,
                    chain(error)
                );
            }
            other => return self.absent(&innermost(other)),
        };
        let said = &status.message;
        match status.code {
            401 => format!(
                "the API server at {} does not accept this user's credentials ({said}): they may have expired; log in again, \
                 or renew the kubeconfig",
                self.url
            ),
            403 if said.contains(" cannot ") => {
                let changed = match self.namespace.as_str() {
                    MANIFEST_NAMESPACE => String::new(),
                    other => {
                        format!(", with the namespace `{MANIFEST_NAMESPACE}` changed to `{other}`")
                    }
                };
                format!(
                    "{said}: have this right granted. {MANIFEST} has Roles with all that is needed, and a service account for \
                     pods (kubectl apply -f {MANIFEST}{changed})"
                )
            }
            404 if said.starts_with("namespaces ") => format!(
                "there is no namespace `{0}`: make it (kubectl create namespace {0}), or correct `namespace` \
                 (FIBER_NAMESPACE)",
                self.namespace
            ),
            _ if said.is_empty() => {
                format!("the API server at {} refused: {}", self.url, status.reason)
            }
            _ => format!("the API server at {} refused: {said}", self.url),
        }
    }

    fn absent(&self, problem: &str) -> String {
        format!(
            "no API server answers at {} ({problem}): start the cluster, correct the kubeconfig, or leave FIBER_BACKEND out \
             to use processes of this host",
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

fn pauses() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(PAUSES.0)
        .with_max_delay(PAUSES.1)
        .without_max_times()
        .with_total_delay(Some(PATIENCE))
        .with_jitter()
}

async fn retried<T, F: Future<Output = Result<T, Error>>>(
    request: impl FnMut() -> F,
    wanted: impl Fn() -> bool,
) -> Result<T, Error> {
    let begun = Instant::now();
    request
        .retry(pauses())
        .when(|error| wanted() && is_passing(error) && begun.elapsed() < PATIENCE)
        .await
}

/// Whether it may go away by itself: the API server is away, or busy.
pub(super) fn is_passing(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 429 | 500..=599),
        Error::HyperError(_) | Error::Service(_) | Error::ReadEvents(_) => true,
        _ => false,
    }
}

pub(super) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

pub(super) fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.is_forbidden())
}

/// The innermost cause, which is what says something: the others name layers of the client.
fn innermost(error: &Error) -> String {
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

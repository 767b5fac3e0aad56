//! The Secret with what pods are told in confidence. It is there while a job needs it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, Secret, SecretKeySelector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use super::api_server::ApiServer;
use crate::single_flight::SingleFlight;

/// What is told, by the names of the variables that tell it.
pub(super) type SecretData = BTreeMap<String, String>;

/// Makes Secrets, one for all jobs that are told the same.
#[derive(Debug)]
pub(super) struct SecretStore {
    server: ApiServer,
    /// What their metadata have in common.
    model: ObjectMeta,
    made: AtomicU64,
    current: Mutex<Weak<SharedSecret>>,
    flight: SingleFlight,
}

/// A Secret that is there for as long as anybody holds this and until it is given
/// [back](SecretStore::release).
#[derive(Debug)]
pub(super) struct SharedSecret {
    name: String,
    content: SecretData,
}

impl SharedSecret {
    /// The variables by which a pod is told what is in the Secret.
    pub(super) fn variables(&self) -> impl Iterator<Item = EnvVar> {
        self.content.keys().map(|key| {
            let source =
                SecretKeySelector { name: self.name.clone(), key: key.clone(), optional: None };
            let value_from = EnvVarSource { secret_key_ref: Some(source), ..Default::default() };
            EnvVar { name: key.clone(), value: None, value_from: Some(value_from) }
        })
    }
}

impl SecretStore {
    /// None yet. They will be called by the name in `model` and a number.
    pub(super) fn new(server: ApiServer, model: ObjectMeta) -> SecretStore {
        SecretStore {
            server,
            model,
            made: AtomicU64::new(1),
            current: Mutex::default(),
            flight: SingleFlight::default(),
        }
    }

    /// A Secret with this content: the current one, or a new one. Jobs that wait for one to be made
    /// share its error.
    ///
    /// # Errors
    /// Why it can't be made, and what to do.
    pub(super) async fn acquire(&self, content: SecretData) -> Result<Arc<SharedSecret>, String> {
        let current = || self.current.lock().upgrade().filter(|secret| secret.content == content);
        self.flight.share(current, async || self.make(&content).await).await
    }

    async fn make(&self, content: &SecretData) -> Result<Arc<SharedSecret>, String> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", self.model.name.as_deref().unwrap_or("fiber"));
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.clone()), ..self.model.clone() },
            string_data: Some(content.clone()),
            immutable: Some(true),
            ..Default::default()
        };
        self.server.create(&secret, || true).await.map_err(|error| self.server.explain(&error))?;
        let secret = Arc::new(SharedSecret { name, content: content.clone() });
        *self.current.lock() = Arc::downgrade(&secret);
        Ok(secret)
    }

    /// Removes a Secret if nobody else needs it.
    pub(super) async fn release(&self, secret: Arc<SharedSecret>) {
        let Some(secret) = Arc::into_inner(secret) else { return };
        if let Err(error) = self.server.remove::<Secret>(&secret.name).await {
            tracing::warn!(
                "the Secret {} stays behind: {}",
                secret.name,
                self.server.explain(&error)
            );
        }
    }
}

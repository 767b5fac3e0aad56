//! Secrets with the secret variables of jobs. A Secret exists while jobs need it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, Secret, SecretKeySelector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use super::api_server::ApiServer;
use crate::BackendError;
use crate::single_flight::SingleFlight;

/// The values of secret variables, by name.
pub(super) type SecretData = BTreeMap<String, String>;

/// Creates Secrets. Jobs with the same data share one.
#[derive(Debug)]
pub(super) struct SecretStore {
    server: ApiServer,
    /// The metadata that all Secrets have in common.
    model: ObjectMeta,
    made: AtomicU64,
    current: Mutex<Weak<SharedSecret>>,
    flight: SingleFlight,
}

/// A Secret that exists until the last job [releases](SecretStore::release) it.
#[derive(Debug)]
pub(super) struct SharedSecret {
    name: String,
    data: SecretData,
}

impl SharedSecret {
    /// Returns the variables by which a pod's container refers to the Secret.
    pub(super) fn variables(&self) -> impl Iterator<Item = EnvVar> {
        self.data.keys().map(|key| {
            let source =
                SecretKeySelector { name: self.name.clone(), key: key.clone(), optional: None };
            let value_from = EnvVarSource { secret_key_ref: Some(source), ..Default::default() };
            EnvVar { name: key.clone(), value: None, value_from: Some(value_from) }
        })
    }
}

impl SecretStore {
    /// Creates a store without Secrets. Names them by the name in `model` and a number.
    pub(super) fn new(server: ApiServer, model: ObjectMeta) -> SecretStore {
        SecretStore {
            server,
            model,
            made: AtomicU64::new(1),
            current: Mutex::default(),
            flight: SingleFlight::default(),
        }
    }

    /// Returns a Secret with this data: the current one, or a new one. Jobs that wait for the same
    /// attempt share its error.
    ///
    /// # Errors
    /// The reason why it can't be created, with a remedy.
    pub(super) async fn acquire(
        &self,
        data: SecretData,
    ) -> Result<Arc<SharedSecret>, BackendError> {
        let current = || self.current.lock().upgrade().filter(|secret| secret.data == data);
        self.flight.share(current, async || self.create(&data).await).await
    }

    async fn create(&self, data: &SecretData) -> Result<Arc<SharedSecret>, BackendError> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", self.model.name.as_deref().unwrap_or("fiber"));
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.clone()), ..self.model.clone() },
            string_data: Some(data.clone()),
            immutable: Some(true),
            ..Default::default()
        };
        self.server.create(&secret, || true).await.map_err(|error| self.server.explain(&error))?;
        let secret = Arc::new(SharedSecret { name, data: data.clone() });
        *self.current.lock() = Arc::downgrade(&secret);
        Ok(secret)
    }

    /// Deletes a Secret if no other job uses it.
    pub(super) async fn release(&self, secret: Arc<SharedSecret>) {
        let Some(secret) = Arc::into_inner(secret) else { return };
        if let Err(error) = self.server.remove::<Secret>(&secret.name).await {
            tracing::warn!(
                "the Secret {} can't be removed: {}",
                secret.name,
                self.server.explain(&error)
            );
        }
    }
}

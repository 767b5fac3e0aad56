//! Secrets with the secret variables of pods. Each pod has its own, until its container runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, Secret, SecretKeySelector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::api_server::ApiServer;

/// The values of secret variables, by name.
pub(super) type SecretData = BTreeMap<String, String>;

/// Creates and removes Secrets.
#[derive(Debug)]
pub(super) struct SecretStore {
    server: ApiServer,
    /// The metadata that all Secrets have in common.
    model: ObjectMeta,
    made: AtomicU64,
}

/// Returns the variables by which a pod's container refers to a Secret.
pub(super) fn variables(secret: &str, data: &SecretData) -> impl Iterator<Item = EnvVar> {
    data.keys().map(move |key| {
        let source = SecretKeySelector { name: secret.into(), key: key.clone(), optional: None };
        let value_from = EnvVarSource { secret_key_ref: Some(source), ..Default::default() };
        EnvVar { name: key.clone(), value: None, value_from: Some(value_from) }
    })
}

impl SecretStore {
    /// Creates a store without Secrets. Names them by the name in `model` and a number.
    pub(super) fn new(server: ApiServer, model: ObjectMeta) -> SecretStore {
        SecretStore { server, model, made: AtomicU64::new(1) }
    }

    /// Returns a name for another Secret.
    pub(super) fn next_name(&self) -> String {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.model.name.as_deref().unwrap_or("fiber"))
    }

    /// Creates a Secret.
    ///
    /// # Errors
    /// The API server's error.
    pub(super) async fn create(&self, name: &str, data: &SecretData) -> Result<(), kube::Error> {
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.into()), ..self.model.clone() },
            string_data: Some(data.clone()),
            immutable: Some(true),
            ..Default::default()
        };
        self.server.create(&secret).await
    }

    pub(super) async fn remove(&self, name: &str) {
        if let Err(error) = self.server.remove::<Secret>(name).await {
            tracing::warn!("the Secret {name} can't be removed: {}", self.server.explain(&error));
        }
    }
}

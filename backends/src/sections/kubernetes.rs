//! The section `[kubernetes]` of the configuration.

use std::path::PathBuf;

use fiber_core::SectionEntry;
use fiber_core::values::lenient;

fiber_core::section! {
    /// Options of the backend `kubernetes`.
    pub struct KubernetesSection in "kubernetes" {
        /// The namespace of pods. Without one: that of this process's own pod, or the namespace
        /// in the kubeconfig.
        namespace: Option<String> = None,
        /// The service account of pods. Without one: that of this process's own pod, or the
        /// default of the namespace.
        service_account: Option<String> = None,
        /// The Secrets for image pulls, in addition to those of this process's own pod.
        #[serde(deserialize_with = "lenient::list")]
        pull_secrets: Vec<String> = Vec::new(),
        /// The node labels that pods require, in addition to those of this process's own pod:
        /// `NAME=VALUE`.
        #[serde(deserialize_with = "lenient::list")]
        node_selector: Vec<String> = Vec::new(),
        /// The tolerations of pods, in addition to those of this process's own pod: `KEY`,
        /// `KEY:EFFECT`, `KEY=VALUE` or `KEY=VALUE:EFFECT`.
        #[serde(deserialize_with = "lenient::list")]
        tolerations: Vec<String> = Vec::new(),
        /// A manifest of a `Pod`, in YAML or JSON, from which all pods start.
        #[serde(deserialize_with = "lenient::path")]
        pod_template: Option<PathBuf> = None,
    }
}

impl KubernetesSection {
    // `fiber run` starts programs there already.
    pub(crate) const ENTRY: SectionEntry = SectionEntry::of::<KubernetesSection>().not_forwarded();
}

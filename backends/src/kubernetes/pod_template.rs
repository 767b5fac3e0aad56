//! The part of a pod that all pods of a program share, and the creation of pods from it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use fiber_core::{Config, ConfigProblem, Meta};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, HostPathVolumeSource, LocalObjectReference,
    PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec, SeccompProfile,
    SecurityContext, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::base_pod;
use super::current_pod::{self, CurrentPod};
use super::image::PodImage;
use super::names::{CONTAINER, GPU};
use crate::mounts::{MountSource, MountSpec};
use crate::{KubernetesSection, configured_environment};

/// The part of a pod that all pods of a program share.
#[derive(Clone, Debug)]
pub(crate) struct PodTemplate {
    image: PodImage,
    owner: Option<OwnerReference>,
    /// The user's manifest, if there is one.
    manifest: Option<Pod>,
    environment: Vec<EnvVar>,
    /// The program's container, without arguments and resources, which differ between pods.
    container: Container,
    /// The pod's specification without that container.
    spec: PodSpec,
}

/// The part of a pod that is its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodRequest {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// Its environment variables, in addition to the shared ones.
    pub environment: Vec<EnvVar>,
    /// Its resource requests, which are also its limits.
    pub meta: Meta,
    /// Its termination grace period.
    pub grace: Duration,
}

/// Checks the configuration, without a cluster.
pub(super) fn check(config: &Config) -> Result<(), ConfigProblem> {
    MountSpec::all(config)?;
    let section: KubernetesSection = config.section();
    section.tolerations.iter().try_for_each(|text| toleration(text).map(drop))?;
    section.node_selector.iter().try_for_each(|text| label(text).map(drop))?;
    // A pod gets the manifest from the process that created it.
    if let Some(path) = section.pod_template
        && !current_pod::is_in_pod()
    {
        base_pod::read(&path)?;
    }
    user(config.user.as_deref()).map(drop)
}

impl PodTemplate {
    /// Creates a template from the configuration.
    ///
    /// # Errors
    /// The entry that is invalid, and the right form.
    pub(crate) fn new(config: &Config, image: PodImage) -> Result<PodTemplate, ConfigProblem> {
        PodTemplate::inheriting(config, image, None)
    }

    /// Creates a template from the configuration, with values of this process's own pod where the
    /// configuration sets none.
    pub(super) fn inheriting(
        config: &Config,
        image: PodImage,
        own: Option<&CurrentPod>,
    ) -> Result<PodTemplate, ConfigProblem> {
        let section: KubernetesSection = config.section();
        let handed_on = own.and_then(|own| own.manifest.clone());
        let is_handed_on = handed_on.is_some();
        let manifest = match (handed_on, &section.pod_template) {
            (None, Some(path)) => Some(base_pod::read(path)?),
            (manifest, _) => manifest,
        };
        let mut given = manifest.clone().and_then(|pod| pod.spec).unwrap_or_default();
        let given_container = base_pod::take_container(&mut given).unwrap_or_default();
        let parent = own.map(|own| own.spec.clone()).unwrap_or_default();
        let container = own.and_then(CurrentPod::container).cloned().unwrap_or_default();
        let (volumes, mounts) = volumes(config, [&parent, &given], [&container, &given_container])?;

        let mut node_selector = parent.node_selector.unwrap_or_default();
        node_selector.extend(given.node_selector.take().unwrap_or_default());
        for text in &section.node_selector {
            let (name, value) = label(text)?;
            node_selector.insert(name, value);
        }
        let configured = section.tolerations.iter().map(|text| toleration(text));
        let configured = configured.collect::<Result<Vec<_>, _>>()?;
        let tolerations = union([parent.tolerations, given.tolerations.take(), some(configured)]);
        let configured = section.pull_secrets.into_iter().map(|name| LocalObjectReference { name });
        let given_secrets = given.image_pull_secrets.take();
        let pull_secrets =
            union([parent.image_pull_secrets, given_secrets, some(configured.collect())]);

        // A pod that was made from the manifest has its values, where no option had another one.
        let (explicit, container_security) = match is_handed_on {
            true => Default::default(),
            false => (given.clone(), given_container.security_context.clone()),
        };
        let mut container_security = container_security.or(container.security_context);
        let mut security =
            explicit.security_context.or(parent.security_context).unwrap_or_default();
        // An image built of the program runs as the user who runs the program.
        let set = container_security.as_ref().and_then(|security| security.run_as_user);
        let default = image.user.as_deref().filter(|_| set.or(security.run_as_user).is_none());
        if let Some((user, group)) = user(config.user.as_deref().or(default))? {
            security =
                PodSecurityContext { run_as_user: Some(user), run_as_group: group, ..security };
            // It would win over the pod's.
            if let Some(inherited) = &mut container_security {
                (inherited.run_as_user, inherited.run_as_group) = (None, None);
            }
        }
        restrict(&mut security, &mut container_security);
        let environment = image.environment.iter().cloned().chain(configured_environment(config));
        let environment = environment.map(|(name, value)| variable(name, &value));
        Ok(PodTemplate {
            owner: own.map(CurrentPod::reference),
            manifest,
            environment: given_container.env.iter().flatten().cloned().chain(environment).collect(),
            container: Container {
                name: CONTAINER.into(),
                image: Some(image.name.clone()),
                // Each build has its own tag, so an image that a node has is the right one.
                image_pull_policy: Some(
                    image.pull_policy.clone().unwrap_or_else(|| "IfNotPresent".into()),
                ),
                command: image.program.as_deref().map(|program| vec![literal(program)]),
                working_dir: config.working_dir.clone().or(given_container.working_dir.clone()),
                security_context: container_security,
                volume_mounts: some(mounts),
                ..given_container
            },
            spec: PodSpec {
                restart_policy: Some("Never".into()),
                // The pod's first process reaps orphans, so the program is not PID 1, and signals
                // have their usual effect.
                share_process_namespace: Some(true),
                enable_service_links: Some(false),
                automount_service_account_token: Some(config.nested),
                service_account_name: section
                    .service_account
                    .or(explicit.service_account_name)
                    .or(parent.service_account_name),
                image_pull_secrets: pull_secrets,
                tolerations,
                node_selector: Some(node_selector).filter(|labels| !labels.is_empty()),
                security_context: Some(security),
                priority_class_name: explicit.priority_class_name.or(parent.priority_class_name),
                runtime_class_name: explicit.runtime_class_name.or(parent.runtime_class_name),
                scheduler_name: explicit.scheduler_name.or(parent.scheduler_name),
                volumes: some(volumes),
                ..given
            },
            image,
        })
    }

    /// Returns the image of the pods.
    pub(crate) fn image(&self) -> &PodImage {
        &self.image
    }

    /// Gives the pods a token for the API server, so that they can start pods themselves.
    #[must_use]
    pub(crate) fn with_token(mut self) -> PodTemplate {
        self.spec.automount_service_account_token = Some(true);
        self
    }

    /// Whether options, the manifest or this process's own pod name a service account.
    pub(crate) fn names_account(&self) -> bool {
        self.spec.service_account_name.is_some()
    }

    /// Gives the pods the rights of a service account.
    #[must_use]
    pub(crate) fn with_account(mut self, name: &str) -> PodTemplate {
        self.spec.service_account_name = Some(name.into());
        self
    }

    /// Creates a pod.
    pub(crate) fn pod(&self, request: PodRequest) -> Pod {
        let amounts = amounts(&request.meta);
        let port = metrics_port(&request.environment);
        let mut container = self.container.clone();
        container.args = some(request.arguments.iter().map(|argument| literal(argument)).collect());
        // Kubernetes uses the last of two variables with one name.
        container.env = Some(self.environment.iter().cloned().chain(request.environment).collect());
        if let Some(port) = port {
            container.ports.get_or_insert_default().push(port);
        }
        let resources = container.resources.get_or_insert_default();
        resources.limits.get_or_insert_default().extend(amounts.clone());
        resources.requests.get_or_insert_default().extend(amounts);

        let mut metadata = ObjectMeta::default();
        if let Some(manifest) = &self.manifest {
            metadata.labels = manifest.metadata.labels.clone();
            metadata.annotations = manifest.metadata.annotations.clone();
            if self.spec.automount_service_account_token == Some(true)
                && let Ok(text) = serde_json::to_string(manifest)
            {
                let annotations = metadata.annotations.get_or_insert_default();
                annotations.insert(base_pod::ANNOTATION.into(), text);
            }
        }
        metadata.labels.get_or_insert_default().extend(request.labels);
        metadata.annotations.get_or_insert_default().extend(request.annotations);
        metadata.name = Some(request.name);
        metadata.owner_references = self.owner.clone().map(|owner| vec![owner]);

        let mut spec = self.spec.clone();
        spec.containers.insert(0, container);
        let grace = i64::try_from(request.grace.as_secs()).unwrap_or(i64::MAX).max(1);
        spec.termination_grace_period_seconds = Some(grace);
        Pod { metadata, spec: Some(spec), status: None }
    }
}

/// Returns the items of these lists, each once.
fn union<T: PartialEq, const N: usize>(lists: [Option<Vec<T>>; N]) -> Option<Vec<T>> {
    let mut all = Vec::new();
    for item in lists.into_iter().flatten().flatten() {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    some(all)
}

/// Restricts the pod of a user who is not root as the Pod Security Standard "restricted" asks, where
/// the pod of this process does not say otherwise. Nodes alone know whether an image's own user is
/// root, and root in a container may need its capabilities.
fn restrict(pod: &mut PodSecurityContext, container: &mut Option<SecurityContext>) {
    let given = container.clone().unwrap_or_default();
    let user = given.run_as_user.or(pod.run_as_user);
    if user.is_none_or(|user| user == 0) || given.privileged == Some(true) {
        return;
    }
    let seccomp = || SeccompProfile { type_: "RuntimeDefault".into(), ..Default::default() };
    pod.run_as_non_root.get_or_insert(true);
    pod.seccomp_profile.get_or_insert_with(seccomp);
    let dropped = || Capabilities { drop: Some(vec!["ALL".into()]), ..Default::default() };
    *container = Some(SecurityContext {
        allow_privilege_escalation: given.allow_privilege_escalation.or(Some(false)),
        capabilities: given.capabilities.or_else(|| Some(dropped())),
        ..given
    });
}

/// Returns a variable with a literal value.
pub(crate) fn variable(name: impl Into<String>, value: &str) -> EnvVar {
    EnvVar { name: name.into(), value: Some(literal(value)), value_from: None }
}

/// Returns the port of a head's metrics, which a PodMonitor finds by its name.
fn metrics_port(environment: &[EnvVar]) -> Option<ContainerPort> {
    let set = environment.iter().rev().find(|variable| variable.name == "FIBER_METRICS")?;
    let address: SocketAddr = set.value.as_ref()?.parse().ok()?;
    let container_port = i32::from(address.port());
    Some(ContainerPort { container_port, name: Some("metrics".into()), ..Default::default() })
}

/// Escapes text so that Kubernetes expands no `$(NAME)` in it.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

fn amounts(meta: &Meta) -> BTreeMap<String, Quantity> {
    let cpu = meta.cpu.map(|cores| ("cpu", format!("{}m", (cores * 1000.0).ceil() as i64)));
    let memory = meta.memory.map(|size| ("memory", size.as_u64().to_string()));
    let gpu = meta.gpu.filter(|count| *count > 0).map(|count| (GPU, count.to_string()));
    let amounts = [cpu, memory, gpu].into_iter().flatten();
    amounts.map(|(name, amount)| (name.to_string(), Quantity(amount))).collect()
}

/// Returns the configured mounts, then those of this process's own container, except the ones that
/// Kubernetes adds to each pod, then those of the manifest. The first mount at a path counts.
fn volumes(
    config: &Config,
    pods: [&PodSpec; 2],
    containers: [&Container; 2],
) -> Result<(Vec<Volume>, Vec<VolumeMount>), ConfigProblem> {
    let others = || pods.iter().flat_map(|pod| pod.volumes.iter().flatten());
    let (mut volumes, mut mounts): (Vec<Volume>, Vec<VolumeMount>) = Default::default();
    let names = (0..).map(|number| format!("mount-{number}"));
    let names = names.filter(|name| others().all(|volume| volume.name != *name));
    for (name, mounted) in names.zip(MountSpec::all(config)?) {
        let mut volume = Volume { name: name.clone(), ..Default::default() };
        match mounted.source {
            MountSource::Path(path) => {
                volume.host_path = Some(HostPathVolumeSource { path, type_: None })
            }
            MountSource::Volume(claim_name) => {
                volume.persistent_volume_claim = Some(PersistentVolumeClaimVolumeSource {
                    claim_name,
                    read_only: Some(mounted.read_only),
                });
            }
        }
        volumes.push(volume);
        mounts.push(VolumeMount {
            name,
            mount_path: mounted.target,
            read_only: Some(mounted.read_only),
            ..Default::default()
        });
    }
    let inherited =
        containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
    for mount in inherited {
        let is_token = mount.mount_path.starts_with("/var/run/secrets/kubernetes.io/");
        if !is_token && mounts.iter().all(|other| other.mount_path != mount.mount_path) {
            mounts.push(mount.clone());
        }
    }
    let [own, given] = pods.map(|pod| pod.volumes.iter().flatten());
    let used = own.filter(|volume| mounts.iter().any(|mount| mount.name == volume.name));
    for volume in used.chain(given) {
        if volumes.iter().all(|other| other.name != volume.name) {
            volumes.push(volume.clone());
        }
    }
    Ok((volumes, mounts))
}

/// Parses `USER` or `USER:GROUP`, as numbers.
fn user(text: Option<&str>) -> Result<Option<(i64, Option<i64>)>, ConfigProblem> {
    let Some(text) = text else { return Ok(None) };
    let (user, group) =
        text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let wrong = |_| {
        let problem = "on Kubernetes it must be a number, or two: USER or USER:GROUP";
        ConfigProblem::value("user", text, problem)
    };
    let group = group.map(str::parse).transpose().map_err(wrong)?;
    Ok(Some((user.parse().map_err(wrong)?, group)))
}

fn label(text: &str) -> Result<(String, String), ConfigProblem> {
    let (name, value) = text.split_once('=').ok_or_else(|| {
        let problem = "each must be NAME=VALUE, a label of the nodes to use";
        ConfigProblem::element("kubernetes.node_selector", text, problem)
    })?;
    Ok((name.to_string(), value.to_string()))
}

fn toleration(text: &str) -> Result<Toleration, ConfigProblem> {
    let (what, effect) =
        text.split_once(':').map_or((text, None), |(what, effect)| (what, Some(effect)));
    let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if what.is_empty() || effect.is_some_and(|effect| !known.contains(&effect)) {
        let problem = format!(
            "each must be KEY, KEY:EFFECT, KEY=VALUE or KEY=VALUE:EFFECT, where EFFECT is one of \
             {}",
            known.join(", ")
        );
        return Err(ConfigProblem::element("kubernetes.tolerations", text, problem));
    }
    let (key, value) = what.split_once('=').map_or((what, None), |(key, value)| (key, Some(value)));
    Ok(Toleration {
        key: Some(key.to_string()),
        operator: Some(if value.is_some() { "Equal" } else { "Exists" }.to_string()),
        value: value.map(str::to_string),
        effect: effect.map(str::to_string),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests;

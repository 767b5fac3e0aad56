//! The sections of the configuration: one a backend, in the backend's folder.
//!
//! Each build has all of them, so that programs with different features can share a file.

#[path = "docker/section.rs"]
mod docker;
#[path = "kubernetes/section.rs"]
mod kubernetes;
#[path = "slurm/section.rs"]
mod slurm;
#[path = "ssh/section.rs"]
mod ssh;

use fiber_core::SectionEntry;

pub use docker::DockerSection;
pub use kubernetes::KubernetesSection;
pub use slurm::SlurmSection;
pub use ssh::SshSection;

// `fiber run` starts programs there already.
pub(crate) const DOCKER: SectionEntry = SectionEntry::of::<DockerSection>().not_forwarded();
pub(crate) const KUBERNETES: SectionEntry = SectionEntry::of::<KubernetesSection>().not_forwarded();
pub(crate) const SLURM: SectionEntry = SectionEntry::of::<SlurmSection>();
pub(crate) const SSH: SectionEntry = SectionEntry::of::<SshSection>();

//! The sections of the configuration with the options of backends.
//!
//! A build that lacks a backend has its section, so that programs with different features can share
//! a file.

mod docker;
mod kubernetes;
mod slurm;
mod ssh;

pub use self::docker::DockerSection;
pub use self::kubernetes::KubernetesSection;
pub use self::slurm::SlurmSection;
pub use self::ssh::SshSection;

//! `fiber run` on Slurm: options that it has, and those that it does not.

use std::io::Write;

use anyhow::bail;
use fiber_backends::SlurmCluster;
use fiber_backends::cluster::RunRequest;
use fiber_core::Config;

use crate::args;

/// Fails for options that the backend does not have.
pub(super) fn check(args: &args::Run, backend: &str) -> anyhow::Result<()> {
    if backend != "slurm" {
        return match args.slurm.given() {
            Some(option) => bail!(
                "{option} is for Slurm, but the backend is `{backend}`: add `--backend slurm`, or \
                 leave it out"
            ),
            None => Ok(()),
        };
    }
    let of_images = [
        ("--image", args.image.is_some()),
        ("--dockerfile", args.dockerfile.is_some()),
        ("--bundle", args.bundle),
        ("--volume", !args.volumes.is_empty()),
    ];
    match of_images.iter().find(|(_, given)| *given) {
        Some((option, _)) => bail!(
            "{option} is for containers, but Slurm runs the program from the file system that its \
             nodes share: leave it out"
        ),
        None => Ok(()),
    }
}

/// Prints the batch script of a session.
pub(super) async fn print_script(config: &Config, run: &RunRequest) -> fiber_core::Result<()> {
    let script = SlurmCluster::connect(config).await?.batch_script(run)?;
    // A reader that stops early is no failure.
    let _ = std::io::stdout().lock().write_all(script.as_bytes());
    Ok(())
}

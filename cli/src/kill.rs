//! `fiber kill`.

use std::process::ExitCode;

use fiber_backends::cluster::Cluster;
use fiber_core::Config;

use crate::sessions::{self, Named};

pub(crate) async fn kill(
    config: &Config,
    cluster: &dyn Cluster,
    names: &[String],
    now: bool,
) -> anyhow::Result<ExitCode> {
    for name in names {
        let found = sessions::find(cluster, name).await?;
        sessions::must_be_in_cluster(found.process())?;
        let name = &found.process().name;
        let grace = if now { 0 } else { grace(config) };
        match &found {
            Named::Session(session) => {
                sessions::end(cluster, name, grace).await?;
                println!("Killed {name} and its workers: {}", session.workers.len());
            }
            Named::Worker(_, head) => {
                cluster.stop(name, grace).await?;
                cluster.remove(name).await?;
                println!("Killed {name}, a worker of {head}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the grace period for a process to end, in seconds.
pub(crate) fn grace(config: &Config) -> u32 {
    config.shutdown_timeout.as_secs_f64().ceil() as u32
}

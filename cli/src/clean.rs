//! `fiber clean`.

use std::process::ExitCode;

use fiber_backends::cluster::Cluster;

use crate::terminal::{printable, say_json};

pub(crate) async fn clean(cluster: &dyn Cluster, as_json: bool) -> anyhow::Result<ExitCode> {
    let removed = cluster.sweep().await?;
    if as_json {
        say_json(&removed.into());
    } else if removed.is_empty() {
        say!("There was nothing to remove.");
    } else {
        removed.iter().for_each(|name| say!("Removed {}", printable(name)));
    }
    Ok(ExitCode::SUCCESS)
}

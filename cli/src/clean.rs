//! `fiber clean`.

use std::process::ExitCode;

use fiber_backends::cluster::Cluster;
use serde_json::Value;

use crate::terminal::printable;

pub(crate) async fn clean(cluster: &dyn Cluster, as_json: bool) -> anyhow::Result<ExitCode> {
    let removed = cluster.sweep().await?;
    if as_json {
        say!("{:#}", Value::from(removed));
    } else if removed.is_empty() {
        say!("There was nothing to remove.");
    } else {
        removed.iter().for_each(|name| say!("Removed {}", printable(name)));
    }
    Ok(ExitCode::SUCCESS)
}

//! `fiber clean`.

use std::process::ExitCode;

use crate::args::ClusterArgs;
use crate::connect;
use crate::terminal::{printable, say_json};

pub(crate) async fn clean(args: &ClusterArgs, as_json: bool) -> anyhow::Result<ExitCode> {
    let removed = connect(args).await?.sweep().await?;
    if as_json {
        say_json(&removed.into());
    } else if removed.is_empty() {
        say!("There was nothing to remove.");
    } else {
        removed.iter().for_each(|name| say!("Removed {}", printable(name)));
    }
    Ok(ExitCode::SUCCESS)
}

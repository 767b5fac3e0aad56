//! The commands on entities.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::ClusterArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum EntitiesCommand {
    /// Lists entities.
    List {
        #[command(flatten)]
        source: Source,
        /// Prints JSON: a list of entities.
        #[arg(long)]
        json: bool,
    },
    /// Shows the keys of entities, or what is recorded of one key.
    ///
    /// A key is live in a process, or asleep. EVENTS counts those since the last snapshot. The
    /// state of a key is its last snapshot, as JSON.
    #[command(after_help = "Examples:\n  fiber entities show accounts\n  fiber entities show \
                            --journal bank accounts anna")]
    Show {
        #[command(flatten)]
        source: Source,
        /// Shows only keys that begin with PREFIX.
        #[arg(long, conflicts_with = "key", default_value = "", hide_default_value = true)]
        prefix: String,
        /// Shows the first COUNT keys.
        #[arg(long, value_name = "COUNT", default_value = "100", conflicts_with = "key",
              value_parser = clap::value_parser!(u64).range(1..=10_000))]
        limit: u64,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
        /// The name of the entities. In a journal, their version follows as `@VERSION`.
        name: String,
        /// The key.
        key: Option<String>,
    },
    /// Prints the events of a key, since its last snapshot, as JSON lines.
    ///
    /// Each line is an object with the event's `number`, the `version` of its form, and the `event`
    /// itself. `fiber journal export` says how values look.
    #[command(after_help = "Example:\n  fiber entities events accounts anna | jq -c .event")]
    Events {
        #[command(flatten)]
        source: Source,
        /// The name of the entities. In a journal, their version follows as `@VERSION`.
        name: String,
        /// The key.
        key: String,
    },
}

/// Where entities are.
#[derive(Debug, Args)]
pub(crate) struct Source {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Only this session (see `fiber stack`).
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Reads a journal, also of a program that has ended: a name, or a path with a `/`.
    #[arg(long, value_name = "JOURNAL", value_hint = ValueHint::DirPath,
          conflicts_with_all = ["session", "backend"])]
    pub(crate) journal: Option<PathBuf>,
}

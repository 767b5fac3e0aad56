//! The options of `fiber run` that only Slurm has.

use std::time::Duration;

use clap::builder::RangedI64ValueParser;
use fiber_backends::cluster::Allocation;
use humantime::parse_duration;

/// The title of these options in the help.
const HEADING: &str = "Slurm only";

/// The machines of a session on Slurm.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SlurmArgs {
    /// The number of nodes [default: 1].
    #[arg(help_heading = HEADING, long, value_name = "COUNT", value_parser = at_least_one())]
    pub(crate) nodes: Option<u32>,
    /// The time limit of the whole session: 30m, 2h, 1day [default: the partition's].
    #[arg(help_heading = HEADING, long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) time: Option<Duration>,
    /// The partition [default: the cluster's].
    #[arg(help_heading = HEADING, long, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// The account that pays for it.
    #[arg(help_heading = HEADING, long, value_name = "NAME")]
    pub(crate) account: Option<String>,
    /// The quality of service.
    #[arg(help_heading = HEADING, long, value_name = "NAME")]
    pub(crate) qos: Option<String>,
    /// Generic resources of each node, besides --gpu.
    #[arg(help_heading = HEADING, long, value_name = "LIST")]
    pub(crate) gres: Option<String>,
    /// Any other option of `sbatch`, passed on as it is: `--slurm=--constraint=skylake`. Can be
    /// repeated.
    #[arg(help_heading = HEADING, long = "slurm", value_name = "OPTION")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) options: Vec<String>,
    /// Prints the batch script, and submits nothing.
    #[arg(help_heading = HEADING, long, conflicts_with_all = ["attach", "json"])]
    pub(crate) dry_run: bool,
}

fn at_least_one() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..)
}

impl SlurmArgs {
    /// Returns the first of these options that is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let options = [
            ("--nodes", self.nodes.is_some()),
            ("--time", self.time.is_some()),
            ("--partition", self.partition.is_some()),
            ("--account", self.account.is_some()),
            ("--qos", self.qos.is_some()),
            ("--gres", self.gres.is_some()),
            ("--slurm", !self.options.is_empty()),
            ("--dry-run", self.dry_run),
        ];
        options.into_iter().find_map(|(name, given)| given.then_some(name))
    }

    pub(crate) fn allocation(&self) -> Allocation {
        Allocation {
            nodes: self.nodes,
            time: self.time,
            partition: self.partition.clone(),
            account: self.account.clone(),
            qos: self.qos.clone(),
            gres: self.gres.clone(),
            options: self.options.clone(),
        }
    }
}

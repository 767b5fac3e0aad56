//! The options of `fiber run` that Slurm brings along.

use std::time::Duration;

use crate::batch::options;
use crate::cluster::session::RunRequest;
use crate::cluster::{BackendOption, OptionKind};

/// The options, in their order in the help.
pub(super) const OPTIONS: &[BackendOption] = &[
    BackendOption::new("nodes", OptionKind::Count, "COUNT", "The number of nodes [default: 1]"),
    options::TIME,
    BackendOption::new(
        "partition",
        OptionKind::Text,
        "NAME",
        "The partition [default: the cluster's]",
    ),
    BackendOption::new("account", OptionKind::Text, "NAME", "The account that pays for it"),
    BackendOption::new("qos", OptionKind::Text, "NAME", "The quality of service"),
    BackendOption::new(
        "gres",
        OptionKind::Text,
        "LIST",
        "Generic resources of each node, besides --gpu",
    ),
    BackendOption::new(
        "slurm",
        OptionKind::Verbatim,
        "OPTION",
        "Any other option of `sbatch`, passed on as it is: `--slurm=--constraint=skylake`. Can be \
         repeated",
    ),
    options::DRY_RUN,
];

/// The values of the options: the machines of a session, and how long it has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobOptions {
    /// The number of nodes; one without.
    pub(super) nodes: Option<u32>,
    /// The time limit; the partition's without.
    pub(super) time: Option<Duration>,
    pub(super) partition: Option<String>,
    /// The account that pays.
    pub(super) account: Option<String>,
    /// The quality of service.
    pub(super) qos: Option<String>,
    /// Generic resources of each node.
    pub(super) gres: Option<String>,
    /// Options of `sbatch` as they are.
    pub(super) options: Vec<String>,
}

impl JobOptions {
    pub(super) fn of(run: &RunRequest) -> JobOptions {
        let given = &run.options;
        JobOptions {
            nodes: given.count("nodes"),
            time: given.time("time"),
            partition: given.text("partition"),
            account: given.text("account"),
            qos: given.text("qos"),
            gres: given.text("gres"),
            options: given.texts("slurm").collect(),
        }
    }
}

//! The command line of `fiber map`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::ValueHint;
use clap::builder::RangedU64ValueParser;

use super::{ClusterArgs, cores, memory, timeout};

/// Runs a command for each item of a list, on a pool of workers.
///
/// An item is a word after `:::`, a line of standard input or of a file, or a row of a CSV. These
/// stand for it in the command: {} the item; {.} without its extension; {/} its last component;
/// {//} its directory; {/.} its last component without extension; {#} its number, from 1; {NAME}
/// the column NAME of a CSV. Without any of them, the item is the last argument.
///
/// No shell reads the command: for pipes and variables, run one (see the examples). Its standard
/// input is empty. A command ends with all processes that it has started.
///
/// Output of different commands never mixes. It comes in the order of the items, or with
/// --unordered as the commands end. If a worker is lost, its command runs again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fiber map -- simulate --seed {} ::: $(seq 1000)
  find . -name '*.png' -print0 | fiber map --null -- convert {} {.}.webp
  fiber map --csv runs.csv --output-dir out -- train --rate {rate} --seed {seed}
  fiber map --journal sweep-7 --timeout 10m --retries 2 --input seeds.txt -- simulate --seed {}
  fiber map -- sh -c 'sort \"$1\" | uniq -c >\"$1.counts\"' sh {} ::: *.txt

Exit codes: 0 if all commands have succeeded; 1 to 100 is the number of those that have failed, and
101 stands for more; 125 if the command line or the items are wrong; 126 if the command can't be
executed, 127 if there is none; 75 after SIGTERM with --journal: start it again to go on.")]
pub(crate) struct Map {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// The number of workers, each of which runs one command at a time [default: one for each CPU
    /// core].
    #[arg(short, long, value_name = "COUNT", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub(crate) processes: Option<u32>,
    /// Runs a command that fails again, up to COUNT times.
    #[arg(long, value_name = "COUNT", default_value = "0")]
    pub(crate) retries: u32,
    /// Ends a command with its processes after this time: 90s, 2h. It gets SIGTERM, and SIGKILL a
    /// second later.
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Records outcomes in this journal, a name or a path with a `/`. Run again, the command then
    /// runs only what is not recorded, or has failed (see docs/durable.md).
    #[arg(long, value_name = "NAME")]
    pub(crate) journal: Option<String>,
    /// CPU cores for each worker: 2, or 0.5.
    #[arg(long, value_name = "CORES", value_parser = cores)]
    pub(crate) cpu: Option<f64>,
    /// Memory for each worker with its command: 512MiB, or 2GiB.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<ByteSize>,
    /// GPUs for each worker.
    #[arg(long, value_name = "COUNT")]
    pub(crate) gpu: Option<u32>,
    /// The image of containers. It needs this command `fiber` and CMD. Without one, fiber builds it
    /// of both and their libraries.
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// Reads items from the lines of a file, or of standard input (`-`). Empty lines are left out.
    #[arg(long, value_name = "FILE", conflicts_with = "csv", value_hint = ValueHint::FilePath)]
    pub(crate) input: Option<PathBuf>,
    /// Reads items from the rows of a CSV, whose first line names the columns.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<PathBuf>,
    /// NUL bytes end the items of --input or standard input, and not line ends.
    #[arg(short = '0', long, conflicts_with = "csv")]
    pub(crate) null: bool,
    /// Writes the output of each command into a directory of DIR, which its number names: files
    /// `stdout`, `stderr`, `exit-code` and `command`.
    #[arg(long, value_name = "DIR", conflicts_with = "json", value_hint = ValueHint::DirPath)]
    pub(crate) output_dir: Option<PathBuf>,
    /// Prints a line of JSON for each command, with its output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Prints the output of commands as they end.
    #[arg(long)]
    pub(crate) unordered: bool,
    /// Ends a command whose output is larger.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = memory)]
    pub(crate) max_output: ByteSize,
    /// Prints the commands, quoted for a shell, and runs none.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Shows no progress bar on a terminal.
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// The command, and after `:::` its items.
    #[arg(
        trailing_var_arg = true,
        value_name = "CMD",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,
}

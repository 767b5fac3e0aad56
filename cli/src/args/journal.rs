//! The commands on journals.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Lists the journals of a folder.
    Ls {
        /// Prints JSON: a list of journals.
        #[arg(long)]
        json: bool,
        /// The folder [default: `journals` of the configuration].
        #[arg(value_hint = ValueHint::DirPath)]
        folder: Option<PathBuf>,
    },
    /// Shows the calls and slots of a journal.
    ///
    /// Programs may record meanwhile.
    Show {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
        /// A name, or a path with a `/`.
        #[arg(value_hint = ValueHint::DirPath)]
        journal: PathBuf,
    },
    /// Prints outcomes and slots as JSON lines.
    ///
    /// Each line is an object. That of an outcome has the call's `name`, `function` and `version`,
    /// the task's `index`, its `outcome` (`returned`, `failed` or `abandoned`) and the `value`.
    /// That of a slot has `slots`, `slot` and `value`. Structs are objects, byte strings are
    /// `{"hex": "…"}`, and numbers that JSON does not have are texts. An array is a list of the
    /// number of its type, its shape, and its bytes or, if it is large, the number of an element of
    /// `blobs`, which are beside `value`, in hex. A value that does not describe itself is `{"hex":
    /// "…"}`.
    #[command(after_help = "Example:\n  fiber journal export sweep-7 | jq -c 'select(.outcome == \
                            \"returned\") | [.index, .value]'")]
    Export {
        /// Prints only outcomes of calls of this name (`#0`, or as given to `Journal::call`).
        #[arg(long, value_name = "NAME")]
        call: Vec<String>,
        /// A name, or a path with a `/`.
        #[arg(value_hint = ValueHint::DirPath)]
        journal: PathBuf,
    },
    /// Reads all of a journal and checks its checksums.
    ///
    /// Exit codes: 0 if it is whole, 1 if something is damaged.
    Verify {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
        /// A name, or a path with a `/`.
        #[arg(value_hint = ValueHint::DirPath)]
        journal: PathBuf,
    },
    /// Removes what is not needed any more.
    ///
    /// Superseded values of slots are removed in any case, outcomes only with an option. Their
    /// tasks run again when a program makes the call again. No program may record meanwhile.
    #[command(
        after_help = "Example:\n  fiber journal prune --failed --version 1 --version 2 sweep-7"
    )]
    Prune {
        /// Removes the outcomes of calls of this name.
        #[arg(long, value_name = "NAME")]
        call: Vec<String>,
        /// Removes the outcomes of this version.
        #[arg(long, value_name = "VERSION")]
        version: Vec<String>,
        /// Removes the outcomes of this function, by its path.
        #[arg(long, value_name = "PATH")]
        function: Vec<String>,
        /// Removes the outcomes of failed and abandoned tasks.
        #[arg(long)]
        failed: bool,
        /// Removes what can't be read, and keeps the rest.
        #[arg(long)]
        damaged: bool,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
        /// A name, or a path with a `/`.
        #[arg(value_hint = ValueHint::DirPath)]
        journal: PathBuf,
    },
}

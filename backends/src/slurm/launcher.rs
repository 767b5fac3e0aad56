//! The launcher: this executable again, which asks the kernel for a signal at the end of its parent
//! and then becomes `srun`.
//!
//! At SIGTERM, `srun` kills its step. So a parent that is killed leaves no steps.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// The variable that makes a process a launcher. Its value is the pid of the parent.
pub(super) const VARIABLE: &str = "FIBER_SLURM_LAUNCHER";
/// The variable that names the copy of the program that a process runs from. Names that begin with
/// `FIBER_` are options of the configuration.
pub(super) const COPY: &str = "COPIED_BY_FIBER";

/// Becomes the command that the arguments name, and never returns, if this process is a launcher.
pub(super) fn run_if_launcher() {
    let parent = std::env::var(VARIABLE).ok().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    let Some(parent) = parent else { return };
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else { return };
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    if getppid() != Some(parent) {
        std::process::exit(1);
    }
    let error = Command::new(&program).args(arguments).env_remove(VARIABLE).exec();
    // In the form of `srun`'s own errors, which its reader knows.
    eprintln!("srun: error: `{}` can't be run: {error}", program.display());
    std::process::exit(1);
}

/// Removes the file of this program, if it is a copy for this process alone. The kernel keeps the
/// running program.
pub(super) fn remove_copy() {
    let Some(copy) = std::env::var_os(COPY) else { return };
    if fiber_core::executable_name().is_ok_and(|own| own == Path::new(&copy)) {
        let _ = std::fs::remove_file(&copy);
    }
}

//! Programs that share a journal, one after the other.

use std::path::PathBuf;

use fiber_test_support::program::{Program, ProgramOutput, Setup};
use tempfile::TempDir;

/// The variables that tell a scenario where its journal is, and where its tasks note that they ran.
pub(crate) const JOURNAL: &str = "TEST_JOURNAL";
pub(crate) const RAN: &str = "TEST_RAN";

/// A journal, and the notes of the tasks that ran.
pub(crate) struct Sweep {
    folder: TempDir,
}

impl Sweep {
    pub(crate) fn new() -> Sweep {
        Sweep { folder: TempDir::new().expect("a directory can be created") }
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// Returns the file in which tasks note that they ran.
    pub(crate) fn ran_file(&self) -> PathBuf {
        self.folder.path().join("ran")
    }

    /// Configures a program with this journal.
    pub(crate) fn program(&self, scenario: &str, variables: &[(&str, &str)]) -> Setup {
        let setup = Setup::new(scenario).env(JOURNAL, self.journal()).env(RAN, self.ran_file());
        variables.iter().fold(setup, |setup, (name, value)| setup.env(name, value))
    }

    pub(crate) fn start(&self, scenario: &str, variables: &[(&str, &str)]) -> Program {
        self.program(scenario, variables).start()
    }

    /// Runs a program to its end, which has to be a success. Returns its output and what ran.
    #[track_caller]
    pub(crate) fn run(&self, scenario: &str, variables: &[(&str, &str)]) -> (String, Vec<String>) {
        let ended: ProgramOutput = self.program(scenario, variables).run().code(0);
        (ended.out, self.take_ran())
    }

    /// Returns what tasks have noted since the last time, in order.
    pub(crate) fn take_ran(&self) -> Vec<String> {
        let notes = std::fs::read_to_string(self.ran_file()).unwrap_or_default();
        let _ = std::fs::remove_file(self.ran_file());
        let mut lines: Vec<_> = notes.lines().map(String::from).collect();
        lines.sort();
        lines
    }
}

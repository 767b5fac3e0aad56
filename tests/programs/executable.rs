//! A program keeps working when its file is rebuilt or deleted.

use std::path::PathBuf;

use fiber_test_support::program::{Program, Setup, copy_executable};
use fiber_test_support::trial;
use tempfile::TempDir;

fn on_a_copy() -> (Program, PathBuf, TempDir) {
    let directory = TempDir::new().expect("a directory can be created");
    let copy = directory.path().join("program");
    copy_executable(&copy);
    let program = Setup::with_executable("work on demand", &copy).start();
    program.line("ready");
    (program, copy, directory)
}

fn goes_on(mut program: Program) {
    for (work, result) in
        [("lose workers", "lost 6"), ("map", "sum 332833500"), ("spawn", "spawned 9")]
    {
        program.say(work);
        program.line(result);
    }
    program.end().code(0);
}

#[trial]
fn a_deleted_executable_still_starts_workers() {
    let (program, copy, _directory) = on_a_copy();
    std::fs::remove_file(copy).unwrap();
    goes_on(program);
}

#[trial]
fn a_replaced_executable_still_starts_workers() {
    let (program, copy, _directory) = on_a_copy();
    let other = copy.with_extension("new");
    std::fs::copy("/bin/true", &other).unwrap();
    // As linkers and installers do: processes of the old file keep it.
    std::fs::rename(other, copy).unwrap();
    goes_on(program);
}

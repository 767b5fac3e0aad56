//! A program whose file is rebuilt or deleted while it runs goes on.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::program::{Program, Setup};

crate::tests![
    a_deleted_executable_still_starts_workers,
    a_replaced_executable_still_starts_workers
];

fn on_a_copy() -> (Program, PathBuf, TempDir) {
    let directory = TempDir::new().expect("there is room for a directory");
    let copy = directory.path().join("program");
    std::fs::copy(std::env::current_exe().expect("this binary is somewhere"), &copy)
        .expect("there is room for a copy");
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

fn a_deleted_executable_still_starts_workers() {
    let (program, copy, _directory) = on_a_copy();
    std::fs::remove_file(copy).unwrap();
    goes_on(program);
}

fn a_replaced_executable_still_starts_workers() {
    let (program, copy, _directory) = on_a_copy();
    let other = copy.with_extension("new");
    std::fs::copy("/bin/true", &other).unwrap();
    // As linkers and installers do it: who runs the old file keeps it.
    std::fs::rename(other, copy).unwrap();
    goes_on(program);
}

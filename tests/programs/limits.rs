//! A program with low resource limits works, or fails with one error that names the limit to raise.

use std::os::unix::fs::PermissionsExt;

use fiber_test_support::program::{ProgramOutput, Setup, copy_executable};
use fiber_test_support::trial;

/// Returns the program of a scenario under a limit in `prlimit`'s syntax.
fn limited(scenario: &str, link: &str, limit: &str) -> Setup {
    let executable = std::env::current_exe().unwrap();
    let setup = Setup::with_executable(scenario, "prlimit".as_ref()).env("FIBER_LINK", link);
    setup.args(&[limit, executable.to_str().unwrap()])
}

/// Returns whether the program has worked. Otherwise checks that its error names the remedy.
fn succeeds_or_names(ending: &ProgramOutput, remedy: &str, what: &str) -> bool {
    let all = format!("{}\n{}", ending.out, ending.errors);
    assert!(!all.contains("panicked") && !all.contains("init()"), "{what}:\n{all}");
    if ending.exit_code() == Some(0) {
        assert!(ending.out.contains("sum 285"), "{what}:\n{all}");
        return true;
    }
    assert!(ending.exit_code().is_some(), "{what} ended by a signal:\n{all}");
    assert!(ending.errors.contains(remedy), "{what} does not mention `{remedy}`:\n{all}");
    false
}

#[trial]
fn a_program_with_few_files_works_or_names_the_limit() {
    for link in ["unix", "nng"] {
        let mut enough = false;
        for (number, files) in
            [6, 7, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 64, 256].into_iter().enumerate()
        {
            let main = ["main with init", "async main"][number % 2];
            let ending = limited(main, link, &format!("--nofile={files}:{files}")).run();
            enough = succeeds_or_names(
                &ending,
                "ulimit -n",
                &format!("{main} with {files} files over {link}"),
            );
        }
        assert!(enough, "256 files are enough over {link}");
    }
}

/// The kernel counts threads by user and does not limit root, so the program runs as a user of its
/// own.
#[trial]
fn a_program_with_few_threads_works_or_names_the_limit() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can run programs as another user");
    }
    let place = tempfile::TempDir::new().unwrap();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let copy = place.path().join("program");
    copy_executable(&copy);
    for link in ["unix", "nng"] {
        let mut enough = false;
        for threads in [1, 2, 3, 4, 6, 8, 10, 12, 14, 18, 22, 64] {
            let limit = format!("--nproc={threads}:{threads}");
            let setup = Setup::with_executable("main with init", "prlimit".as_ref())
                .env("FIBER_LINK", link);
            let user = 50_000 + std::process::id() % 10_000;
            let ending = setup.args(&[&limit, copy.to_str().unwrap()]).user(user).run();
            enough =
                succeeds_or_names(&ending, "ulimit -u", &format!("{threads} threads over {link}"));
        }
        assert!(enough, "64 threads are enough over {link}");
    }
}

#[trial]
fn init_works_in_little_address_space() {
    Setup::new("little address space").run().code(0).says(&["initialized"]);
}

#[trial]
fn the_error_mentions_init_only_if_the_child_may_have_missed_it() {
    let ending = Setup::new("killed as they start").run().code(0);
    assert!(
        ending.out.contains("was killed by signal 9 (SIGKILL) before it was ready"),
        "{}",
        ending.out
    );
    assert!(!ending.out.contains("init()"), "{}", ending.out);
}

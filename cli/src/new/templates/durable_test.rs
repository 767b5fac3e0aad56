//! Kills the program in its work, and starts it again.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

fn program(journals: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_{name}"));
    command
        .env("FIBER_JOURNALS", journals)
        .stdout(Stdio::piped());
    command
}

#[test]
fn a_killed_program_goes_on_where_it_was() {
    let journals = Path::new(env!("CARGO_TARGET_TMPDIR")).join("journals");
    let _ = std::fs::remove_dir_all(&journals);

    let mut killed = program(&journals).spawn().expect("it starts");
    let lines = BufReader::new(killed.stdout.take().expect("it is piped")).lines();
    let mut results = lines
        .map(|line| line.expect("it is text"))
        .filter(|l| l.starts_with("seed"));
    assert!(
        results.any(|line| line.starts_with("seed 5:")),
        "it ends too early"
    );
    killed.kill().expect("it runs"); // SIGKILL
    killed.wait().expect("it has ended");

    let mut again = program(&journals).spawn().expect("it starts");
    let mut output = String::new();
    let mut stdout = again.stdout.take().expect("it is piped");
    stdout.read_to_string(&mut output).expect("it is text");
    assert!(again.wait().expect("it ends").success());
    assert!(output.contains("sum 165.291\n"), "{output}");
    // Results that the first run has printed are recorded, so their tasks don't run again.
    for seed in 0..=5 {
        assert!(
            !output.contains(&format!("simulating {seed}\n")),
            "{output}"
        );
    }
}

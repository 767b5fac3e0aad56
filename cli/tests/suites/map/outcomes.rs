//! Output, exit codes, retries.

use std::process::{Command, Stdio};

use super::{Ended, Folder, exists};

#[test]
fn output_has_the_order_of_the_items_or_of_the_ends() {
    let folder = Folder::new();
    // The first command ends after the second: it waits for it.
    let script = "case $1 in 1) read x <pipe;; 2) echo >pipe;; esac; echo $1; echo e$1 >&2";
    let run = |options: &[&str]| {
        let _ = std::fs::remove_file(folder.path("pipe"));
        folder.pipe("pipe");
        let rest = ["-p", "2", "--", "sh", "-c", script, "sh", ":::", "1", "2"];
        folder.map(&[options, &rest].concat()).succeeded()
    };
    let ordered = run(&[]);
    assert_eq!((ordered.stdout(), ordered.stderr()), ("1\n2\n".into(), "e1\ne2\n".into()));
}

#[test]
fn output_without_a_reader_ends_a_map_as_a_signal_would() {
    let folder = Folder::new();
    for options in [&["--dry-run"][..], &[]] {
        let (reader, writer) = std::io::pipe().expect("there are descriptors");
        drop(reader);
        let mut command = folder.command(&[options, &["echo", ":::", "a"]].concat());
        let ended = command.stdout(writer).stderr(Stdio::piped()).output();
        Ended(ended.expect("it can be started")).failed(141, &[]);
    }
}

#[test]
fn unordered_output_comes_when_its_command_ends() {
    let folder = Folder::new();
    folder.pipe("pipe");
    // The first command ends when this test has seen the output of the second.
    let script = "case $1 in 1) read x <pipe;; esac; echo $1";
    let rest = ["sh", "-c", script, "sh", "{}", ":::", "1", "2"];
    let mut map = folder.spawn(&[&["--unordered", "--json", "-p", "2", "--"], &rest[..]].concat());
    let stdout = std::io::BufReader::new(map.stdout.take().expect("it is a pipe"));
    let mut lines = std::io::BufRead::lines(stdout);
    let mut next = || {
        let line = lines.next().expect("a command is left").expect("it is text");
        let line: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
        (line["index"].clone(), line["stdout"].clone())
    };
    assert_eq!(next(), (2.into(), "2\n".into()));
    std::fs::write(folder.path("pipe"), "\n").expect("the command reads");
    assert_eq!(next(), (1.into(), "1\n".into()));
    assert!(map.wait().expect("it ends").success());
}

#[test]
fn lines_of_json_tell_all_of_a_command() {
    let folder = Folder::new();
    folder.write("rows.csv", "code,name\n0,a\n3,b\n");
    let script = "echo $1; printf '\\377' >&2; exit $0";
    let ended = folder
        .map(&["--json", "--csv", "rows.csv", "--", "sh", "-c", script, "{code}", "{name}"])
        .failed(1, &["task 2 failed: exit code 3: sh -c", "1 of 2 commands failed"]);
    let lines = ended.json();
    let line = &lines[1];
    assert_eq!(lines[0]["error"], serde_json::Value::Null);
    assert_eq!(line["index"], 2);
    assert_eq!(line["item"], serde_json::json!({ "code": "3", "name": "b" }));
    assert_eq!(line["command"], serde_json::json!(["sh", "-c", script, "3", "b"]));
    assert_eq!((&line["exit_code"], &line["error"]), (&3.into(), &"exit code 3".into()));
    assert_eq!((&line["stdout"], &line["stderr"]["hex"]), (&"b\n".into(), &"ff".into()));
    assert_eq!(line["attempts"], 1);
    assert!(line["duration"].as_f64().is_some_and(|time| time > 0.0), "{line}");
    assert!(line["host"].as_str().is_some_and(|host| !host.is_empty()), "{line}");

    let ended = folder.map(&["--json", "sh", "-c", "kill -9 $$", ":::", "a"]);
    assert_eq!((&ended.json()[0]["signal"], ended.code()), (&9.into(), Some(1)));
}

#[test]
fn each_command_gets_a_directory() {
    let folder = Folder::new();
    let script = "echo o$1; echo e$1 >&2; exit $1";
    let map = |options: &[&str]| {
        let rest = ["--output-dir", "all/out", "--", "sh", "-c", script, "sh", ":::", "0", "4"];
        folder.map(&[options, &rest].concat())
    };
    assert_eq!(map(&[]).failed(1, &["task 2 failed"]).stdout(), "");
    let read = |name: &str| folder.read(&format!("all/out/{name}"));
    assert_eq!((read("1/stdout"), read("1/exit-code")), ("o0\n".into(), "0\n".into()));
    assert_eq!((read("2/stderr"), read("2/exit-code")), ("e4\n".into(), "4\n".into()));
    assert!(read("2/command").ends_with(" sh 4\n"), "{}", read("2/command"));
    // Files of another run are never mixed with those of this one.
    map(&[]).failed(125, &["`all/out` has files of another run"]);
    map(&["--journal", "j"]).failed(125, &["has files of another run"]);
    std::fs::remove_dir_all(folder.path("all")).expect("it is there");
    map(&["--journal", "j"]).failed(1, &[]);
    map(&["--journal", "j"]).failed(1, &["1 of 2"]);
    map(&["--journal", "other"]).failed(125, &["has files of another run"]);
}

#[test]
fn the_exit_code_counts_failures_up_to_a_hundred() {
    let folder = Folder::new();
    let items = |count: usize| vec!["x"; count];
    let map = |count| folder.map(&[&["false", ":::"], &items(count)[..]].concat());
    map(3).failed(3, &["3 of 3 commands failed"]);
    let many = map(130).failed(101, &["130 of 130", "other failures are only counted"]);
    assert_eq!(many.stderr().matches("failed: exit code 1").count(), 20);
}

#[test]
fn a_command_that_fails_runs_again() {
    let folder = Folder::new();
    let script = "echo run >>runs; test -e $1 || { touch $1; echo no; exit 1; }; echo yes";
    let map = |retries: &str, item: &str| {
        folder.map(&["--json", "--retries", retries, "--", "sh", "-c", script, "sh", ":::", item])
    };
    let line = &map("2", "a").succeeded().json()[0];
    // The output is that of the last attempt.
    assert_eq!((&line["attempts"], &line["stdout"]), (&2.into(), &"yes\n".into()));
    assert_eq!(map("0", "b").json()[0]["attempts"], 1);
    assert_eq!(folder.read("runs").lines().count(), 3);
    // A program that does not exist is not tried again.
    let missing = folder.map(&["--json", "--retries", "5", "./{}", ":::", "no", "such"]);
    assert_eq!((missing.code(), &missing.json()[0]["attempts"]), (Some(2), &1.into()));
}

#[test]
fn output_beyond_the_limit_ends_the_command() {
    let folder = Folder::new();
    let ended = folder.map(&["--json", "--max-output", "100KB", "yes", ":::", "a"]);
    let line = &ended.json()[0];
    let printed = line["stdout"].as_str().expect("it is text").len();
    assert_eq!((ended.code(), printed), (Some(1), 100_000));
    assert!(line["error"].as_str().is_some_and(|error| error.contains("--max-output")), "{line}");
    // One that has ended by itself is not counted as a success either.
    let ended = folder.map(&["--max-output", "10B", "echo", "{}{}", ":::", "1234567890"]);
    ended.failed(1, &["printed more than"]);
    assert!(!exists(&folder.path("fiber-journals")));
}

#[test]
fn large_output_arrives_whole() {
    let folder = Folder::new();
    let script = "head -c 3000000 /dev/zero | tr '\\0' $1; echo end >&2";
    let ended = folder.map(&["-p", "2", "--", "sh", "-c", script, "sh", ":::", "a", "b", "c"]);
    let expected: String = ["a", "b", "c"].map(|item| item.repeat(3_000_000)).concat();
    assert!(ended.stdout() == expected, "{} bytes", ended.0.stdout.len());
    assert_eq!(ended.succeeded().stderr(), "end\nend\nend\n");
}

#[test]
fn an_item_that_is_too_long_for_an_argument_fails_alone() {
    let folder = Folder::new();
    folder.write("items", ["a", &"x".repeat(200_000), "b"].join("\n"));
    let ended = folder.map(&["--input", "items", "echo"]);
    assert_eq!(ended.stdout(), "a\nb\n");
    ended.failed(1, &["longer than this system allows", "getconf ARG_MAX", "1 of 3 commands"]);
}

#[test]
fn a_reader_that_leaves_ends_the_map() {
    let folder = Folder::new();
    let mut map = folder.spawn(&["sh", "-c", "yes | head -n 100000", "{}", ":::", "a", "b", "c"]);
    drop(map.stdout.take());
    assert_eq!(map.wait().expect("it ends").code(), Some(141));
}

/// As under a shell with `trap '' CHLD`: then the kernel keeps no exit codes.
#[test]
fn commands_have_exit_codes_if_sigchld_was_ignored() {
    let mut map = Command::new("env");
    map.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_fiber"), "map"]);
    map.args(["--retries", "1", "--", "sh", "-c", "echo $0; exit $0", ":::", "0", "3"]);
    let ended = Ended(map.stdin(Stdio::null()).output().expect("it can be started"));
    assert_eq!(ended.stdout(), "0\n3\n");
    ended.failed(1, &["exit code 3", "1 of 2 commands failed"]);
}

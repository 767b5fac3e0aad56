//! Tests of the command without an engine: its documentation, its errors, and the backend `local`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use fiber_journal::{CallId, CallLabel, Entry, Journal, OutcomeKind, Recorder, Store, TaskKey};
use serde_json::{Value, json};

pub(crate) fn fiber(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fiber"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FIBER_") {
            command.env_remove(name);
        }
    }
    // This directory has neither a fiber.toml nor a Dockerfile.
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    command
}

pub(crate) fn output(arguments: &[&str]) -> Output {
    fiber(arguments).output().expect("it can be started")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub(crate) fn fails(arguments: &[&str], code: i32, words: &[&str]) {
    let output = output(arguments);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.starts_with("error: "), "{errors}");
    for word in words {
        assert!(errors.contains(word), "`{word}` is missing in: {errors}");
    }
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    for arguments in [&["ps"][..], &["ps", "--json"], &["completions", "bash"], &["man"]] {
        let (reader, writer) = std::io::pipe().expect("there are descriptors");
        drop(reader);
        let output = fiber(arguments).stdout(writer).output().expect("it can be started");
        // Sessions of others on this machine may not answer.
        let errors = text(&output.stderr);
        let own: Vec<_> = errors.lines().filter(|line| !line.starts_with("warning: ")).collect();
        assert_eq!((output.status.code(), &*own), (Some(0), &[][..]), "{arguments:?}");
    }
}

#[test]
fn the_reference_pages_are_up_to_date() {
    let page = |name: &str, arguments: &[&str]| {
        let said = text(&output(arguments).stdout);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/{name}.md"));
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(said == written, "docs/{name}.md is stale: run `make reference`");
        said
    };
    page("configuration", &["reference", "--configuration"]);
    let said = page("cli", &["reference"]);
    for command in [
        "new",
        "run",
        "map",
        "ps",
        "top",
        "stack",
        "profile",
        "logs",
        "kill",
        "cp",
        "clean",
        "entities",
        "entities list",
        "entities show",
        "entities events",
        "journal",
        "journal ls",
        "journal show",
        "journal export",
        "journal verify",
        "journal prune",
        "completions",
        "man",
    ] {
        assert!(said.contains(&format!("\n## fiber {command}\n")), "{command} is missing");
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = output(&["completions", shell]);
        let said = text(&output.stdout);
        assert!(
            output.status.success() && said.contains("fiber") && said.contains("attach"),
            "{shell}: {said}"
        );
    }
    // The shell parses them without an error.
    let bash = text(&output(&["completions", "bash"]).stdout);
    let checked = Command::new("bash").args(["-n", "-c", &bash]).output().expect("there is a bash");
    assert!(checked.status.success() && checked.stderr.is_empty(), "{}", text(&checked.stderr));
}

#[test]
fn every_command_has_a_manual_page() {
    assert!(text(&output(&["man"]).stdout).contains(".TH fiber 1"));
    let directory = tempfile::tempdir().expect("there is room");
    assert!(output(&["man", &directory.path().display().to_string()]).status.success());
    for page in [
        "fiber",
        "fiber-new",
        "fiber-run",
        "fiber-map",
        "fiber-ps",
        "fiber-logs",
        "fiber-kill",
        "fiber-cp",
        "fiber-clean",
        "fiber-stack",
        "fiber-top",
        "fiber-profile",
    ] {
        let written = std::fs::read_to_string(directory.path().join(format!("{page}.1")))
            .expect("it is there");
        assert!(written.contains(&format!(".TH {page} 1")), "{page}: {written}");
    }
    fails(&["man", "/no/such/directory"], 1, &["/no/such/directory"]);
}

#[test]
fn the_local_backend_executes_the_program() {
    let ending = output(&[
        "run",
        "--env",
        "GREETING=hello",
        "bash",
        "-c",
        "echo $GREETING $FIBER_BACKEND; echo oh >&2; exit 3",
    ]);
    assert_eq!(
        (ending.status.code(), text(&ending.stdout), text(&ending.stderr)),
        (Some(3), "hello local\n".into(), "oh\n".into())
    );
    // The program replaces the command, so signals reach it.
    let child = fiber(&["run", "-a", "bash", "-c", "echo $$"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can be started");
    let pid = child.id();
    assert_eq!(text(&child.wait_with_output().expect("it ends").stdout).trim(), pid.to_string());
}

#[test]
fn a_variable_that_is_no_text_is_not_forwarded() {
    let mut command = fiber(&["run", "--env", "PLACE", "true"]);
    let output = command.env("PLACE", OsStr::from_bytes(b"caf\xe9")).output();
    let output = output.expect("it can be started");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{errors}");
    assert!(errors.contains("its value is no UTF-8: write PLACE=VALUE"), "{errors}");
}

/// Heads are processes of this host also where their workers are on machines over ssh.
#[test]
fn the_ssh_backend_executes_the_program_here() {
    let ending = output(&["run", "--backend", "ssh", "bash", "-c", "echo $FIBER_BACKEND"]);
    assert_eq!((ending.status.code(), text(&ending.stdout)), (Some(0), "ssh\n".into()));
    for command in [&["ps"][..], &["top", "--once"]] {
        let listed =
            fiber(command).env("FIBER_BACKEND", "ssh").output().expect("it can be started");
        assert!(listed.status.success(), "{}", text(&listed.stderr));
    }
}

#[test]
fn grid_engine_without_its_commands_is_an_error_with_the_remedy() {
    for arguments in
        [&["run", "--backend", "gridengine", "/bin/true"][..], &["ps", "--backend", "gridengine"]]
    {
        let mut command = fiber(arguments);
        let output = command
            .env("PATH", "/no/such")
            .env_remove("SGE_ROOT")
            .output()
            .expect("it can be started");
        assert!(!output.status.success());
        let errors = text(&output.stderr);
        assert!(
            errors.contains("there is no command `q") && errors.contains("settings"),
            "{errors}"
        );
    }
}

#[test]
fn options_for_containers_are_refused_on_local() {
    let options: [&[&str]; 6] = [
        &["--image", "x"],
        &["--memory", "1GiB"],
        &["--cpu", "1"],
        &["--gpu", "1"],
        &["-v", "nfs"],
        &["--name", "x"],
    ];
    for option in options {
        fails(&[&["run"], option, &["true"]].concat(), 125, &["--backend docker"]);
    }
    for command in [&["clean"][..], &["cp", "a:/b", "c"]] {
        fails(command, 1, &["`local`: it has no sessions", "--backend"]);
    }
    // With ssh, a container would not be the remedy.
    let here = "the program itself runs as a process of this host: leave it out";
    fails(&["run", "--backend", "ssh", "--name", "x", "true"], 125, &[here]);
}

#[test]
fn a_program_that_does_not_run_is_not_found() {
    let listed = output(&["ps"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    fails(&["top"], 1, &["this output is none", "`--once`", "`--json`"]);
    for command in ["logs", "kill", "stack", "profile"] {
        fails(
            &[command, "no-such-program"],
            1,
            &["`no-such-program`: `fiber ps` and `fiber top` list all"],
        );
    }
}

#[test]
fn programs_that_cannot_run_exit_with_the_codes_of_shells() {
    let directory = tempfile::tempdir().expect("there is room");
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("text"), "hello").expect("there is room");
    std::fs::copy("/bin/true", path("program")).expect("there is room");
    fails(&["run", "no-such-program"], 127, &["`no-such-program` in PATH"]);
    fails(&["run", "Cargo.toml"], 127, &["did you mean `./Cargo.toml`?"]);
    fails(&["run", &path("progrem")], 127, &["did you mean", "program`?"]);
    fails(&["run", &path("else/where")], 127, &["build it first"]);
    fails(&["run", &path("text")], 126, &["chmod +x"]);
    fails(&["run", &path("")], 126, &["is a directory"]);
    fails(&["run"], 125, &["there is nothing to run"]);
    fails(&["run", "--backend", "docker"], 125, &["there is nothing to run"]);
}

#[test]
fn an_invalid_command_line_is_explained() {
    fails(&["run", "--memory", "much", "true"], 2, &["--memory", "512MiB"]);
    fails(&["run", "--memory", "0", "true"], 2, &["--memory", "512MiB"]);
    fails(&["run", "--cpu", "-1", "true"], 2, &["--cpu"]);
    fails(&["run", "--cpu", "nan", "true"], 2, &["--cpu", "0.5"]);
    fails(&["run", "--gpu", "some", "true"], 2, &["--gpu"]);
    fails(&["profile", "--seconds", "0", "x"], 2, &["--seconds", "above 0"]);
    fails(&["top", "--interval", "1ms"], 2, &["--interval", "500ms"]);
    fails(&["top", "--once", "--json"], 2, &["--once", "--json"]);
    fails(&["profile", "--hertz", "0", "x"], 2, &["--hertz"]);
    fails(&["run", "--name", "My Job", "true"], 2, &["--name", "lower case"]);
    fails(&["run", "--volume", "nfs:data", "true"], 2, &["`nfs:data`", "CLAIM:/PATH"]);
    fails(&["run", "--backend", "dokcer", "true"], 2, &["'docker'"]);
    fails(&["run", "--image", "a", "--dockerfile", "b", "true"], 2, &["--dockerfile"]);
    fails(&["cp", "a", "b"], 1, &["CLAIM:/PATH"]);
    fails(&["cp", "--backend", "docker", "nfs:a", "b"], 1, &["`nfs:a`", "CLAIM:/PATH"]);
    fails(&["log"], 2, &["'logs'"]);
}

#[test]
fn an_invalid_configuration_is_explained() {
    let output = fiber(&["ps"]).env("FIBER_BACKEND", "dokcer").output().expect("it can be started");
    let errors = text(&output.stderr);
    assert_eq!(errors.matches("`backend` is `dokcer`").count(), 1, "{errors}");
}

#[test]
fn sections_of_a_program_s_own_backend_are_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fiber.toml");
    std::fs::write(&file, "processes = 2\n[launcher]\ncommand = 'nice'\n").unwrap();
    let map = || fiber(&["map", "--", "echo", "{}", ":::", "1"]);
    let output = map().env("FIBER_CONFIG", &file).output().expect("it can be started");
    assert_eq!(text(&output.stdout), "1\n", "{}", text(&output.stderr));
    // A name outside of sections is a mistake.
    std::fs::write(&file, "proceses = 2\n").unwrap();
    let output = map().env("FIBER_CONFIG", &file).output().expect("it can be started");
    assert!(text(&output.stderr).contains("did you mean `processes`?"), "{output:?}");
}

#[test]
fn the_variables_of_a_child_are_not_configuration() {
    // The command may run in a worker's container, whose environment has them.
    let mut command = fiber(&["ps"]);
    command.envs([("FIBER_PARENT", "1:2:3:unix:a"), ("FIBER_BACKEND", "dokcer")]);
    let output = command.output().expect("it can be started");
    let errors = text(&output.stderr);
    assert!(errors.contains("dokcer") && !errors.contains("FIBER_PARENT"), "{errors}");
}

/// Makes a journal with two calls and a slot in this folder.
fn make_journal(path: &Path) {
    let store = Store::open(path, &Journal::at(path)).expect("there is room");
    let label = |name: &str| CallLabel {
        name: name.into(),
        function: "program::square".into(),
        version: "1".into(),
    };
    let calls = [store.call(&label("#0")), store.call(&label("named"))];
    let keys = calls.map(|call| store.keys(call).key(b"", std::iter::empty()));
    store.record(Box::new(Recorded { calls, keys }));
    store.flush();
}

struct Recorded {
    calls: [CallId; 2],
    keys: [TaskKey; 2],
}

impl Entry for Recorded {
    fn record(&self, recorder: &mut Recorder<'_>) {
        let Recorded { calls, keys } = self;
        let value = fiber_values::codec::encode(&("nine", 9)).expect("it can be encoded");
        recorder.outcome(calls[0], keys[0], 3, OutcomeKind::Returned, &value, &[]);
        recorder.outcome(calls[0], keys[0], 4, OutcomeKind::Failed, &value, &[]);
        recorder.outcome(calls[1], keys[1], 0, OutcomeKind::Returned, &[0x92], &[]);
        recorder.put("actor/a", 0, b"\x01", &[]);
        recorder.put("actor/a", 0, b"\x02", &[]);
    }

    fn recorded(self: Box<Self>, result: fiber_core::Result<()>) {
        result.expect("there is room");
    }
}

fn json(arguments: &[&str]) -> Value {
    let output = output(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

#[test]
fn journals_are_listed_and_shown() {
    let folder = tempfile::tempdir().expect("there is room");
    let all = folder.path().display().to_string();
    assert!(text(&output(&["journal", "ls", &all]).stdout).contains("no journals"));
    let path = folder.path().join("sweep");
    make_journal(&path);
    let list = text(&output(&["journal", "ls", &all]).stdout);
    assert!(list.contains("NAME") && list.contains("sweep") && list.contains("closed"), "{list}");
    let list = json(&["journal", "ls", "--json", &all]);
    assert_eq!(list[0]["name"], "sweep");

    let path = path.display().to_string();
    let shown = text(&output(&["journal", "show", &path]).stdout);
    for word in ["#0", "named", "program::square", "actor/a"] {
        assert!(shown.contains(word), "{shown}");
    }
    let shown = json(&["journal", "show", "--json", &path]);
    assert_eq!(
        (&shown["calls"][0]["returned"], &shown["calls"][0]["failed"]),
        (&1.into(), &1.into())
    );
    // A name is looked up in the configured folder.
    let by_name = fiber(&["journal", "show", "sweep"]).env("FIBER_JOURNALS", &all).output();
    assert!(by_name.expect("it can be started").status.success());
    fails(&["journal", "show", &all], 1, &["no journal"]);
    fails(&["journal", "show", "./missing"], 1, &["missing", "No such file"]);
}

#[test]
fn a_journal_is_exported_as_lines_of_json() {
    let folder = tempfile::tempdir().expect("there is room");
    make_journal(folder.path());
    let path = folder.path().display().to_string();
    let lines = |arguments: &[&str]| {
        let output = output(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let lines = text(&output.stdout);
        let lines = lines.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
        lines.collect::<Vec<Value>>()
    };
    let outcome = |name: &str, index: u64, outcome: &str, value: Value| {
        json!({
            "name": name,
            "function": "program::square",
            "version": "1",
            "index": index,
            "outcome": outcome,
            "value": value,
        })
    };
    let expected = [
        outcome("#0", 3, "returned", json!(["nine", 9])),
        outcome("#0", 4, "failed", json!(["nine", 9])),
        outcome("named", 0, "returned", json!({ "hex": "92" })),
        json!({ "slots": "actor/a", "slot": 0, "value": 2 }),
    ];
    assert_eq!(lines(&["journal", "export", &path]), expected);
    assert_eq!(lines(&["journal", "export", "--call", "named", &path]), expected[2..3]);
}

#[test]
fn a_journal_is_verified_and_pruned() {
    let folder = tempfile::tempdir().expect("there is room");
    make_journal(folder.path());
    let path = folder.path().display().to_string();
    let whole = output(&["journal", "verify", &path]);
    assert!(whole.status.success() && text(&whole.stdout).contains("is whole"));
    let pruned = json(&["journal", "prune", "--json", "--failed", "--call", "named", &path]);
    assert_eq!((&pruned["outcomes"], &pruned["slots"]), (&2.into(), &1.into()));
    let shown = json(&["journal", "show", "--json", &path]);
    let calls = shown["calls"].as_array().expect("it is a list");
    assert_eq!((calls.len(), &calls[0]["failed"]), (1, &0.into()));

    // Pruning has sealed the segment, so all of it was on disk.
    let file = folder.path().join("00000001.outcomes");
    let mut bytes = std::fs::read(&file).expect("it is there");
    bytes[150] ^= 1;
    std::fs::write(&file, bytes).expect("there is room");
    let damaged = output(&["journal", "verify", &path]);
    let said = text(&damaged.stdout);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(said.contains("00000001.outcomes") && said.contains("--damaged"), "{said}");
    fails(&["journal", "prune", &path], 1, &["damaged"]);
    assert!(output(&["journal", "prune", "--damaged", &path]).status.success());
    assert!(output(&["journal", "verify", &path]).status.success());
}

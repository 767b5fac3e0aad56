//! Tests of `fiber map` with real processes on this machine.

mod ends;
mod input;
mod journal;
mod outcomes;
mod page;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder of a test, in which its maps run.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("there is room"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).expect("there is room");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Makes a named pipe.
    fn pipe(&self, name: &str) {
        let made = Command::new("mkfifo").arg(self.path(name)).status();
        assert!(made.expect("there is a mkfifo").success());
    }

    /// Opens a named pipe, once a process has opened it for writing.
    fn open_pipe(&self, name: &str) -> BufReader<File> {
        BufReader::new(File::open(self.path(name)).expect("the pipe exists"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        // A test run in the background of a script, or under `nohup`, inherits ignored signals.
        command.args(["--default-signal=INT,QUIT,TERM,HUP", env!("CARGO_BIN_EXE_fiber")]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FIBER_") {
                command.env_remove(name);
            }
        }
        command.arg("map").args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn map(&self, arguments: &[&str]) -> Ended {
        Ended(self.command(arguments).output().expect("it can be started"))
    }

    fn map_input(&self, arguments: &[&str], input: &[u8]) -> Ended {
        let mut child = self.spawn_with(arguments, Stdio::piped());
        child.stdin.take().expect("it is a pipe").write_all(input).expect("it reads");
        Ended(child.wait_with_output().expect("it ends"))
    }

    fn spawn(&self, arguments: &[&str]) -> Child {
        self.spawn_with(arguments, Stdio::null())
    }

    fn spawn_with(&self, arguments: &[&str], stdin: Stdio) -> Child {
        let mut command = self.command(arguments);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it can be started")
    }
}

/// A map that has ended.
struct Ended(Output);

impl Ended {
    fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    #[track_caller]
    fn succeeded(self) -> Ended {
        assert_eq!(self.code(), Some(0), "{}", self.stderr());
        self
    }

    #[track_caller]
    fn failed(self, code: i32, words: &[&str]) -> Ended {
        let errors = self.stderr();
        assert_eq!(self.code(), Some(code), "{errors}");
        for word in words {
            assert!(errors.contains(word), "`{word}` is missing in: {errors}");
        }
        self
    }

    fn json(&self) -> Vec<Value> {
        let stdout = self.stdout();
        stdout.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
    }
}

/// Reads the line that a process writes when it is there.
fn wait_for_line(pipe: &mut BufReader<File>) -> String {
    let mut line = String::new();
    pipe.read_line(&mut line).expect("the pipe works");
    line.trim_end().to_string()
}

/// Waits until all processes that hold the pipe have ended.
fn wait_for_end(mut pipe: BufReader<File>) {
    pipe.read_to_end(&mut Vec::new()).expect("the pipe works");
}

fn exists(path: &Path) -> bool {
    path.try_exists().expect("the folder can be read")
}

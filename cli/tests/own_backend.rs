//! Sessions of a backend outside of fiber, in a command that links it.
//!
//! This program is that command if a folder is in its environment. Each file there is a session that
//! runs, with its output.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::{fs, io};

use fiber::backend::sessions::{
    ByteStream, Bytes, Cluster, ExitStatus, LocalBoxStream, OutputChunk, Progress, RunRequest,
    SessionBackend, SessionProcess, Started, Volume,
};
use fiber::backend::{BackendEntry, JobPlace, Local, LocalBoxFuture};
use fiber::error::{Error, Result};
use futures_util::StreamExt;
use futures_util::future::ready;
use futures_util::stream::once;
use libtest_mimic::{Arguments, Trial};

const FOLDER: &str = "TEST_SESSIONS";

static SESSIONS: SessionBackend =
    SessionBackend::new("paper", "Paper", "Files of a folder", |_| Box::pin(ready(Ok(folder()))));

fiber::backend::register!(
    BackendEntry::new("paper", |config| Ok(Arc::new(Local::new(config)))).sessions(&SESSIONS)
);

fn folder() -> Box<dyn Cluster> {
    let folder = std::env::var_os(FOLDER).expect("the test names it");
    Box::new(Folder(folder.into()))
}

#[derive(Debug)]
struct Folder(PathBuf);

fn failed(error: io::Error) -> Error {
    Error::system("the folder", error.to_string())
}

fn refused<'a, T: 'a>() -> LocalBoxFuture<'a, Result<T>> {
    Box::pin(ready(Err(failed(io::ErrorKind::Unsupported.into()))))
}

impl Folder {
    fn end(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    fn list(&self) -> io::Result<Vec<SessionProcess>> {
        let process = |entry: io::Result<fs::DirEntry>| {
            let name = entry?.file_name().to_string_lossy().into_owned();
            Ok(SessionProcess::new(name, JobPlace::Machine { name: "desk".into() }))
        };
        fs::read_dir(&self.0)?.map(process).collect()
    }
}

impl Cluster for Folder {
    fn unit(&self) -> &'static str {
        "file"
    }

    fn includes(&self, backend: &str) -> bool {
        backend == SESSIONS.name
    }

    fn start<'a>(
        &'a self,
        _: &'a RunRequest,
        _: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Started>> {
        refused()
    }

    fn remove_session<'a>(&'a self, _: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        refused()
    }

    fn processes(&self) -> LocalBoxFuture<'_, Result<Vec<SessionProcess>>> {
        Box::pin(ready(self.list().map_err(failed)))
    }

    fn logs<'a>(
        &'a self,
        name: &'a str,
        _: bool,
        _: Option<u64>,
    ) -> LocalBoxFuture<'a, Result<LocalBoxStream<'a, Result<OutputChunk>>>> {
        let output = fs::read(self.0.join(name)).map_err(failed);
        let chunk = output.map(|bytes| OutputChunk::Stdout(Bytes::from(bytes)));
        Box::pin(ready(Ok(once(ready(chunk)).boxed_local())))
    }

    fn wait<'a>(&'a self, _: &'a str) -> LocalBoxFuture<'a, Result<ExitStatus>> {
        refused()
    }

    fn stop<'a>(&'a self, name: &'a str, _: u32) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(ready(self.end(name)))
    }

    fn remove<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(ready(self.end(name)))
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        refused()
    }

    fn inspect<'a>(&'a self, _: &'a str) -> LocalBoxFuture<'a, Result<Box<dyn ByteStream>>> {
        refused()
    }

    fn volume<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Box<dyn Volume + 'a>>> {
        refused()
    }
}

fn main() -> ExitCode {
    if std::env::var_os(FOLDER).is_some() {
        return fiber_cli::main();
    }
    let name = "a_backend_outside_of_fiber_shows_in_a_command_that_links_it";
    let shows = Trial::test(name, || {
        shows();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![shows]).exit_code()
}

/// Runs this program as the command, and returns its output.
fn command(folder: &Path, arguments: &[&str]) -> String {
    let mut own = Command::new(std::env::current_exe().expect("it has a path"));
    let own = own.args(arguments).env(FOLDER, folder).env("FIBER_BACKEND", "paper");
    let ended = own.output().expect("it can be started");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{arguments:?}: {errors}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

fn shows() {
    let folder = tempfile::tempdir().expect("there is room");
    let command = |arguments: &[&str]| command(folder.path(), arguments);
    fs::write(folder.path().join("letter"), "dear reader\n").expect("there is room");
    let listed = command(&["ps", "--backend", "paper"]);
    assert!(listed.contains("letter") && listed.contains("machine desk"), "{listed}");
    assert_eq!(command(&["logs", "letter"]), "dear reader\n");
    let killed = command(&["kill", "letter"]);
    assert!(killed.contains("Killed letter"), "{killed}");
    assert_eq!(command(&["ps", "--backend", "paper"]).trim(), "There are no sessions.");
}

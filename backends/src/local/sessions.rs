//! The programs of this host as sessions, for the command `fiber`.
//!
//! A head is a process that listens at an inspector's socket. Its session is called by its pid, and
//! only the head knows the processes below it.

mod heads;
mod process;

use fiber_core::{Error, Result, on_a_thread};
use futures_util::future::{LocalBoxFuture, ready};
use futures_util::stream::LocalBoxStream;

use crate::JobPlace;
use crate::cluster::session::{
    ByteStream, Cluster, ExitStatus, OutputChunk, ProgramSource, RunRequest, SessionHead,
    SessionProcess, Started,
};
use crate::cluster::volume::Volume;
use crate::cluster::{SessionBackend, no_sessions};
use crate::progress::Progress;

/// The options of `fiber run` that are for containers, and what happens without one.
pub(crate) const REFUSED: (&[&str], &str) = (
    &["image", "dockerfile", "bundle", "cpu", "memory", "gpu", "volume", "name", "json"],
    "the program would run as a process of this host: add `--backend docker`, or leave it out",
);

/// The default backend, as the command sees it.
pub(crate) static SESSIONS: SessionBackend = SessionBackend {
    run_examples: &["--restarts 3 target/release/my-program"],
    refused: REFUSED,
    ..SessionBackend::new("local", "this host", "Processes of this host", |_| {
        Box::pin(ready(Ok(host_sessions("local"))))
    })
};

/// Returns the programs of this host that use a backend for their children; for `local` all.
pub(crate) fn host_sessions(backend: &'static str) -> Box<dyn Cluster> {
    Box::new(HostSessions { backend })
}

/// Programs of this host.
#[derive(Debug)]
struct HostSessions {
    /// The backend of the programs that [`Cluster::start`] starts.
    backend: &'static str,
}

impl Cluster for HostSessions {
    fn unit(&self) -> &'static str {
        "process"
    }

    fn includes(&self, backend: &str) -> bool {
        self.backend == SESSIONS.name || self.backend == backend
    }

    fn lists_children(&self) -> bool {
        false
    }

    fn start<'a>(
        &'a self,
        run: &'a RunRequest,
        _: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Started>> {
        let ProgramSource::Executable(path) = &run.source else {
            let problem = "a program of this host is an executable, not an image";
            return Box::pin(ready(Err(Error::not_started(&run.name, problem))));
        };
        let mut command = std::process::Command::new(path);
        let given = run.given.iter().map(|(name, value)| (name, value));
        command.args(&run.command).envs(given).env("FIBER_BACKEND", self.backend);
        Box::pin(ready(Ok(Started::Here(command))))
    }

    /// Does nothing: a session has no more than its processes, which end with their head.
    fn remove_session<'a>(&'a self, _: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(ready(Ok(())))
    }

    fn processes(&self) -> LocalBoxFuture<'_, Result<Vec<SessionProcess>>> {
        Box::pin(async {
            let heads = self.heads().await?.into_iter().flatten();
            Ok(heads.filter_map(|head| Some(process(head.pid?))).collect())
        })
    }

    fn heads(&self) -> LocalBoxFuture<'_, Result<Vec<Result<SessionHead, String>>>> {
        Box::pin(async { Ok(heads::all().await) })
    }

    fn logs<'a>(
        &'a self,
        name: &'a str,
        _: bool,
        _: Option<u64>,
    ) -> LocalBoxFuture<'a, Result<LocalBoxStream<'a, Result<OutputChunk>>>> {
        let what = format!("the output of {name} is where it was started");
        let places = "in its terminal, or the file or service that it was redirected to";
        Box::pin(ready(Err(Error::system(what, places))))
    }

    /// Waits for the end of the process. Its exit code is an error: the system tells it only to the
    /// process that has started it.
    fn wait<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<ExitStatus>> {
        Box::pin(async move {
            let pid = pid(name)?;
            let ended = on_a_thread(move || process::wait(pid)).await?;
            ended.map_err(|error| {
                Error::system(format!("the end of {name} can't be waited for"), error)
            })?;
            let unknown = "its exit code is known where it was started";
            Err(Error::system(format!("{name} has ended"), unknown))
        })
    }

    fn stop<'a>(&'a self, name: &'a str, grace: u32) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let pid = pid(name)?;
            let ended = on_a_thread(move || process::end(pid, grace)).await?;
            ended.map_err(|error| Error::system(format!("{name} can't be killed"), error))
        })
    }

    /// Kills a head. A process below one has ended with it, or by [`Cluster::stop`]: its pid may be
    /// another's by now.
    fn remove<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if !process::exists(pid(name)?) {
                return Ok(());
            }
            let heads = self.heads().await?;
            match heads.iter().flatten().any(|head| head.name == name) {
                true => self.stop(name, 0).await,
                false => Ok(()),
            }
        })
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(ready(Err(no_sessions(self.backend))))
    }

    fn inspect<'a>(
        &'a self,
        inspector: &'a str,
    ) -> LocalBoxFuture<'a, Result<Box<dyn ByteStream>>> {
        Box::pin(heads::inspect(inspector))
    }

    fn volume<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: &'a dyn Progress,
    ) -> LocalBoxFuture<'a, Result<Box<dyn Volume + 'a>>> {
        Box::pin(ready(Err(no_sessions(self.backend))))
    }
}

/// Returns a head as it is listed: the rest is what its inspector says.
fn process(pid: u32) -> SessionProcess {
    let place = JobPlace::Process { pid };
    SessionProcess { has_output: false, ..SessionProcess::new(place.to_string(), place) }
}

/// Returns the pid of a process of this cluster from its name, `pid 4711`.
fn pid(name: &str) -> Result<u32> {
    let number = name.strip_prefix("pid ").and_then(|number| number.parse().ok());
    number.ok_or_else(|| Error::system(format!("`{name}`"), "it is no process of this host"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_called_by_its_pid() {
        assert_eq!(pid(&process(4711).job).unwrap(), 4711);
        for wrong in ["4711", "pid x", "container fiber-1"] {
            assert!(pid(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_process_that_is_no_head_is_not_removed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let name = format!("pid {}", child.id());
        let host = host_sessions("local");
        host.remove(&name).await.unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        host.stop(&name, 0).await.unwrap();
        child.wait().unwrap();
        host.remove(&name).await.unwrap();
    }
}

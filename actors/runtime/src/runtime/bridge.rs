//! The bridge: connects standard input and output with the inspector of the head in the same
//! container, pod or batch job.
//!
//! The command `fiber` runs a head's program again in its container, with [`BRIDGE`] as the only
//! argument: an image may have neither a shell nor another program. In a Slurm job it is a step of
//! its own.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::{env, fs};

use fiber_core::inspect::{self, BRIDGE, GREETING, READY};
use fiber_core::start_thread;
use tokio::net::UnixStream;
use tokio::runtime::Builder;

/// Becomes the bridge and exits, if that is what this process was started for.
pub(super) fn run_if_asked() {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(BRIDGE)) || arguments.next().is_some() {
        return;
    }
    let code = match connect() {
        Ok(head) => {
            let _ = writeln!(io::stdout(), "{GREETING}{READY}");
            let _ = relay(head);
            0
        }
        Err(problem) => {
            let _ = writeln!(io::stdout(), "{GREETING}{problem}");
            1
        }
    };
    // Without the program's exit handlers: none of it has run.
    signal_hook::low_level::exit(code)
}

fn connect() -> Result<StdUnixStream, String> {
    // The program may have called `init` in a runtime, where none can wait for another.
    let connected = std::thread::scope(|scope| scope.spawn(find).join());
    let stream = connected.unwrap_or_else(|_| Err("it panicked".into()))?;
    stream.set_nonblocking(false).map_err(|error| error.to_string())?;
    Ok(stream)
}

/// Returns the first head that runs here.
fn find() -> Result<StdUnixStream, String> {
    let runtime = Builder::new_current_thread().enable_io().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let found = inspect::sockets();
        // On a machine, which its user's programs share. A container or pod has one.
        let job = fiber_backends::job_variables().find_map(|name| Some((name, env::var_os(name)?)));
        let job = job.filter(|_| found.len() > 1);
        let mut problem = "no program with an inspector runs here".to_string();
        for socket in &found {
            match connect_to(socket, job.as_ref().map(|(name, id)| (*name, id.as_os_str()))).await {
                Ok(stream) => return Ok(stream),
                Err(error) => problem = format!("the inspector can't be reached: {error}"),
            }
        }
        Err(problem)
    })
}

/// Connects to a head, which has to be of the batch job, if one is given.
async fn connect_to(socket: &Path, job: Option<(&str, &OsStr)>) -> io::Result<StdUnixStream> {
    let stream = UnixStream::connect(socket).await?;
    let head = stream.peer_cred()?.pid().unwrap_or_default();
    // A shared directory shows the sockets of other containers.
    if head <= 0 {
        return Err(io::Error::other("it runs outside of this container"));
    }
    if job.is_some_and(|job| !is_of_job(head, job)) {
        return Err(io::Error::other("it is of another job"));
    }
    stream.into_std()
}

/// Returns whether a process was started by a batch job, which a variable names.
fn is_of_job(process: i32, (name, id): (&str, &OsStr)) -> bool {
    let wanted = [name.as_bytes(), b"=", id.as_bytes()].concat();
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
}

/// Returns when one side closes.
fn relay(mut head: StdUnixStream) -> io::Result<u64> {
    let mut to_head = head.try_clone()?;
    start_thread("fiber-bridge", move || {
        let _ = io::copy(&mut io::stdin(), &mut to_head);
        // The other direction ends with this.
        let _ = to_head.shutdown(std::net::Shutdown::Both);
    })?;
    // Answers are lines, and the standard output is flushed after each.
    io::copy(&mut head, &mut io::stdout())
}

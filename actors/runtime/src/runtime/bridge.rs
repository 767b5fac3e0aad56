//! The bridge: connects standard input and output with the inspector of the head in the same
//! container, pod or batch job.
//!
//! The command `fiber` runs a head's program again in its container, with [`BRIDGE`] as the only
//! argument: an image may have neither a shell nor another program. In a Slurm job it is a step of
//! its own.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::{env, fs};

use fiber_core::inspect::{self, BRIDGE, GREETING, READY, Socket};
use fiber_core::start_thread;
use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;

/// The variables with the id of the job that a process is in, of Slurm and Grid Engine.
const JOB_IDS: [&str; 2] = ["SLURM_JOB_ID", "JOB_ID"];

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

fn connect() -> Result<UnixStream, String> {
    let mut found =
        inspect::sockets().map_err(|error| format!("/proc/net/unix can't be read: {error}"))?;
    if found.len() > 1 {
        // In the network namespace of the machine, or of a pod with several containers.
        let job = JOB_IDS.iter().find_map(|name| Some((*name, env::var_os(name)?)));
        let own = own_sockets(job.as_ref().map(|(name, id)| (*name, id.as_os_str())));
        found.retain(|socket| own.contains(&socket.inode));
    }
    let mut problem = "no program with an inspector runs here".to_string();
    for socket in &found {
        match connect_to(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) => problem = format!("the inspector can't be reached: {error}"),
        }
    }
    Err(problem)
}

fn connect_to(socket: &Socket) -> io::Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(&socket.name)?;
    let stream = UnixStream::connect_addr(&address)?;
    let (own, peer) = (getuid(), socket_peercred(&stream)?.uid);
    if peer != own && !own.is_root() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is another user's"));
    }
    Ok(stream)
}

/// Returns the numbers of the sockets that visible processes hold, or only those of a batch job.
fn own_sockets(job: Option<(&str, &OsStr)>) -> HashSet<String> {
    let is_process = |name: &OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    let entries = |path| fs::read_dir(path).into_iter().flatten().flatten();
    entries("/proc".into())
        .filter(|process| is_process(&process.file_name()))
        .filter(|process| job.is_none_or(|job| is_of_job(&process.path(), job)))
        .flat_map(|process| entries(process.path().join("fd")))
        .filter_map(|file| {
            let target = fs::read_link(file.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_string())
        })
        .collect()
}

/// Returns whether a process of `/proc` was started by a batch job, which a variable names. Jobs of
/// one user see each other's processes.
fn is_of_job(process: &Path, (name, id): (&str, &OsStr)) -> bool {
    let wanted = [name.as_bytes(), b"=", id.as_bytes()].concat();
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
}

/// Returns when one side closes.
fn relay(head: UnixStream) -> io::Result<()> {
    let to_head = head.try_clone()?;
    start_thread("fiber-bridge", move || {
        let _ = copy(io::stdin(), &to_head);
        // The other direction ends with this.
        let _ = to_head.shutdown(std::net::Shutdown::Both);
    })?;
    copy(head, io::stdout())
}

/// Copies at once what is there: `io::copy` may wait for more.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => to.write_all(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        to.flush()?;
    }
}

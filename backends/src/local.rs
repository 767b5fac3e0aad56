//! Jobs as child processes of this process.
//!
//! A child runs the same [`executable`], also when its file was replaced or deleted since this
//! process started. Each child has its own process group. So a Ctrl-C in the terminal reaches the
//! parent only, which stops its children in order, and the programs that a child started can be
//! killed with it: by this process, or by its [guard](guard) if this process is killed.

pub(crate) mod guard;
mod pauses;
mod resources;
#[cfg(feature = "cluster")]
mod sessions;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fiber_core::{Config, Error, Exit, ExitReason, LinkKind, Result, executable, shortage};
use futures_util::future::{LocalBoxFuture, OptionFuture, join};
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::guard::Group;
use self::resources::{Grant, ran_out_of_memory};
#[cfg(all(feature = "cluster", feature = "ssh"))]
pub(crate) use self::sessions::REFUSED;
#[cfg(feature = "cluster")]
pub(crate) use self::sessions::host_sessions;
use crate::gpus::{GpuAllocator, VISIBLE};
use crate::oom::OomKills;
use crate::output::{Log, OutputStream, OutputTarget, Tail, drain, forward_lines};
use crate::{Backend, BackendEntry, Job, JobPlace, JobSpec, JobState, ListenAddress, Locality};

/// Time limit for reading a pipe after its process ended, in case a process that left the group
/// holds it open.
const DRAIN: Duration = Duration::from_millis(500);

pub(crate) const ENTRY: BackendEntry = {
    let entry = BackendEntry::new("local", |config| Ok(Arc::new(Local::new(config))))
        .helper(guard::run_if_guard);
    #[cfg(feature = "cluster")]
    let entry = entry.sessions(&sessions::SESSIONS);
    entry
};

/// Runs jobs as child processes. The default backend.
#[derive(Clone, Debug)]
pub struct Local {
    link: LinkKind,
    gpus: GpuAllocator,
    /// Whether fiber handles signals.
    signals: bool,
}

impl Local {
    /// Creates the backend as configured.
    pub fn new(config: &Config) -> Local {
        Local { link: config.link, gpus: GpuAllocator::new(config), signals: config.signals }
    }

    /// Returns the path by which a command that this process starts finds the program, also if the
    /// program's file was replaced or deleted.
    pub fn program() -> PathBuf {
        match executable().strip_prefix("/proc/self") {
            Ok(rest) => Path::new("/proc").join(std::process::id().to_string()).join(rest),
            Err(_) => executable().into(),
        }
    }

    /// Starts a job by a command of another program, for backends that put one in front of the
    /// job's process. The command has [`Local::program`] as its last argument; the job's arguments
    /// follow, and its environment, input, output and limits are those of the job.
    ///
    /// The command has to become the process, as `nice` does. A command that waits for the process
    /// instead hides its signals, and its `SIGTERM` reaches the command alone.
    ///
    /// # Errors
    /// [`Error::Start`], if the command can't be started or the resources can't be granted.
    pub fn launch(&self, spec: &JobSpec, command: std::process::Command) -> Result<Arc<dyn Job>> {
        self.start(spec, command.into())
    }

    fn start(&self, spec: &JobSpec, command: Command) -> Result<Arc<dyn Job>> {
        let job = spawn(spec, command, &self.gpus)?;
        if self.signals {
            pauses::share_with_children();
        }
        Ok(job)
    }
}

impl Backend for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>> {
        Box::pin(std::future::ready(Ok(ListenAddress::host_only(self.link, Locality::Child))))
    }

    fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>> {
        Box::pin(async move {
            let mut command = Command::new(executable());
            command.arg0(title(&spec));
            self.start(&spec, command)
        })
    }

    /// Does nothing: the kernel ends children with their parent.
    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

#[derive(Debug)]
struct LocalJob {
    pid: Pid,
    /// Whether this process has killed it.
    killed: AtomicBool,
    reaped: AtomicBool,
    tail: Tail,
    states: watch::Sender<JobState>,
}

impl Job for LocalJob {
    fn place(&self) -> JobPlace {
        JobPlace::Process { pid: self.pid.as_raw_nonzero().get().cast_unsigned() }
    }

    fn tail(&self) -> Vec<String> {
        self.tail.lines()
    }

    fn states(&self) -> watch::Receiver<JobState> {
        self.states.subscribe()
    }

    fn terminate(&self) {
        if !self.reaped.load(Ordering::Acquire) {
            let _ = rustix::process::kill_process(self.pid, Signal::TERM);
        }
    }

    fn kill(&self) {
        if !self.reaped.load(Ordering::Acquire) {
            self.killed.store(true, Ordering::Release);
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
    }
}

/// Returns a process's name in process lists.
fn title(spec: &JobSpec) -> OsString {
    let program = std::env::args_os().next().unwrap_or_default();
    let mut title = Path::new(&program).file_name().unwrap_or_default().to_os_string();
    title.push(format!(": {}", spec.name));
    title
}

fn spawn(spec: &JobSpec, mut command: Command, gpus: &GpuAllocator) -> Result<Arc<LocalJob>> {
    let failed = |problem: String| Error::not_started(&spec.name, problem);
    let grant = resources::grant(&spec.meta, gpus)
        .map_err(|error| failed(error.to_string() + &spec.shared_job_remedy()))?;
    let log = Log::of(spec).map_err(|problem| failed(problem.into()))?;
    let stream = || match &log {
        Some(log) => log.file.try_clone().map(Stdio::from).map_err(|error| failed(explain(&error))),
        None => Ok(Stdio::piped()),
    };
    let visible = grant.gpus.as_ref().map(|lease| (VISIBLE, lease.ids.join(",")));
    let mut child = command
        .args(&spec.arguments)
        // Secrets go through standard input: any process of the same user can read the environment
        // of another.
        .envs(spec.shown_variables().chain(visible))
        .stdin(input(spec).map_err(|error| failed(explain(&error)))?)
        .stdout(stream()?)
        .stderr(stream()?)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(explain_start(&command, &error)))?;

    let pid = child
        .id()
        .and_then(|pid| Pid::from_raw(pid as i32))
        .ok_or_else(|| failed("it has no pid".into()))?;
    let group = Group::of(pid);
    resources::limit(pid, &grant).map_err(|error| failed(error.into()))?;
    let tail = Tail::default();
    let job = Arc::new(LocalJob {
        pid,
        tail: tail.clone(),
        killed: AtomicBool::new(false),
        reaped: AtomicBool::new(false),
        states: watch::Sender::new(JobState::Running),
    });
    let target = |stream| OutputTarget::new(&spec.output, stream, &spec.name);
    let out = child
        .stdout
        .take()
        .map(|pipe| forward_lines(pipe, target(OutputStream::Stdout), tail.clone()));
    let errors = child
        .stderr
        .take()
        .map(|pipe| forward_lines(pipe, target(OutputStream::Stderr), tail.clone()));
    let forwarding = fiber_core::spawn_local(async {
        join(OptionFuture::from(out), OptionFuture::from(errors)).await;
    });
    fiber_core::spawn_local(wait_for_exit(
        Arc::clone(&job),
        child,
        group,
        grant,
        forwarding,
        log,
        tail,
    ));
    Ok(job)
}

/// Returns a child's standard input, which has the values of its secrets, one a line.
fn input(spec: &JobSpec) -> std::io::Result<Stdio> {
    if spec.secrets.is_empty() {
        return Ok(Stdio::null());
    }
    let (reader, mut writer) = std::io::pipe()?;
    // A pipe has room for some pages, so this does not wait for the child.
    writer.write_all(spec.secret_lines().as_bytes())?;
    Ok(reader.into())
}

/// Waits for the process's end, then for the end of its output.
async fn wait_for_exit(
    job: Arc<LocalJob>,
    mut child: Child,
    group: Group,
    grant: Grant,
    forwarding: JoinHandle<()>,
    log: Option<Log>,
    tail: Tail,
) {
    let oom_kills = OomKills::so_far();
    let status = child.wait().await;
    // The process may have left others in its group. This kills them.
    drop(group);
    job.reaped.store(true, Ordering::Release);
    drain(forwarding, DRAIN).await;
    if let Some(log) = log {
        tail.add(&log.tail());
    }
    let reason = match status {
        Ok(status)
            if grant.memory.is_some()
                && has_aborted(status)
                && ran_out_of_memory(&tail.lines()) =>
        {
            ExitReason::OutOfMemory
        }
        Ok(status) => {
            let out_of_memory = !job.killed.load(Ordering::Acquire) && oom_kills.have_risen();
            reason(status, out_of_memory)
        }
        Err(error) => ExitReason::LinkLost(format!("its end can't be observed: {error}")),
    };
    // Its GPUs are free before the owner learns of its end and starts a replacement.
    drop(grant);
    job.states.send_replace(JobState::Ended(Exit::new(reason, tail.lines())));
}

fn has_aborted(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::ABORT.as_raw())
}

fn reason(status: ExitStatus, out_of_memory: bool) -> ExitReason {
    match (status.code(), status.signal()) {
        (Some(0), _) => ExitReason::Normal,
        (Some(code), _) => ExitReason::Code(code),
        (None, Some(9)) if out_of_memory => ExitReason::OutOfMemory,
        (None, Some(signal)) => ExitReason::Signal(signal),
        (None, None) => ExitReason::LinkLost(format!("its status is {status}")),
    }
}

fn explain_start(command: &Command, error: &std::io::Error) -> String {
    let program = Path::new(command.as_std().get_program());
    if program.starts_with("/proc") {
        return explain(error);
    }
    let exists = program.exists();
    let program = program.display();
    match error.kind() {
        std::io::ErrorKind::NotFound if exists => format!(
            "`{program}` can't be started: this system has no such loader or interpreter as the file \
             names; change it, as by `patchelf --set-interpreter`"
        ),
        std::io::ErrorKind::NotFound => {
            format!("there is no command `{program}`: install it, or correct its name")
        }
        _ => format!("the command `{program}` can't be started: {}", explain(error)),
    }
}

fn explain(error: &std::io::Error) -> String {
    let remedy = match rustix::io::Errno::from_io_error(error) {
        Some(rustix::io::Errno::NOENT) => "is /proc mounted?",
        Some(rustix::io::Errno::TOOBIG) => {
            "a worker has this program's arguments and variables and some hundred bytes more; \
             see `getconf ARG_MAX`, or pass less in them"
        }
        _ => return shortage::explain(error),
    };
    format!("{error}: {remedy}")
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_job_that_can_not_be_started_names_the_limit_that_is_reached() {
        for (errno, remedy) in [
            (Errno::AGAIN, "`ulimit -u`, that of the control group"),
            (Errno::MFILE, "`ulimit -n`"),
            (Errno::NFILE, "`sysctl fs.file-max`"),
            (Errno::NOMEM, "`ulimit -v`"),
            (Errno::TOOBIG, "`getconf ARG_MAX`"),
            (Errno::NOENT, "is /proc mounted?"),
        ] {
            let problem = explain(&errno.into());
            assert!(problem.contains(remedy), "{problem}");
        }
    }
}

//! The guard: a small process beside this one. If this process is killed, the guard kills the
//! programs that its children started.
//!
//! The kernel's death signal ends fiber's own children with their parent, but not the programs that
//! they started. These programs are in the process group that the child leads, and only a process
//! that outlives this one can kill the group. A child with children has a guard of its own, so the
//! death of any process ends all processes below it.
//!
//! The groups are in a table, a memory file that both processes hold open; where a sandbox denies
//! memory files, it is a temporary file without a name. So the guard needs no messages: it sleeps
//! until this process ends, then reads the table once. A guard that was stopped, killed or started
//! late misses nothing.
//!
//! The guard is the same executable, which becomes a guard in `fiber::init()`. It has one thread,
//! no signal handlers, and its own process group and name, so `pkill` by the program's name does
//! not reach it. It holds no other file of this process open.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, kill_process_group, pidfd_open,
    set_parent_process_death_signal,
};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::explain;

/// The variable that makes a process a guard. Its value is the pid of the process to guard.
const VARIABLE: &str = "FIBER_GUARD";
/// The guard's name in process lists.
const NAME: &str = "fiber-guard";
/// The beginning of the name of the table's file.
const TABLE: &str = "fiber-groups";
/// The pause before a guard is started again, at first and after many ends in a row.
const MIN_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The interval of looking for the parent where the kernel can't wake the guard.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The size of an entry of the table, in bytes.
const ENTRY: usize = size_of::<i32>();

/// The process groups of this process's children: their leaders' pids, and 0 for free entries.
struct Groups {
    leaders: Vec<i32>,
    /// The copy that the guard reads, once there is a guard.
    table: Option<File>,
}

/// A process has one guard, which kills the groups of all its sessions.
static GROUPS: Mutex<Groups> = Mutex::new(Groups { leaders: Vec::new(), table: None });

impl Groups {
    /// Returns the table, and creates it with all groups if it does not exist.
    fn table(&mut self) -> io::Result<&File> {
        if self.table.is_none() {
            let table = match rustix::fs::memfd_create(TABLE, MemfdFlags::CLOEXEC) {
                Ok(table) => File::from(table),
                Err(_) => unlinked()?,
            };
            let bytes: Vec<u8> =
                self.leaders.iter().flat_map(|leader| leader.to_ne_bytes()).collect();
            rustix::io::pwrite(&table, &bytes, 0)?;
            self.table = Some(table);
        }
        Ok(self.table.as_ref().expect("the table was just created"))
    }

    fn set(&mut self, index: usize, leader: i32) {
        self.leaders[index] = leader;
        let Some(table) = &self.table else { return };
        // The kernel writes an aligned entry as a whole: the guard reads the old or the new value.
        if let Err(error) = rustix::io::pwrite(table, &leader.to_ne_bytes(), (index * ENTRY) as u64)
        {
            tracing::warn!(
                "programs that tasks start may outlive this process if it is killed: {error}"
            );
        }
    }
}

/// Creates a temporary file, and removes its name.
fn unlinked() -> io::Result<File> {
    let name = format!("{TABLE}-{:x}", u128::from_le_bytes(fiber_core::random()));
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// The process group of a child: the child itself, which leads it, and the programs that it
/// started. Dropping this kills the group.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Pid,
    index: usize,
}

impl Group {
    /// Registers the group of a new child. The child can't have started other programs yet: it
    /// waits for a message from this thread first.
    pub(crate) fn of(leader: Pid) -> Group {
        let mut groups = GROUPS.lock();
        let free = groups.leaders.iter().position(|leader| *leader == 0);
        let index = free.unwrap_or_else(|| {
            groups.leaders.push(0);
            groups.leaders.len() - 1
        });
        groups.set(index, leader.as_raw_nonzero().get());
        drop(groups);
        ensure_guard();
        Group { leader, index }
    }
}

impl Drop for Group {
    /// The leader may have been reaped by now. The kernel does not reuse its pid while the group
    /// has members. If the group is empty, a new process would have to get the pid and lead a group
    /// within these lines, or this process be killed within them. The kernel hands out pids in
    /// turn, so that takes as many new processes as there are pids.
    fn drop(&mut self) {
        let _ = kill_process_group(self.leader, Signal::KILL);
        GROUPS.lock().set(self.index, 0);
    }
}

/// Sends a signal to the groups of all children.
pub(super) fn signal_groups(signal: Signal) {
    // A group that has ended leaves the table first, so none of these is another's by now.
    let groups = GROUPS.lock();
    for leader in groups.leaders.iter().filter_map(|leader| Pid::from_raw(*leader)) {
        let _ = kill_process_group(leader, signal);
    }
}

/// Whether a task keeps a guard running.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

struct KeptFlag;

impl Drop for KeptFlag {
    fn drop(&mut self) {
        IS_KEPT.store(false, Ordering::Release);
    }
}

/// Starts a task that keeps a guard running, unless one does. It runs after the work that this
/// thread has queued: children come first.
fn ensure_guard() {
    // A program that was started as a guard but did not become one starts no guards.
    if std::env::var_os(VARIABLE).is_none() && !IS_KEPT.swap(true, Ordering::AcqRel) {
        let flag = KeptFlag;
        fiber_core::spawn_local(async move {
            let _flag = flag;
            keep_guard().await
        });
    }
}

/// Keeps a guard running.
async fn keep_guard() {
    let mut pause = MIN_BACKOFF;
    let mut warned = false;
    loop {
        let started = Instant::now();
        let problem = match start() {
            Ok(mut guard) => match guard.wait().await {
                Ok(status) => format!("it ended ({status})"),
                Err(error) => format!("its end can't be observed: {error}"),
            },
            Err(error) => {
                let problem = explain(&error);
                tracing::debug!("the guard of this process can't be started: {problem}");
                format!("it can't be started: {problem}")
            }
        };
        if !std::mem::replace(&mut warned, true) {
            tracing::warn!(
                "the guard of this process will be started again: {problem}. Without a guard, \
                 programs that tasks start outlive this process if it is killed"
            );
        }
        if started.elapsed() > MAX_BACKOFF {
            pause = MIN_BACKOFF;
        }
        sleep(pause).await;
        pause = MAX_BACKOFF.min(2 * pause);
    }
}

fn start() -> io::Result<Child> {
    let table = GROUPS.lock().table()?.try_clone()?;
    Command::new(fiber_core::executable())
        .arg0(NAME)
        .env(VARIABLE, std::process::id().to_string())
        .stdin(table)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Runs as a guard and never returns, if this process was started as one.
pub(crate) fn run_if_guard() {
    let parent = std::env::var(VARIABLE).ok().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    let Some(parent) = parent.filter(|_| holds_table()) else { return };
    // A SIGSTOP to the guard can't be blocked, so its parent's death sends SIGCONT.
    let _ = set_parent_process_death_signal(Some(Signal::CONT));
    fiber_core::at_exit::run_shielded(|| {
        let _ = rustix::thread::set_name(c"fiber-guard");
        wait_for_end(parent);
        kill_groups();
    })
}

/// Returns whether standard input is a table. Any other file holds no process groups.
fn holds_table() -> bool {
    let target = fs::read_link("/proc/self/fd/0").unwrap_or_default();
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("memfd:").unwrap_or(&name).starts_with(TABLE) && name.ends_with(" (deleted)")
}

fn wait_for_end(parent: Pid) {
    let watch = pidfd_open(parent, PidfdFlags::empty());
    // The parent may have ended before, and its pid may belong to another process.
    while getppid() == Some(parent) {
        let ended = match &watch {
            Ok(process) => {
                poll(&mut [PollFd::new(process, PollFlags::IN)], None).is_ok_and(|ready| ready > 0)
            }
            Err(_) => poll(&mut [], Some(&POLL_INTERVAL)).is_err(),
        };
        if ended {
            return;
        }
    }
}

fn kill_groups() {
    let mut index = 0;
    let mut entry = [0; ENTRY];
    while let Ok(ENTRY) = rustix::io::pread(rustix::stdio::stdin().as_fd(), &mut entry, index) {
        // Group 1 would mean all processes.
        if let Some(leader) =
            Pid::from_raw(i32::from_ne_bytes(entry)).filter(|leader| !leader.is_init())
        {
            let _ = kill_process_group(leader, Signal::KILL);
        }
        index += ENTRY as u64;
    }
}

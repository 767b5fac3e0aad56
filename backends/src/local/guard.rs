//! The guard: a small process beside this one. If this process is killed, the guard ends the
//! programs that its children started.
//!
//! The kernel's death signal ends fiber's own children with their parent, but not the programs that
//! those have started. These are in the process group that the child leads, and something that
//! outlives this process has to kill the group. A child that has children itself has a guard of its
//! own, so the death of any process ends all that is below it.
//!
//! The groups stand in a table, a file in memory that both processes hold. So the guard needs no
//! messages: it sleeps until this process ends, then reads the table once. A guard that was
//! stopped, killed or started late misses nothing.
//!
//! The guard is the same executable, which becomes a guard in `fiber::init()`. It has no thread but
//! one, no signal handlers, a process group and a name of its own (`pkill` by the program's name
//! does not reach it), and holds nothing of this process open.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
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

use super::{EXECUTABLE, explain};

/// Makes a process a guard, and tells it the pid of the process that it belongs to.
const VARIABLE: &str = "FIBER_GUARD";
/// The guard's name in process lists.
const NAME: &str = "fiber-guard";
/// The table's name.
const TABLE: &str = "fiber-groups";
/// How soon another guard is started when one ended: at first, and after many ends in a row.
const SOON: Duration = Duration::from_millis(10);
const RARELY: Duration = Duration::from_secs(60);
/// How often a guard looks for its parent where the kernel can't wake it.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The size of an entry of the table.
const ENTRY: usize = size_of::<i32>();

/// The process groups of this process's children: their leaders' pids, and 0 in places that are
/// free.
struct Groups {
    leaders: Vec<i32>,
    /// The same for the guard to read, once there is one.
    table: Option<File>,
}

static GROUPS: Mutex<Groups> = Mutex::new(Groups { leaders: Vec::new(), table: None });

impl Groups {
    /// The table, with all groups in it.
    fn table(&mut self) -> io::Result<&File> {
        if self.table.is_none() {
            let table = File::from(rustix::fs::memfd_create(TABLE, MemfdFlags::CLOEXEC)?);
            let bytes: Vec<u8> =
                self.leaders.iter().flat_map(|leader| leader.to_ne_bytes()).collect();
            rustix::io::pwrite(&table, &bytes, 0)?;
            self.table = Some(table);
        }
        Ok(self.table.as_ref().expect("the table was just made"))
    }

    fn set(&mut self, place: usize, leader: i32) {
        self.leaders[place] = leader;
        let Some(table) = &self.table else { return };
        // The kernel writes an aligned entry as a whole: the guard reads the old one or the new
        // one.
        if let Err(error) = rustix::io::pwrite(table, &leader.to_ne_bytes(), (place * ENTRY) as u64)
        {
            tracing::warn!(
                "programs that tasks start may outlive this process if it is killed: {error}"
            );
        }
    }
}

/// The process group of a child: the child itself, which leads it, and the programs that it
/// started. Ends with this value.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    place: usize,
}

impl Group {
    /// The group of a child that was just started. It can't have started anything yet: for that it
    /// has to hear from this thread first.
    pub(super) fn of(leader: Pid) -> Group {
        let mut groups = GROUPS.lock();
        let free = groups.leaders.iter().position(|leader| *leader == 0);
        let place = free.unwrap_or_else(|| {
            groups.leaders.push(0);
            groups.leaders.len() - 1
        });
        groups.set(place, leader.as_raw_nonzero().get());
        drop(groups);
        keep_guard();
        Group { leader, place }
    }
}

impl Drop for Group {
    /// The leader may have been reaped by now. Its number stays taken for as long as the group has
    /// members. If it has none, a new process would have to get the number, and lead a group,
    /// within these lines, or this process be killed within them: numbers are handed out in turn,
    /// so that takes as many new processes as there are numbers.
    fn drop(&mut self) {
        let _ = kill_process_group(self.leader, Signal::KILL);
        GROUPS.lock().set(self.place, 0);
    }
}

/// Whether a guard is being kept.
static KEPT: AtomicBool = AtomicBool::new(false);

struct Kept;

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.store(false, Ordering::Release);
    }
}

/// Starts a guard if there is none, after what this thread has to do already: children come first.
fn keep_guard() {
    // A program that was started as a guard and did not become one starts no more of them.
    if std::env::var_os(VARIABLE).is_none() && !KEPT.swap(true, Ordering::AcqRel) {
        let kept = Kept;
        tokio::task::spawn_local(async move {
            let _kept = kept;
            keep().await
        });
    }
}

/// Sees to it that there is a guard.
async fn keep() {
    let mut pause = SOON;
    let mut warned = false;
    loop {
        let started = Instant::now();
        let problem = match start() {
            Ok(mut guard) => match guard.wait().await {
                Ok(status) => format!("it ended ({status})"),
                Err(error) => format!("its end could not be observed: {error}"),
            },
            Err(error) => format!("it could not be started: {}", explain(&error)),
        };
        if !std::mem::replace(&mut warned, true) {
            tracing::warn!(
                "the guard of this process is to be started again: {problem}. Without a guard, programs that tasks start \
                 outlive this process if it is killed"
            );
        }
        if started.elapsed() > RARELY {
            pause = SOON;
        }
        sleep(pause).await;
        pause = RARELY.min(2 * pause);
    }
}

fn start() -> io::Result<Child> {
    let table = GROUPS.lock().table()?.try_clone()?;
    Command::new(EXECUTABLE)
        .arg0(NAME)
        .env(VARIABLE, std::process::id().to_string())
        .stdin(table)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Works as a guard, and does not return, if this process was started as one.
pub fn run_if_guard() {
    let parent = std::env::var(VARIABLE).ok().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    let Some(parent) = parent.filter(|_| holds_table()) else { return };
    // Somebody may stop the guard, which can't be kept off: then its parent's end has it go on.
    let _ = set_parent_process_death_signal(Some(Signal::CONT));
    fiber_core::at_exit::run_shielded(|| {
        let _ = rustix::thread::set_name(c"fiber-guard");
        wait_for_end(parent);
        kill_groups();
    })
}

/// Whether standard input is a table. Anything else holds no process groups.
fn holds_table() -> bool {
    let target = std::fs::read_link("/proc/self/fd/0").unwrap_or_default();
    target.to_string_lossy().starts_with(&format!("/memfd:{TABLE}"))
}

fn wait_for_end(parent: Pid) {
    let watch = pidfd_open(parent, PidfdFlags::empty());
    // The parent may have ended before, and its number may be another's.
    while getppid() == Some(parent) {
        let ended = match &watch {
            Ok(process) => {
                poll(&mut [PollFd::new(process, PollFlags::IN)], None).is_ok_and(|ready| ready > 0)
            }
            Err(_) => poll(&mut [], Some(&LOOK)).is_err(),
        };
        if ended {
            return;
        }
    }
}

fn kill_groups() {
    let mut place = 0;
    let mut entry = [0; ENTRY];
    while let Ok(ENTRY) = rustix::io::pread(rustix::stdio::stdin().as_fd(), &mut entry, place) {
        // Group 1 would stand for all processes.
        if let Some(leader) =
            Pid::from_raw(i32::from_ne_bytes(entry)).filter(|leader| !leader.is_init())
        {
            let _ = kill_process_group(leader, Signal::KILL);
        }
        place += ENTRY as u64;
    }
}

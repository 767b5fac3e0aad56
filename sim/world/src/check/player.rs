//! The player: a process that forks one for each of its seeds.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fiber_core::panics;
use rustix::fs::{SeekFrom, ftruncate, seek, stat};
use rustix::stdio::{stdin, stdout};

use crate::apart::{end, end_with_parent, run_apart};
use crate::log::{Kind, Log};
use crate::run::{End, History, Options, run};
use crate::world::here;

/// How long a seed may take.
const LIMIT: Duration = Duration::from_secs(60);
/// The bytes by which a player says that it has found its order.
pub(super) const HERE: &[u8; 4] = b"here";

/// The seeds that a player has to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The number of the call in the test.
    pub(super) call: u32,
    pub(super) first: u64,
    pub(super) count: u64,
}

impl fmt::Display for Order {
    /// All orders have one length, since the addresses of memory depend on it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010} {:020} {:020}", self.call, self.first, self.count)
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Order, String> {
        let mut numbers = text.split(' ').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten().ok_or(format!("`{text}` is not three numbers"));
        let (call, first, count): (u64, u64, u64) = (next()?, next()?, next()?);
        Ok(Order { call: call as u32, first, count })
    }
}

/// Plays seeds until one fails, writes that to the report, which is this process's standard input,
/// and ends the process. The history of a single seed is in the report in any case.
///
/// Between two seeds nothing is allocated: each begins with the same memory.
pub(super) fn play(
    order: &Order,
    program: impl FnOnce(u64, &Path) -> Result<(), String> + Send + 'static,
) -> ! {
    let mut report = File::from(stdin().try_clone_to_owned().expect("the report is open"));
    let mut tell = |bytes: &[u8]| report.write_all(bytes).expect("the report has room");
    tell(HERE);
    end_with_parent();
    let log = Arc::new(Log::new().expect("the process has room"));
    // Each fork takes it from its own memory.
    let mut program = Some(program);
    let folder = Folder::new();
    for seed in order.first..=order.first.saturating_add(order.count - 1) {
        log.clear();
        forget_output();
        let world = || {
            let program = program.take().expect("each fork has one");
            let folder = folder.path();
            play_in_fork(seed, &log, move || program(seed, &folder));
        };
        match run_apart(LIMIT, world) {
            Ok(_) if log.has(Kind::Success) || log.has(Kind::Failure) => {}
            Ok(end) => log.add(log.nanos(), 0, Kind::Failure, format_args!("{end}")),
            Err(error) => log.add(0, 0, Kind::Failure, format_args!("it can't be played: {error}")),
        }
        folder.remove();
        let has_failed = log.has(Kind::Failure);
        if has_failed || order.count == 1 {
            tell(&seed.to_le_bytes());
            tell(log.bytes());
        }
        if has_failed {
            break;
        }
    }
    end(0)
}

/// The folder of files of a world's program.
struct Folder(CString);

impl Folder {
    fn new() -> Folder {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        // All have one length, since the addresses of memory depend on it.
        let path = parent.join(format!("fiber-sim-{:010}", std::process::id()));
        Folder(CString::new(path.into_os_string().into_vec()).expect("a path has no zero"))
    }

    fn path(&self) -> PathBuf {
        OsStr::from_bytes(self.0.as_bytes()).into()
    }

    /// Removes the folder, if a world has made it, in another process: it takes memory.
    fn remove(&self) {
        if stat(&*self.0).is_ok() {
            let _ = run_apart(LIMIT, || drop(fs::remove_dir_all(self.path())));
        }
    }
}

/// Forgets what the seeds before have printed, and what the test harness has.
fn forget_output() {
    let _ = io::stdout().flush();
    // It is a file in memory.
    let _ = ftruncate(stdout(), 0);
    let _ = seek(stdout(), SeekFrom::Start(0));
}

/// Plays in this process, a fork, and ends it.
fn play_in_fork(
    seed: u64,
    log: &Arc<Log>,
    program: impl FnOnce() -> Result<(), String> + Send + 'static,
) {
    let options =
        Options { history: History::Events, log: Some(Arc::clone(log)), ..Options::default() };
    let main = move || {
        let result = panics::catch(program);
        let me = here();
        let note = |kind, text| me.state().note(0, kind, text);
        match result {
            Ok(Ok(())) => note(Kind::Success, format_args!("")),
            Ok(Err(error)) => note(Kind::Failure, format_args!("{error}")),
            Err(panic) => note(Kind::Failure, format_args!("{panic}")),
        }
        // The end of the head ends all others.
        end(0)
    };
    // It returns only without an end of `main`.
    let End { limit, left, nanos, switches, .. } = run::<()>(seed, options, main);
    let why = if limit.is_some() {
        let time = Duration::from_nanos(nanos).as_secs();
        format!("it goes on after {time} s of its time and {switches} changes of threads")
    } else {
        "all its threads wait, and nothing will ever wake them".into()
    };
    log.add(nanos, 0, Kind::Failure, format_args!("{why}:\n  {}", left.join("\n  ")));
}

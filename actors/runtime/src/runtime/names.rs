//! Names the functions on stacks, in a process of its own.
//!
//! Reading the program's debug information takes more than 100 MB for a large program without
//! optimization. A process that was asked for its stacks may be near its memory limit, and must not
//! keep that much. So the process that shows stacks starts the program again with [`NAMER`] as the
//! only argument: `fiber::init()` reads offsets from standard input, writes their names to standard
//! output, and exits. All processes of a session run the same build, so each can name the functions
//! of any other.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use fiber_core::stacks::{Frame, ProgramNames, Unnamed};
use fiber_core::{at_exit, control_groups, executable, read_json, shortage};
use fiber_stacks::program_names;
use parking_lot::Mutex;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::time::timeout_at;

/// The only argument of a program that is to name functions.
const NAMER: &str = "--fiber-name-functions";
/// The line in front of the answer. A program may write others before `fiber::init()`.
const GREETING: &str = "fiber-names:";
/// The number of offsets whose names are kept: some hundred bytes each.
const MOST_KNOWN: usize = 4096;

/// Names the functions of the program on `stacks`, within `limit`. It blocks: call it on a thread
/// of [`on_a_thread`](fiber_core::on_a_thread).
///
/// # Errors
/// A message for the user. Then the stacks have offsets in place of names.
pub fn set_names(stacks: &mut dyn Unnamed, limit: Duration) -> Result<(), String> {
    // The names are those of the executable.
    static KNOWN: Mutex<ProgramNames> = Mutex::new(ProgramNames::new());
    let offsets = stacks.unnamed();
    if offsets.is_empty() {
        return Ok(());
    }
    let until = Instant::now() + limit;
    let late = || format!("functions have no names: reading them took longer than {limit:?}");
    // One process at a time: many workers may run past a timeout together, in the same function.
    let mut known = KNOWN.try_lock_until(until).ok_or_else(late)?;
    let unknown: BTreeSet<u64> =
        offsets.into_iter().filter(|offset| !known.contains_key(offset)).collect();
    if !unknown.is_empty() {
        let asking = async { timeout_at(until.into(), ask(&unknown)).await };
        check_room()?;
        let answer = Handle::current().block_on(asking).map_err(|_| late())?;
        let names = answer.map_err(|error| shortage::explain(&error)).and_then(|text| read(&text));
        let names = names.map_err(|problem| format!("functions have no names: {problem}"))?;
        if known.len() + names.len() > MOST_KNOWN {
            known.clear();
        }
        known.extend(names);
    }
    stacks.set_names(&known);
    Ok(())
}

/// Reads the answer of a process that names functions.
fn read(answer: &str) -> Result<ProgramNames, String> {
    let answer = answer.split_once(GREETING).map(|(_, answer)| answer);
    let unknown = "the program, started again to read them, did not call `fiber::init()`";
    let names = read_json::<Result<Vec<(u64, Vec<Frame>)>, String>>(answer.ok_or(unknown)?);
    Ok(names.map_err(|error| error.to_string())??.into_iter().collect())
}

/// Starts a process that names functions, and returns its output.
async fn ask(offsets: &BTreeSet<u64>) -> io::Result<String> {
    let mut namer = Command::new(executable())
        .arg(NAMER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let input = namer.stdin.take();
    let mut input = input.ok_or_else(|| io::Error::other("it has no standard input"))?;
    input.write_all(&serde_json::to_vec(offsets)?).await?;
    drop(input);
    let Output { status, stdout, .. } = namer.wait_with_output().await?;
    if status.success() {
        String::from_utf8(stdout).map_err(io::Error::other)
    } else {
        Err(io::Error::other(format!("the process that reads them ended: {status}")))
    }
}

/// Becomes the process that names functions and exits, if it was started for that.
pub(super) fn run_if_asked() {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(NAMER)) || arguments.next().is_some() {
        return;
    }
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // If memory runs out all the same, this process is killed, and no other.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    at_exit::run_shielded(|| {
        let mut offsets = String::new();
        let read = io::stdin().read_to_string(&mut offsets);
        let names = read.map_err(|error| error.to_string()).and_then(|_| {
            let offsets = read_json(&offsets).map_err(|error| error.to_string())?;
            program_names(&offsets).map(Vec::from_iter).map_err(|error| error.to_string())
        });
        let names = serde_json::to_string(&names).unwrap_or_default();
        let mut output = io::stdout();
        let _ = writeln!(output, "{GREETING}{names}");
        let _ = output.flush();
    })
}

/// Returns an error if the process that names functions could fill the memory that this process
/// shares with it: `memory.oom.group` lets the kernel kill both. It takes less than the program's
/// file: 52 MiB, and 80 MiB mapped, for 2,500 addresses of a debug build of 123 MB.
fn check_room() -> Result<(), String> {
    let needed = fs::metadata(executable()).map_or(0, |file| file.len());
    match control_groups::memory_room() {
        Some(room) if room < needed => Err(format!(
            "functions have no names: reading them could take {} MiB, and the memory limit of the process that shows the \
             stacks leaves {} MiB",
            needed >> 20,
            room >> 20
        )),
        _ => Ok(()),
    }
}

//! The results: stacks and profiles. They travel between processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::inside_border;

/// The stacks of all threads of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessStack {
    /// The process's id in its own PID namespace.
    pub pid: u32,
    /// Its threads, in the order of their ids: usually the order in which they started.
    pub threads: Vec<ThreadStack>,
}

impl ProcessStack {
    /// Returns the stacks of these threads.
    #[doc(hidden)]
    pub fn new(pid: u32, threads: Vec<ThreadStack>) -> ProcessStack {
        ProcessStack { pid, threads }
    }
}

/// The state of one thread in the kernel, and its stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ThreadStack {
    /// The thread's id in the kernel.
    pub tid: u32,
    /// Its name: at most 15 bytes.
    pub name: String,
    /// Its state in the kernel.
    pub state: ThreadState,
    /// The system call or kernel function in which the thread waits, if the kernel names it.
    pub waits_in: Option<String>,
    /// How long the thread has run on a core.
    pub cpu: Duration,
    /// The calls that the thread is in, the innermost first.
    pub frames: Vec<Frame>,
    /// Frames are missing at the outer end: the stack is too deep, or can't be followed.
    pub truncated: bool,
    /// Why there are no frames.
    pub problem: Option<String>,
}

impl ThreadStack {
    /// Returns a thread without frames, which has not run and waits in nothing that is known.
    #[doc(hidden)]
    pub fn new(tid: u32, name: String, state: ThreadState) -> ThreadStack {
        ThreadStack {
            tid,
            name,
            state,
            waits_in: None,
            cpu: Duration::ZERO,
            frames: Vec::new(),
            truncated: false,
            problem: None,
        }
    }
}

/// A thread's state in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ThreadState {
    /// It runs, or waits for a core.
    Running,
    /// It waits for an event.
    Sleeping,
    /// It waits for a device or a kernel resource, and no signal interrupts it.
    Uninterruptible,
    /// It is stopped, by a signal or a debugger.
    Stopped,
    /// It is ending.
    Ending,
    /// A state that this build does not know.
    Unknown,
}

/// One call on a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Frame {
    /// The function's name. `None` if neither debug information nor a symbol names it.
    pub function: Option<String>,
    /// The source file, if there is debug information.
    pub file: Option<String>,
    /// The line in the file.
    pub line: Option<u32>,
    /// The file name of the program or library. Empty if the code is in neither.
    pub module: String,
    /// The address in the module, as `addr2line` and `objdump` count it.
    pub offset: u64,
    /// The code is the program's own, not a library's.
    pub in_program: bool,
    /// The compiler inlined this function into that of the next frame.
    pub inlined: bool,
}

impl Frame {
    /// Returns a call without names.
    #[doc(hidden)]
    pub fn unnamed(module: String, offset: u64, in_program: bool) -> Frame {
        Frame { function: None, file: None, line: None, module, offset, in_program, inlined: false }
    }
}

/// Where the threads of a process spent their time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Profile {
    /// How long the profile was taken.
    pub duration: Duration,
    /// How many samples a second were taken of each thread, at most.
    pub hertz: u32,
    /// Whether `running` has threads that waited, too.
    pub idle: bool,
    /// How long the threads of the program ran on a core.
    pub cpu: Duration,
    /// How long fiber's own threads ran, without the one that took the profile.
    pub fiber_cpu: Duration,
    /// The stacks of threads that ran.
    pub running: Vec<Sample>,
    /// The stacks of threads that waited, while none of the program's threads ran.
    pub waiting: Vec<Sample>,
    /// The calls to which the samples refer. More than one at a place if functions are inlined.
    pub frames: Vec<Vec<Frame>>,
    /// How many samples are missing: the thread did not answer in time, or the stacks were too many
    /// different ones.
    pub missed: u64,
}

impl Profile {
    /// Returns a profile without samples, of threads that have not run.
    #[doc(hidden)]
    pub fn new(duration: Duration, hertz: u32, idle: bool) -> Profile {
        Profile {
            duration,
            hertz,
            idle,
            cpu: Duration::ZERO,
            fiber_cpu: Duration::ZERO,
            running: Vec::new(),
            waiting: Vec::new(),
            frames: Vec::new(),
            missed: 0,
        }
    }
}

/// A stack that a profile found, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// The thread's name.
    pub thread: String,
    /// The calls as places in [`Profile::frames`], the innermost first.
    pub calls: Vec<u32>,
    /// How many samples found it.
    pub count: u64,
}

impl Sample {
    /// Returns a stack that was found `count` times.
    #[doc(hidden)]
    pub fn new(thread: String, calls: Vec<u32>, count: u64) -> Sample {
        Sample { thread, calls, count }
    }
}

/// The names of the program's functions: the frames at each offset, the innermost first.
pub type ProgramNames = BTreeMap<u64, Vec<Frame>>;

/// Stacks as a process takes them of itself. Functions of the program have no names yet: reading
/// them takes much memory. A process that was started for it does so with `program_names` of
/// `fiber-stacks`.
pub trait Unnamed {
    /// Returns the lists of frames.
    #[doc(hidden)]
    fn lists(&mut self) -> Vec<&mut Vec<Frame>>;

    /// Returns the offsets of the code that has no names yet.
    fn unnamed(&mut self) -> BTreeSet<u64> {
        unnamed(self.lists())
    }

    /// Names the functions.
    fn set_names(&mut self, names: &ProgramNames) {
        self.lists().into_iter().for_each(|frames| set_names(frames, names));
    }
}

fn unnamed(lists: Vec<&mut Vec<Frame>>) -> BTreeSet<u64> {
    let mut offsets = BTreeSet::new();
    for frames in lists {
        for frame in frames.iter().filter(|frame| frame.in_program && frame.function.is_none()) {
            offsets.insert(frame.offset);
        }
    }
    offsets
}

fn set_names(frames: &mut Vec<Frame>, names: &ProgramNames) {
    let mut named = Vec::with_capacity(frames.len());
    for frame in std::mem::take(frames) {
        match names.get(&frame.offset) {
            Some(found) if frame.in_program => {
                let in_module =
                    |found: &Frame| Frame { module: frame.module.clone(), ..found.clone() };
                named.extend(found.iter().map(in_module));
            }
            _ => named.push(frame),
        }
    }
    *frames = named;
}

impl Unnamed for ThreadStack {
    fn lists(&mut self) -> Vec<&mut Vec<Frame>> {
        vec![&mut self.frames]
    }
}

impl Unnamed for ProcessStack {
    fn lists(&mut self) -> Vec<&mut Vec<Frame>> {
        self.threads.iter_mut().map(|thread| &mut thread.frames).collect()
    }
}

impl Unnamed for Profile {
    fn lists(&mut self) -> Vec<&mut Vec<Frame>> {
        self.frames.iter_mut().collect()
    }
}

impl ThreadStack {
    /// Returns this stack with only its [relevant frames](ThreadStack::relevant_frames), and at
    /// most `most` of them.
    #[doc(hidden)]
    pub fn shortened(mut self, most: usize) -> ThreadStack {
        let relevant = self.relevant_frames().len();
        self.truncated &= relevant == self.frames.len();
        self.truncated |= relevant > most;
        self.frames.truncate(relevant.min(most));
        self
    }

    /// Returns the frames that tell the user something: not those by which fiber and the standard
    /// library call the user's function.
    pub fn relevant_frames(&self) -> &[Frame] {
        let functions = self.frames.iter().map(|frame| frame.function.as_deref());
        let functions: Vec<&str> = functions.map(Option::unwrap_or_default).collect();
        &self.frames[..inside_border(&functions)]
    }
}

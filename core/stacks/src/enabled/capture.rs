//! The capture of stacks.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::libraries;
use super::modules::{self, LoadedModule};
use super::signal::{self, Request};
use super::threads::{self, Process, Status};
use super::unwind::{Unwinder, Unwound};
use super::{Frame, ProcessStack, TAKES_STACKS, ThreadStack, ThreadState, thread_id};
use fiber_core::deadline_after;
use fiber_core::{Error, Result};

/// Returns the stacks of all threads of this process. Waits at most `limit` for their answers; a
/// thread that does not answer has its state and the reason in place of frames. Functions of the
/// program have no names yet: see [`ProgramNames`](fiber_core::stacks::ProgramNames).
///
/// It blocks the calling thread, whose own stack is not taken.
///
/// # Errors
/// [`Error::TimedOut`] if other captures take longer than `limit`. [`Error::System`] if the kernel
/// refuses the signal or the list of threads. [`Error::Config`] without the feature `stacks`.
pub fn capture(limit: Duration) -> Result<ProcessStack> {
    let deadline = deadline_after(limit);
    let mut sampler = Sampler::lock(limit)?;
    let tids = threads::all(Process::This)
        .map_err(|error| failed("the threads can't be listed", error))?;
    let threads = sampler.take_stacks(&tids, deadline)?;
    Ok(ProcessStack::new(std::process::id(), threads))
}

/// Returns the stack of the thread with this id, as [`capture`] does. See
/// [`thread_id`].
///
/// # Errors
/// As [`capture`], and [`Error::System`] if there is no such thread.
pub fn capture_thread(tid: u32, limit: Duration) -> Result<ThreadStack> {
    let deadline = deadline_after(limit);
    let stack = Sampler::lock(limit)?.take_stacks(&[tid], deadline)?.pop();
    stack.ok_or_else(|| failed("the stack can't be taken", io::Error::other("no such thread")))
}

/// Returns what the kernel says about the threads of another process of this user, which does not
/// answer: their states, and what they wait in. `problem` says why there are no stacks.
///
/// # Errors
/// [`Error::System`] if there is no such process. [`Error::Config`] without the feature `stacks`.
pub fn from_outside(pid: u32, problem: &str) -> Result<ProcessStack> {
    let process = Process::Other(pid);
    let tids = threads::all(process)
        .map_err(|error| failed(&format!("the threads of process {pid} can't be listed"), error))?;
    let describe = |tid| {
        let mut stack = threads::describe(process, tid, &threads::status(process, tid)?);
        stack.problem = Some(problem.into());
        Some(stack)
    };
    Ok(ProcessStack::new(pid, tids.into_iter().filter_map(describe).collect()))
}

pub(super) fn failed(what: &str, error: io::Error) -> Error {
    Error::system(what, error)
}

/// The state of all captures. There is one in the process, used by one capture at a time.
pub(super) struct Sampler {
    /// The signal whose handler is installed.
    signal: i32,
    handler_return: u64,
    /// The generation of `modules`.
    generation: (u64, u64),
    modules: Vec<LoadedModule>,
    unwinder: Unwinder,
}

/// A thread's answer.
pub(super) enum Answer {
    Stack(Unwound),
    /// Why there is none.
    None(String),
}

/// How long to wait for answers before looking whether threads have ended.
const LOOK: Duration = Duration::from_millis(5);
const ENDED: &str = "it has ended";

/// One for the process, as the signal handler has one table.
static SAMPLER: Mutex<Option<Sampler>> = Mutex::new(None);

/// The sampler while one capture uses it.
pub(super) struct Locked(MutexGuard<'static, Option<Sampler>>);

impl Sampler {
    /// Waits until no other capture uses the sampler.
    pub(super) fn lock(limit: Duration) -> Result<Locked> {
        let busy = || Error::TimedOut { what: "the end of other captures of stacks".into(), limit };
        SAMPLER.try_lock_for(limit).map(Locked).ok_or_else(busy)
    }

    fn start() -> io::Result<Sampler> {
        let (signal, handler_return) = install()?;
        Ok(Sampler {
            signal,
            handler_return,
            generation: (0, 0),
            modules: Vec::new(),
            unwinder: Unwinder::new(&[], 0),
        })
    }

    /// Notices another handler of the signal, and modules that were loaded or unloaded.
    fn refresh(&mut self) -> io::Result<()> {
        if signal::installed(self.signal).is_none() {
            (self.signal, self.handler_return) = install()?;
        }
        let generation = modules::generation();
        if self.modules.is_empty() || generation != self.generation {
            self.generation = generation;
            self.modules = modules::loaded();
            self.unwinder = Unwinder::new(&self.modules, self.handler_return);
        }
        Ok(())
    }

    /// Asks threads for their stacks, at most as many at the same time as there are slots, and
    /// unwinds those that arrive until the deadline.
    fn ask(&mut self, tids: &[u32], deadline: Instant, mut receive: impl FnMut(u32, Answer)) {
        let mut waiting = tids.iter().copied();
        let mut next = waiting.next();
        let mut requests: Vec<Request> = Vec::new();
        loop {
            let seen = signal::answers();
            while let Some(tid) = next {
                match Request::send(self.signal, tid) {
                    Some(Ok(request)) => requests.push(request),
                    Some(Err(error)) => receive(tid, Answer::None(refusal(&error))),
                    None => break,
                }
                next = waiting.next();
            }
            let open = requests.len();
            requests.retain_mut(|request| {
                let tid = request.tid();
                let Some((registers, stack)) = request.answer() else { return true };
                receive(tid, Answer::Stack(self.unwinder.unwind(registers, stack)));
                false
            });
            if requests.is_empty() && next.is_none() {
                return;
            }
            if Instant::now() >= deadline {
                break;
            }
            if requests.len() == open && !signal::wait_for_answer(seen, deadline, LOOK) {
                requests.retain(|request| {
                    let problem = self.no_answer(request);
                    let waits = problem.is_none();
                    problem.into_iter().for_each(|why| receive(request.tid(), Answer::None(why)));
                    waits
                });
            }
        }
        let late = requests.iter().map(Request::tid).chain(next).chain(waiting);
        late.for_each(|tid| receive(tid, Answer::None("it did not answer in time".into())));
    }
}

fn refusal(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ESRCH) => ENDED.into(),
        Some(libc::EAGAIN) => {
            "the limit of pending signals is reached; raise it (`ulimit -i`)".into()
        }
        _ => error.to_string(),
    }
}

impl Locked {
    /// Returns the sampler, with the handler installed.
    fn sampler(&mut self) -> Result<&mut Sampler> {
        let refused = |error| failed("no signal can be used to take stacks", error);
        if self.0.is_none() {
            *self.0 = Some(Sampler::start().map_err(refused)?);
        }
        let sampler = self.0.as_mut().expect("it was just started");
        sampler.refresh().map_err(refused)?;
        Ok(sampler)
    }

    /// Takes the stacks of those of the threads that exist.
    fn take_stacks(&mut self, tids: &[u32], deadline: Instant) -> Result<Vec<ThreadStack>> {
        let sampler = self.sampler()?;
        let mut stacks = Vec::new();
        let mut asked = Vec::new();
        for tid in tids {
            let Some(status) = threads::status(Process::This, *tid) else { continue };
            let mut stack = threads::describe(Process::This, *tid, &status);
            stack.problem = sampler.obstacle(*tid, &status);
            if stack.problem.is_none() {
                asked.push(*tid);
            }
            stacks.push(stack);
        }
        let mut answers = Vec::new();
        sampler.ask(&asked, deadline, |tid, answer| answers.push((tid, answer)));

        let addresses = answers.iter().flat_map(|(_, answer)| match answer {
            Answer::Stack(unwound) => unwound.addresses.as_slice(),
            Answer::None(_) => &[],
        });
        let known = libraries::frames(addresses.copied(), &sampler.modules);
        for (tid, answer) in answers {
            let Some(stack) = stacks.iter_mut().find(|stack| stack.tid == tid) else { continue };
            match answer {
                Answer::Stack(Unwound { addresses, truncated }) => {
                    stack.frames = addresses.iter().map(|at| known[at].clone()).collect();
                    stack.truncated = truncated;
                }
                Answer::None(problem) => stack.problem = Some(problem),
            }
        }
        Ok(stacks)
    }

    /// Returns whether a thread can be asked.
    pub(super) fn may_ask(&mut self, tid: u32) -> Result<bool> {
        let sampler = self.sampler()?;
        let status = threads::status(Process::This, tid);
        Ok(status.is_some_and(|status| sampler.obstacle(tid, &status).is_none()))
    }

    /// Asks threads for their stacks, as addresses.
    pub(super) fn ask(
        &mut self,
        tids: &[u32],
        deadline: Instant,
        receive: impl FnMut(u32, Answer),
    ) -> Result<()> {
        self.sampler()?.ask(tids, deadline, receive);
        Ok(())
    }

    /// Returns the frame of each address.
    pub(super) fn frames(
        &mut self,
        addresses: impl Iterator<Item = u64>,
    ) -> Result<HashMap<u64, Frame>> {
        Ok(libraries::frames(addresses, &self.sampler()?.modules))
    }
}

impl Sampler {
    /// Returns why a thread will not answer, if that is known.
    fn no_answer(&self, request: &Request) -> Option<String> {
        // A thread that is ending takes the signal and does not handle it.
        if request.thread_has_ended() {
            return Some(ENDED.into());
        }
        // It ran when it was asked, as a handler may. Since then it sleeps, and not in a handler.
        let status = threads::status(Process::This, request.tid())?;
        let sleeps = status.state == ThreadState::Sleeping;
        (sleeps && status.blocked.contains(self.signal) && status.pending.contains(self.signal))
            .then(|| self.is_blocked())
    }

    fn is_blocked(&self) -> String {
        format!("it blocks signal {}, by which stacks are taken", self.signal)
    }

    /// Returns why a thread can't be asked.
    fn obstacle(&self, tid: u32, status: &Status) -> Option<String> {
        let blocks = status.blocked.contains(self.signal);
        let waits = status.pending.contains(self.signal);
        // A handler of an earlier request, which blocks all signals, may not have returned yet.
        let may_be_in_handler = status.state != ThreadState::Sleeping;
        if tid == thread_id() {
            Some(TAKES_STACKS.into())
        } else if status.state == ThreadState::Ending {
            Some(ENDED.into())
        } else if blocks && (waits || !may_be_in_handler) {
            Some(self.is_blocked())
        } else if waits {
            // Each signal to such a thread would wait with the others, and the kernel limits them.
            Some("it has not answered an earlier request".into())
        } else {
            None
        }
    }
}

/// Installs the handler for a signal that the program does not use, which fewest threads block.
/// Returns the signal, and the address to which its handler returns.
fn install() -> io::Result<(i32, u64)> {
    let tids = threads::all(Process::This)?;
    let status = |tid| threads::status(Process::This, tid);
    let statuses: Vec<Status> = tids.into_iter().filter_map(status).collect();
    let is_used = |signal: i32| {
        statuses
            .iter()
            .any(|status| status.caught.contains(signal) || status.ignored.contains(signal))
    };
    let blocks =
        |signal: i32| statuses.iter().filter(|status| status.blocked.contains(signal)).count();
    let free = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().filter(|signal| !is_used(*signal));
    let signal = free
        .min_by_key(|signal| blocks(*signal))
        .ok_or_else(|| io::Error::other("the program handles or ignores all realtime signals"))?;
    signal::install(signal)?;
    let handler_return = signal::installed(signal)
        .ok_or_else(|| io::Error::other("the program has replaced the handler"))?;
    Ok((signal, handler_return))
}

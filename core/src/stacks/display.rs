//! Stacks and profiles as text.

use std::collections::BTreeMap;
use std::fmt;

use super::types::{Frame, ProcessStack, Profile, Sample, ThreadStack, ThreadState};
use super::{inside_border, is_of_fiber};
use crate::short_file;

/// `{:#}` shows all threads with all frames. `{}` counts idle threads of fiber and of async
/// runtimes.
impl fmt::Display for ProcessStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}: {} threads", self.pid, self.threads.len())?;
        if f.alternate() {
            return self.threads.iter().try_for_each(|thread| write!(f, "\n\n{thread:#}"));
        }
        // The main thread is always of interest.
        let is_folded = |thread: &ThreadStack| thread.tid != self.pid && thread.is_idle();
        let mut idle = BTreeMap::<&str, usize>::new();
        for thread in &self.threads {
            match is_folded(thread) {
                true => *idle.entry(&thread.name).or_default() += 1,
                false => write!(f, "\n\n{thread}")?,
            }
        }
        if idle.is_empty() {
            return Ok(());
        }
        write!(f, "\n\n{} idle threads of runtimes, by name:", idle.values().sum::<usize>())?;
        for (place, (name, count)) in idle.into_iter().enumerate() {
            f.write_str(if place == 0 { " " } else { ", " })?;
            f.write_str(name)?;
            if count > 1 {
                write!(f, " ({count})")?;
            }
        }
        Ok(())
    }
}

/// `{:#}` shows all frames, `{}` those that tell the user something.
impl fmt::Display for ThreadStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ThreadStack { tid, name, state, cpu, .. } = self;
        write!(f, "thread {tid} `{name}`: {state}")?;
        if let Some(waits_in) = &self.waits_in {
            write!(f, " in {waits_in}")?;
        }
        write!(f, ", {:.3} s of CPU time", cpu.as_secs_f64())?;
        let frames = if f.alternate() { &self.frames[..] } else { self.relevant_frames() };
        frames.iter().try_for_each(|frame| write!(f, "\n    {frame}"))?;
        let hidden = self.frames.len() - frames.len();
        if hidden > 0 {
            write!(f, "\n    … called by {hidden} frames of fiber and the standard library")?;
        }
        if self.truncated {
            f.write_str("\n    … frames are missing: the stack is too deep, or can't be followed")?;
        }
        match &self.problem {
            Some(problem) => write!(f, "\n    no stack: {problem}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ThreadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ThreadState::Running => "runs",
            ThreadState::Sleeping => "sleeps",
            ThreadState::Uninterruptible => "waits uninterruptibly",
            ThreadState::Stopped => "is stopped",
            ThreadState::Ending => "ends",
            ThreadState::Unknown => "is in a state that fiber does not know",
        })
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Frame { function, file, line, module, offset, .. } = self;
        let module = if module.is_empty() { "unknown code" } else { module };
        match (function, file) {
            (Some(function), Some(file)) => write!(f, "{function} ({}", short_file(file))?,
            (Some(function), None) => return write!(f, "{function} (in {module})"),
            (None, Some(file)) => write!(f, "{module}+{offset:#x} ({}", short_file(file))?,
            (None, None) => return write!(f, "{module}+{offset:#x}"),
        }
        match line {
            Some(line) => write!(f, ":{line})"),
            None => f.write_str(")"),
        }
    }
}

/// Below this share of its time, a process counts as waiting.
const RARELY: f64 = 0.01;

impl Profile {
    /// Returns how long the program's threads ran, as a share of the profile's time. With `all`,
    /// fiber's own count, too.
    pub fn share(&self, all: bool) -> f64 {
        let cpu = if all { self.cpu + self.fiber_cpu } else { self.cpu };
        cpu.as_secs_f64() / self.duration.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Returns whether [`folded`](Profile::folded) has the stacks of threads that waited, because
    /// the process hardly ran.
    pub fn shows_waits(&self, all: bool) -> bool {
        let chosen = |sample: &Sample| all || !is_of_fiber(&sample.thread);
        let rarely = self.share(all) < RARELY || !self.running.iter().any(chosen);
        !self.idle && rarely && self.waiting.iter().any(chosen)
    }

    /// Returns the folded stacks that tools for flame graphs read: one stack and its count a line.
    /// Frames are separated by `;`: first the thread's name, then the outermost function. Without
    /// `all`, fiber's own threads are missing.
    pub fn folded(&self, all: bool) -> String {
        let samples = if self.shows_waits(all) { &self.waiting } else { &self.running };
        let mut stacks = BTreeMap::<String, u64>::new();
        for sample in samples.iter().filter(|sample| all || !is_of_fiber(&sample.thread)) {
            *stacks.entry(self.line(sample)).or_default() += sample.count;
        }
        stacks.into_iter().map(|(stack, count)| format!("{stack} {count}\n")).collect()
    }

    fn line(&self, sample: &Sample) -> String {
        let frames = sample.calls.iter().filter_map(|place| self.frames.get(*place as usize));
        let calls = frames.flatten().map(|frame| match &frame.function {
            Some(function) => function.clone(),
            None => frame.to_string(),
        });
        let mut calls = Vec::from_iter(calls);
        // The others are the same in all stacks.
        calls.truncate(inside_border(&calls.iter().map(String::as_str).collect::<Vec<_>>()));
        calls.push(sample.thread.clone());
        let names = calls.iter().rev().map(|name| name.replace([';', '\n'], ":"));
        names.collect::<Vec<_>>().join(";")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frame(function: &str, file: &str) -> Frame {
        Frame {
            function: (!function.is_empty()).then(|| function.into()),
            file: (!file.is_empty()).then(|| file.into()),
            line: Some(7),
            module: "program".into(),
            offset: 0x1f,
            in_program: true,
            inlined: false,
        }
    }

    #[test]
    fn a_frame_shows_what_is_known_and_no_path_of_the_toolchain_or_of_the_registry() {
        for (function, file, text) in [
            ("a::b", "/home/me/a.rs", "a::b (/home/me/a.rs:7)"),
            ("a::b", "/rustc/0123abc/library/std/src/a.rs", "a::b (library/std/src/a.rs:7)"),
            ("a::b", "/home/anna/.cargo/registry/src/index.io-1/a-1.0/a.rs", "a::b (a-1.0/a.rs:7)"),
            ("a::b", "", "a::b (in program)"),
            ("", "a.rs", "program+0x1f (a.rs:7)"),
            ("", "", "program+0x1f"),
        ] {
            assert_eq!(frame(function, file).to_string(), text);
        }
    }

    #[test]
    fn a_thread_shows_the_functions_of_the_user_and_how_many_others_there_are() {
        let names = [
            "std::thread::sleep",
            "user::wait",
            "core::ops::function::FnOnce::call_once",
            std::any::type_name_of_val(&crate::stacks::user_code::<fn(), ()>),
            "fiber::run",
            "user::main",
        ];
        let stack = ThreadStack {
            tid: 12,
            name: "main".into(),
            state: ThreadState::Sleeping,
            waits_in: Some("futex".into()),
            cpu: Duration::from_millis(1500),
            frames: names.map(|name| frame(name, "")).into(),
            truncated: true,
            problem: None,
        };
        assert_eq!(
            stack.to_string(),
            "thread 12 `main`: sleeps in futex, 1.500 s of CPU time\n    \
             std::thread::sleep (in program)\n    user::wait (in program)\n    \
             … called by 4 frames of fiber and the standard library\n    \
             … frames are missing: the stack is too deep, or can't be followed"
        );
        assert_eq!(format!("{stack:#}").lines().count(), 8);
        let idle = ThreadStack { frames: stack.frames[3..].into(), ..stack };
        assert!(idle.to_string().contains("fiber_core"), "the innermost frame is always shown");
    }
}

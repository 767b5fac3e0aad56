//! Stacks and profiles as text.

use std::fmt;

use super::types::{Frame, ProcessStack, Profile, ThreadStack, ThreadState};

impl fmt::Display for ProcessStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}: {} threads", self.pid, self.threads.len())?;
        self.threads.iter().try_for_each(|thread| write!(f, "\n\n{thread}"))
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
            (Some(function), Some(file)) => write!(f, "{function} ({}", Shortened(file))?,
            (Some(function), None) => return write!(f, "{function} (in {module})"),
            (None, Some(file)) => write!(f, "{module}+{offset:#x} ({}", Shortened(file))?,
            (None, None) => return write!(f, "{module}+{offset:#x}"),
        }
        match line {
            Some(line) => write!(f, ":{line})"),
            None => f.write_str(")"),
        }
    }
}

/// A source file without the place of the toolchain or of cargo's registry.
struct Shortened<'a>(&'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = |marker: &str| self.0.split_once(marker)?.1.split_once('/');
        let short = after("/rustc/").or_else(|| after("/registry/src/")).map(|(_, rest)| rest);
        f.write_str(short.unwrap_or(self.0))
    }
}

/// The folded stacks that tools for flame graphs read: one stack and its count a line.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stacks.iter().try_for_each(|(stack, count)| writeln!(f, "{stack} {count}"))
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
            "fiber_core::function::invoke",
            "fiber_actors::pool::worker::executor::run",
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
        assert!(idle.to_string().contains("invoke"), "the innermost frame is always shown");
    }
}

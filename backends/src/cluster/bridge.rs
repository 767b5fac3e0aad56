//! Runs a head's program in its container, pod or job as the bridge to its inspector.

use std::time::Duration;

pub use fiber_core::inspect::BRIDGE;
use fiber_core::inspect::{GREETING, READY};
use fiber_core::{Error, Result};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// The limit for the first line of the bridge.
const START: Duration = Duration::from_secs(10);
/// The longest first line, in bytes.
const LONGEST_LINE: u64 = 4096;
/// An init of the image has started the head with one of the first pids.
const FIRST_PIDS: std::ops::RangeInclusive<u32> = 2..=9;

/// Returns the commands to try, in this order. `words` is the command line of the container, as far
/// as it is known.
///
/// The first word is the program, unless that is an init such as tini: then one of the others is,
/// or one of the first processes. Programs other than the head's don't know the argument, and
/// refuse it.
pub fn commands<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<[String; 2]> {
    let mut programs: Vec<String> = Vec::new();
    let paths = words.into_iter().enumerate();
    let named = paths.filter(|(index, word)| *index == 0 || word.starts_with('/'));
    let processes = std::iter::once(1).chain(FIRST_PIDS);
    let running = processes.map(|pid| format!("/proc/{pid}/exe"));
    for program in named.map(|(_, word)| word.to_string()).chain(running) {
        if !programs.contains(&program) {
            programs.push(program);
        }
    }
    programs.into_iter().map(|program| [program, BRIDGE.to_string()]).collect()
}

/// The first line of a command.
#[derive(Debug)]
pub enum Greeting {
    /// It is the bridge, and is connected.
    Ready,
    /// It is the bridge, and can't reach an inspector.
    Failed(String),
    /// It is not the bridge.
    Other,
}

/// Reads the first line of a command, and nothing after it.
pub async fn greeting(stream: &mut (impl AsyncRead + Unpin + ?Sized)) -> Greeting {
    let mut line = Vec::new();
    let read = async {
        let mut limited = stream.take(LONGEST_LINE);
        while let Ok(byte) = limited.read_u8().await {
            if byte == b'\n' {
                return;
            }
            line.push(byte);
        }
    };
    let _ = timeout(START, read).await;
    match String::from_utf8_lossy(&line).strip_prefix(GREETING) {
        Some(READY) => Greeting::Ready,
        Some(problem) => Greeting::Failed(problem.to_string()),
        None => Greeting::Other,
    }
}

/// Returns the error for a head that has no bridge.
///
/// # Errors
/// Always.
pub fn failed<T>(head: &str, problem: impl ToString) -> Result<T> {
    Err(Error::system(format!("{head} can't be asked"), problem.to_string()))
}

/// The problem if no command was the bridge.
pub const NO_BRIDGE: &str =
    "its program does not use fiber, or another version of fiber, or does not run any more";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_tried_first_and_inits_are_passed_over() {
        let programs = |words: &[&str]| -> Vec<String> {
            commands(words.iter().copied()).into_iter().map(|[program, _]| program).collect()
        };
        let plain = programs(&["/program", "--data", "/in"]);
        assert_eq!(plain[..4], ["/program", "/in", "/proc/1/exe", "/proc/2/exe"]);
        let init = programs(&["tini", "--", "/app/program", "-v"]);
        assert_eq!(init[..3], ["tini", "/app/program", "/proc/1/exe"]);
        assert_eq!(programs(&[])[0], "/proc/1/exe");
    }

    #[tokio::test]
    async fn only_the_bridge_greets() {
        assert!(matches!(greeting(&mut &b"fiber-inspect: ready\n{"[..]).await, Greeting::Ready));
        let failed = greeting(&mut &b"fiber-inspect: no program\n"[..]).await;
        assert!(matches!(failed, Greeting::Failed(problem) if problem == "no program"));
        for other in [&b"tini (tini version 0.19.0)\nUsage"[..], b"", b"\xff\n"] {
            assert!(matches!(greeting(&mut &*other).await, Greeting::Other));
        }
    }

    #[tokio::test]
    async fn what_follows_the_greeting_is_left_for_the_reader() {
        let mut stream = &b"fiber-inspect: ready\nanswer"[..];
        greeting(&mut stream).await;
        assert_eq!(stream, b"answer");
    }
}

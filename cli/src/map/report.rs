//! Where outcomes go: to standard output, as text or as lines of JSON, or into directories.

mod directory;

use std::io::{self, Write};

use fiber::pool::suspend_progress;
use fiber_core::Patient;
use serde_json::{Value, json};

pub(super) use self::directory::Directory;
use super::items::{Fields, Item};
use super::task::{End, Outcome};
use crate::hex;
use crate::terminal::{escaped, of_output};

/// The number of failures that are printed. All are counted.
const SHOWN_FAILURES: u64 = 20;

pub(super) enum Report {
    Text,
    /// Lines of JSON, with the names of a CSV's columns.
    Json(Option<Vec<String>>),
    Directory(Directory),
}

/// The end of a task.
pub(super) enum Ended {
    Outcome(Outcome),
    /// There is no outcome, because the command's worker has died too often.
    Lost(String),
}

impl Ended {
    fn outcome(&self) -> Option<&Outcome> {
        match self {
            Ended::Outcome(outcome) => Some(outcome),
            Ended::Lost(_) => None,
        }
    }

    pub(super) fn is_success(&self) -> bool {
        self.outcome().is_some_and(|outcome| outcome.end.is_success())
    }

    fn problem(&self) -> String {
        match self {
            Ended::Outcome(outcome) => outcome.end.to_string(),
            Ended::Lost(problem) => problem.clone(),
        }
    }
}

impl Report {
    pub(super) fn add(&self, item: &Item, command: &[Vec<u8>], ended: &Ended) -> io::Result<()> {
        match self {
            Report::Text => {
                let Some(outcome) = ended.outcome() else { return Ok(()) };
                print(&outcome.stdout, &outcome.stderr)
            }
            Report::Json(columns) => {
                let mut line = escaped(json(item, columns.as_deref(), command, ended));
                line.push('\n');
                print(line.as_bytes(), b"")
            }
            Report::Directory(directory) => directory.add(item, command, ended.outcome()),
        }
    }
}

/// Prints bytes to standard output and standard error.
pub(super) fn print(stdout: &[u8], stderr: &[u8]) -> io::Result<()> {
    if stdout.is_empty() && stderr.is_empty() {
        return Ok(());
    }
    suspend_progress(|| {
        let mut out = Patient(io::stdout().lock());
        out.write_all(stdout).and_then(|()| out.flush()).map_err(of_output)?;
        // A closed standard error is no reason to stop.
        let _ = Patient(io::stderr()).write_all(stderr);
        Ok(())
    })
}

/// Says on standard error that a task has failed.
pub(super) fn say_failure(failures: u64, item: &Item, command: &[Vec<u8>], ended: &Ended) {
    let mut line = match failures {
        1..=SHOWN_FAILURES => {
            let head = format!("fiber map: task {} failed: {}: ", item.number, ended.problem());
            [head.into_bytes(), shown(command)].concat()
        }
        more if more == SHOWN_FAILURES + 1 => {
            b"fiber map: other failures are only counted".to_vec()
        }
        _ => return,
    };
    line.push(b'\n');
    let _ = print(b"", &line);
}

/// Returns a command as a shell would read it.
pub(super) fn quoted(command: &[Vec<u8>]) -> Vec<u8> {
    let quote = |word: &Vec<u8>| {
        // No word has a NUL byte, the only one that can't be quoted.
        shlex::bytes::try_quote(word).map_or_else(|_| word.clone(), |quoted| quoted.into_owned())
    };
    command.iter().map(quote).collect::<Vec<_>>().join(&b' ')
}

/// Returns a command as bash would read it, without control characters, which a terminal hides.
fn shown(command: &[Vec<u8>]) -> Vec<u8> {
    let shown = |word: &Vec<u8>| {
        if !word.iter().any(u8::is_ascii_control) {
            return quoted(std::slice::from_ref(word));
        }
        let escaped = |byte: &u8| match byte {
            b'\\' | b'\'' => vec![b'\\', *byte],
            byte if byte.is_ascii_control() => byte.escape_ascii().collect(),
            byte => vec![*byte],
        };
        [b"$'".to_vec(), word.iter().flat_map(escaped).collect(), b"'".to_vec()].concat()
    };
    command.iter().map(shown).collect::<Vec<_>>().join(&b' ')
}

fn json(item: &Item, columns: Option<&[String]>, command: &[Vec<u8>], ended: &Ended) -> Value {
    let value = match &item.fields {
        Fields::Text(text) => text_or_hex(text),
        Fields::Row(row) => {
            let names = columns.unwrap_or_default().iter().cloned();
            Value::from_iter(names.zip(row.iter().map(|field| text_or_hex(field))))
        }
    };
    let (code, signal) = match ended.outcome().map(|outcome| &outcome.end) {
        Some(End::Exited(code)) => (Some(*code), None),
        Some(End::Signaled(signal)) => (None, Some(*signal)),
        _ => (None, None),
    };
    let mut line = json!({
        "index": item.number,
        "item": value,
        "command": Value::from_iter(command.iter().map(|word| text_or_hex(word))),
        "exit_code": code,
        "signal": signal,
        "error": (!ended.is_success()).then(|| ended.problem()),
    });
    if let Some(outcome) = ended.outcome() {
        line["duration"] = outcome.duration.as_secs_f64().into();
        line["host"] = outcome.host.as_str().into();
        line["attempts"] = outcome.attempts.into();
        line["stdout"] = text_or_hex(&outcome.stdout);
        line["stderr"] = text_or_hex(&outcome.stderr);
    }
    line
}

/// Returns a text, or what `fiber journal export` makes of bytes that are none.
fn text_or_hex(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "hex": hex(bytes) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let words = ["p", "a b", "it's", "$x", ""].map(|word| word.as_bytes().to_vec());
        let line = quoted(&words);
        let back = shlex::bytes::Shlex::new(&line).collect::<Vec<_>>();
        assert_eq!(back, words);
        assert_eq!(quoted(&[b"p".to_vec(), b"--x".to_vec()]), b"p --x");
    }

    #[test]
    fn control_characters_of_a_failed_command_are_seen() {
        let words =
            ["p", "a b", "it's\r", "\u{1b}[2J", "x\ny\\"].map(|word| word.as_bytes().to_vec());
        let line = String::from_utf8(shown(&words)).unwrap();
        assert_eq!(line, r"p 'a b' $'it\'s\r' $'\x1b[2J' $'x\ny\\'");
    }

    #[test]
    fn bytes_that_are_no_text_are_hexadecimal() {
        assert_eq!(text_or_hex("ä".as_bytes()), json!("ä"));
        assert_eq!(text_or_hex(b"\xff\x00"), json!({ "hex": "ff00" }));
    }
}

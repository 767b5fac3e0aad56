//! This command's own lines, and text that other processes and engines have written, on the user's
//! terminal.

use std::fmt::{Arguments, Display};
use std::io::{self, ErrorKind, Write};

use fiber_backends::cluster::OutputChunk;
use fiber_core::Patient;
use serde_json::Value;

/// Writes a line to standard output, like `println!`. A reader that stops early, like `head`, is no
/// failure.
macro_rules! say {
    ($($text:tt)*) => { $crate::terminal::write_output(format_args!($($text)*)) };
}

/// Writes a line to standard error, like `eprintln!`. It may be gone with its terminal or reader.
macro_rules! tell {
    ($($text:tt)*) => { $crate::terminal::write_error(format_args!($($text)*)) };
}

/// Replaces control characters, which could command the terminal, and characters that change the
/// direction of writing, which could make a line read as another.
pub(crate) fn printable(text: impl Display) -> String {
    let plain = |c: char| if is_plain(c) { c } else { '\u{fffd}' };
    text.to_string().chars().map(plain).collect()
}

/// Escapes characters in JSON that [`printable`] replaces. JSON itself asks for few of them.
pub(crate) fn escaped(json: impl Display) -> String {
    let mut escaped = String::new();
    for c in json.to_string().chars() {
        match is_plain(c) {
            true => escaped.push(c),
            false => escaped += &format!("\\u{:04x}", u32::from(c)),
        }
    }
    escaped
}

/// Writes a value to standard output, over several lines.
pub(crate) fn say_json(value: &Value) {
    say!("{}", escaped(format_args!("{value:#}")));
}

fn is_plain(c: char) -> bool {
    let turns = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !turns && (!c.is_control() || matches!(c, '\n' | '\t'))
}

/// Returns a name for a column of a table: its beginning and its end, if it is long. One such name
/// would make all rows as wide.
pub(crate) fn column(name: &str) -> String {
    const MOST: usize = 48;
    let length = name.chars().count();
    if length <= MOST {
        return name.to_string();
    }
    let begin = name.chars().take(MOST / 2 - 1);
    begin.chain(['~']).chain(name.chars().skip(length - MOST / 2)).collect()
}

/// See [`say`].
pub(crate) fn write_output(line: Arguments<'_>) {
    if let Err(error) = has_reader(writeln!(Patient(io::stdout()), "{line}")) {
        tell!("error: {}", of_output(error));
        std::process::exit(1);
    }
}

/// Writes a session's output to this command's own streams.
pub(crate) fn write_chunk(chunk: &OutputChunk) -> io::Result<()> {
    match chunk {
        OutputChunk::Stdout(bytes) => write(Patient(io::stdout().lock()), bytes),
        OutputChunk::Stderr(bytes) => write(Patient(io::stderr().lock()), bytes),
    }
}

fn write(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

/// Returns whether what was written has a reader. One that stops early, like `head`, is no failure.
pub(crate) fn has_reader(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Names standard output in an error of writing to it.
pub(crate) fn of_output(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output can't be written: {error}"))
}

/// See [`tell`].
pub(crate) fn write_error(line: Arguments<'_>) {
    // There is no other place for a problem with it.
    let _ = writeln!(Patient(io::stderr()), "{line}");
}

pub(crate) fn warn(problem: impl Display) {
    tell!("warning: {}", printable(problem));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_beginning_and_its_end() {
        let name = format!("{}/worker-17", "pool".repeat(40));
        let column = column(&name);
        assert_eq!(column.chars().count(), 48);
        assert!(column.starts_with("poolpool") && column.ends_with("pool/worker-17"), "{column}");
        assert_eq!(super::column("pool-1/worker-2"), "pool-1/worker-2");
    }

    #[test]
    fn json_is_the_same_without_characters_that_a_terminal_obeys() {
        let names =
            Value::from(vec!["Zürich\t1\n日本", "\u{1b}[31m\u{9b}1m\u{7f}\r", "a\u{202e}b"]);
        let json = escaped(format_args!("{names:#}"));
        assert!(json.chars().all(is_plain) && json.contains("Zürich"), "{json:?}");
        assert!(json.contains("\\u009b1m\\u007f") && json.contains("a\\u202eb"), "{json}");
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), names);
    }

    #[test]
    fn text_can_neither_command_the_terminal_nor_turn_a_line() {
        assert_eq!(printable("Zürich\t1\n日本 └ é"), "Zürich\t1\n日本 └ é");
        for c in ['\u{1b}', '\u{9b}', '\u{7f}', '\r', '\u{8}', '\u{202e}', '\u{2066}', '\u{61c}'] {
            assert_eq!(printable(format!("a{c}b")), "a\u{fffd}b", "{c:?}");
        }
    }
}

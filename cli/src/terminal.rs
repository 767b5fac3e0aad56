//! Text that other processes and engines have written, on this user's terminal.

use std::fmt::Display;
use std::io::Write;

/// Replaces control characters, which could command the terminal, and characters that change the
/// direction of writing, which could make a line read as another.
pub(crate) fn printable(text: impl Display) -> String {
    let plain = |c: char| if is_plain(c) { c } else { '\u{fffd}' };
    text.to_string().chars().map(plain).collect()
}

fn is_plain(c: char) -> bool {
    let turns = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !turns && (!c.is_control() || matches!(c, '\n' | '\t'))
}

/// Writes a line to standard error, which may be gone with the terminal.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

pub(crate) fn warn(problem: impl Display) {
    eprintln!("warning: {}", printable(problem));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_neither_command_the_terminal_nor_turn_a_line() {
        assert_eq!(printable("Zürich\t1\n日本 └ é"), "Zürich\t1\n日本 └ é");
        for c in ['\u{1b}', '\u{9b}', '\u{7f}', '\r', '\u{8}', '\u{202e}', '\u{2066}', '\u{61c}'] {
            assert_eq!(printable(format!("a{c}b")), "a\u{fffd}b", "{c:?}");
        }
    }
}

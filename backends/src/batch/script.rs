//! Lines for a shell.

use shlex::Quoter;

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let quoted = Quoter::new().allow_nul(true).quote(word);
    quoted.expect("all characters are allowed").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for word in ["it's", "a b", "$HOME", "", "n[1-3]*", "a\nb", "x=y"] {
            let line = format!("printf %s {}", quoted(word));
            let printed = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&printed.stdout), word);
        }
    }
}

//! Batch scripts with options of `sbatch`.

use std::fmt;

use super::commands::{self, CommandError};
use crate::BackendError;

/// A script for `sbatch`, as its [`Display`](fmt::Display) shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BatchScript {
    options: Vec<String>,
    body: String,
}

impl BatchScript {
    /// Makes a script of options, the last of which win, and of what runs.
    ///
    /// # Errors
    /// An option has a line break.
    pub(super) fn new(options: Vec<String>, body: String) -> Result<BatchScript, BackendError> {
        match options.iter().find(|option| option.contains(['\n', '\0'])) {
            Some(wrong) => {
                Err(refused!("`{wrong}` has a line break, which no option of Slurm may have"))
            }
            None => Ok(BatchScript { options, body }),
        }
    }

    /// Submits the script and returns the id of its job.
    pub(super) async fn submit(&self) -> Result<String, CommandError> {
        // On the command line as well: there they overrule variables such as SBATCH_PARTITION.
        commands::submit(&self.options, &self.to_string()).await
    }
}

impl fmt::Display for BatchScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "#!/bin/sh")?;
        for option in &self.options {
            writeln!(f, "#SBATCH {}", directive(option))?;
        }
        f.write_str(&self.body)
    }
}

/// Returns the options that name what a job is charged to, and where it runs.
pub(super) fn named<'a>(
    partition: Option<&'a String>,
    account: Option<&'a String>,
    qos: Option<&'a String>,
) -> impl Iterator<Item = String> {
    [("partition", partition), ("account", account), ("qos", qos)]
        .into_iter()
        .filter_map(|(name, value)| Some(format!("--{name}={}", value?)))
}

/// Returns an option as a line `#SBATCH` has it, which has rules of its own for quotes.
fn directive(option: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if option.chars().all(plain) {
        return option.to_string();
    }
    let escaped = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"");
    match option.split_once('=') {
        Some((name, value)) => format!("{name}=\"{}\"", escaped(value)),
        None => format!("\"{}\"", escaped(option)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_the_quotes_of_sbatch() {
        assert_eq!(directive("--time=0-02:00:00"), "--time=0-02:00:00");
        assert_eq!(directive("--constraint=a&b|c d"), "--constraint=\"a&b|c d\"");
        assert_eq!(directive("--comment=a\"b\\"), "--comment=\"a\\\"b\\\\\"");
    }

    #[test]
    fn a_line_break_in_an_option_is_refused() {
        let refused = BatchScript::new(vec!["--licenses=a\nb".into()], String::new());
        assert!(refused.unwrap_err().to_string().contains("line break"));
    }
}

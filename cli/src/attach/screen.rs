//! Where an attached command prints: the session's output, and below it a line with its progress.

use std::io::{self, IsTerminal};

use bytes::Bytes;
use fiber_backends::cluster::OutputChunk;
use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal::{has_reader, printable, write_chunk};

/// The output of the command.
pub(crate) struct Screen {
    /// The line with the progress, if standard error is a terminal.
    line: Option<ProgressBar>,
    /// How to detach, as the line says it.
    how: &'static str,
    /// The unfinished lines of standard output and error. Printed below them, the line with the
    /// progress would overwrite them.
    unfinished: [Vec<u8>; 2],
}

impl Screen {
    pub(crate) fn new(name: &str, has_keys: bool) -> Screen {
        let how = if has_keys { "q or Ctrl-C detaches" } else { "Ctrl-C detaches" };
        let line = io::stderr().is_terminal().then(|| {
            tell!("Attached to {}: {how}", printable(name));
            let line = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("{wide_msg}").expect("the template is valid");
            line.set_style(style);
            line
        });
        Screen { line, how, unfinished: Default::default() }
    }

    /// Prints a line of this command's own.
    pub(crate) fn say(&self, text: &str) {
        self.above(|| tell!("{}", printable(text)));
    }

    /// Prints output. Returns `false` if its reader is gone.
    pub(crate) fn print(&mut self, chunk: OutputChunk) -> io::Result<bool> {
        if self.line.is_none() {
            return has_reader(write_chunk(&chunk));
        }
        let [stdout, stderr] = &mut self.unfinished;
        let lines = match chunk {
            OutputChunk::Stdout(bytes) => complete(stdout, &bytes).map(OutputChunk::Stdout),
            OutputChunk::Stderr(bytes) => complete(stderr, &bytes).map(OutputChunk::Stderr),
        };
        lines.map_or(Ok(true), |lines| has_reader(self.above(|| write_chunk(&lines))))
    }

    pub(crate) fn shows_progress(&self) -> bool {
        self.line.is_some()
    }

    /// Shows the progress.
    pub(crate) fn show(&self, progress: &str) {
        if let Some(line) = &self.line {
            line.set_message(format!("{} · {}", printable(progress), self.how));
            line.tick();
        }
    }

    /// Removes the line with the progress, and prints what is unfinished.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if let Some(line) = self.line.take() {
            line.finish_and_clear();
        }
        let [stdout, stderr] = std::mem::take(&mut self.unfinished);
        has_reader(write_chunk(&OutputChunk::Stdout(stdout.into())))?;
        has_reader(write_chunk(&OutputChunk::Stderr(stderr.into())))?;
        Ok(())
    }

    /// Prints above the line with the progress.
    fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.line {
            Some(line) => line.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The reader may be gone.
        let _ = self.close();
    }
}

/// Adds output to an unfinished line, and returns the lines that are complete by it.
fn complete(unfinished: &mut Vec<u8>, bytes: &[u8]) -> Option<Bytes> {
    unfinished.extend_from_slice(bytes);
    let end = unfinished.iter().rposition(|byte| *byte == b'\n')?;
    Some(unfinished.drain(..=end).collect())
}

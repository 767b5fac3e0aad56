//! Where an attached command prints: the session's output, and below it a line with its progress.

use std::io::{self, IsTerminal, Write};

use fiber_backends::cluster::OutputChunk;
use fiber_core::Patient;
use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal::printable;

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
        let (stream, bytes) = match chunk {
            OutputChunk::Stdout(bytes) => (0, bytes),
            OutputChunk::Stderr(bytes) => (1, bytes),
        };
        if self.line.is_none() {
            return readable(write(stream, &bytes));
        }
        let unfinished = &mut self.unfinished[stream];
        unfinished.extend_from_slice(&bytes);
        let Some(end) = unfinished.iter().rposition(|byte| *byte == b'\n') else { return Ok(true) };
        let lines: Vec<u8> = unfinished.drain(..=end).collect();
        readable(self.above(|| write(stream, &lines)))
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
        for (stream, unfinished) in self.unfinished.iter_mut().enumerate() {
            readable(write(stream, &std::mem::take(unfinished)))?;
        }
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

fn write(stream: usize, bytes: &[u8]) -> io::Result<()> {
    let write = |stream: &mut dyn Write| {
        stream.write_all(bytes)?;
        stream.flush()
    };
    match stream {
        0 => write(&mut Patient(io::stdout().lock())),
        _ => write(&mut Patient(io::stderr().lock())),
    }
}

/// Returns whether what was written has a reader.
fn readable(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

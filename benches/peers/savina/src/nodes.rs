//! The second process of a program.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// The second process, which the first one starts.
pub(crate) struct Other(Child);

impl Other {
    /// Starts it with the arguments of this process and some more.
    pub(crate) fn start(more: &[&str]) -> Other {
        let own = std::env::args().skip(1).take(3);
        let mut other = Command::new(std::env::current_exe().expect("it has a path"));
        other.args(own).arg("1").args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
        Other(other.spawn().expect("it starts"))
    }

    /// Waits until it knows all actors.
    pub(crate) async fn ready(mut self) -> Other {
        let mut printed = BufReader::new(self.0.stdout.take().expect("it is a pipe"));
        let read = move || printed.read_line(&mut String::new());
        let read = tokio::task::spawn_blocking(read).await;
        read.expect("it does not panic").expect("it reads");
        self
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it is there");
        self.0.wait().expect("it is there");
    }
}

/// In the second process: says that it is ready, and waits until the first one ends.
pub(crate) async fn wait_for_end() {
    println!("ready");
    let wait = || std::io::stdin().read_to_end(&mut Vec::new());
    let _ = tokio::task::spawn_blocking(wait).await;
}

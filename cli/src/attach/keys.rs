//! The key that detaches, on a terminal.

use std::future::pending;
use std::io::{self, Read};

use fiber_core::Patient;
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use tokio::sync::mpsc;

/// The key.
pub(crate) const DETACH: u8 = b'q';

/// Single keys of the terminal at standard input. Dropping this restores the terminal.
pub(crate) struct Keys {
    original: Termios,
    pressed: mpsc::UnboundedReceiver<u8>,
}

impl Keys {
    /// Begins to read keys, if standard input is a terminal and this command is in its foreground.
    /// Signals and output work as before.
    pub(crate) fn of_terminal() -> Option<Keys> {
        let stdin = io::stdin();
        if tcgetpgrp(&stdin).ok()? != getpgrp() {
            return None;
        }
        let original = tcgetattr(&stdin).ok()?;
        let mut single = original.clone();
        single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(&stdin, OptionalActions::Now, &single).ok()?;
        let (sender, pressed) = mpsc::unbounded_channel();
        // A thread: the end of this command does not wait for it.
        std::thread::spawn(move || {
            let mut key = [0];
            while Patient(io::stdin()).read_exact(&mut key).is_ok() && sender.send(key[0]).is_ok() {
            }
        });
        Some(Keys { original, pressed })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.original);
    }
}

/// Waits until the key that detaches is pressed.
pub(crate) async fn pressed(keys: &mut Option<Keys>) {
    if let Some(keys) = keys {
        while let Some(key) = keys.pressed.recv().await {
            if key == DETACH {
                return;
            }
        }
    }
    pending().await
}

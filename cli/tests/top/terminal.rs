//! A terminal: a server of tmux with one window.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use fiber_test_support::wait::wait_for;

/// A terminal, which is closed when this is dropped.
pub(crate) struct Terminal {
    server: String,
}

impl Terminal {
    /// Opens a terminal with a shell, which has these variables.
    pub(crate) fn open(width: u16, height: u16, variables: &[(&str, &str)]) -> Terminal {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let terminal = Terminal { server: format!("fiber-{}-{number}", std::process::id()) };
        let (width, height) = (width.to_string(), height.to_string());
        let mut command = terminal.tmux(&["-f", "/dev/null", "-u", "new-session", "-d"]);
        command.args(["-x", &width, "-y", &height, "env", "PS1=$ ", "LC_ALL=C.UTF-8"]);
        command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        command.args(["bash", "--norc", "--noprofile"]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FIBER_") {
                command.env_remove(name);
            }
        }
        assert!(command.status().expect("tmux can be started").success());
        terminal.wait_for("$");
        terminal
    }

    /// Types a line, and presses Enter.
    pub(crate) fn enter(&self, line: &str) {
        self.run(&["send-keys", "-l", line]);
        self.press("Enter");
    }

    /// Waits until the shell asks for the next line. The command before it may read what is typed
    /// earlier.
    pub(crate) fn wait_for_prompt(&self) {
        self.wait_until("the prompt", |screen| screen.trim_end().ends_with('$'));
    }

    /// Presses a key by tmux's name for it.
    pub(crate) fn press(&self, key: &str) {
        self.run(&["send-keys", key]);
    }

    pub(crate) fn resize(&self, width: u16, height: u16) {
        self.run(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// Returns the text on the screen.
    pub(crate) fn screen(&self) -> String {
        let output = self.tmux(&["capture-pane", "-p"]).output().expect("tmux can be started");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the screen with its escape sequences.
    pub(crate) fn styled_screen(&self) -> String {
        let output = self.tmux(&["capture-pane", "-p", "-e"]).output().expect("it is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the screen has a text, and returns the screen.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_until(&format!("`{text}`"), |screen| screen.contains(text))
    }

    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, reached: impl Fn(&str) -> bool) -> String {
        wait_for(what, || {
            let screen = self.screen();
            if reached(&screen) {
                Ok(screen)
            } else {
                Err(screen.lines().map(String::from).collect::<Vec<_>>())
            }
        })
    }

    fn run(&self, arguments: &[&str]) {
        assert!(self.tmux(arguments).status().expect("tmux can be started").success());
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.server]).args(arguments);
        command.env_remove("TMUX").stdin(Stdio::null());
        command
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]).status();
    }
}

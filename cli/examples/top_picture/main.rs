//! Records `fiber top` while a worker of the example `sweep` is killed, and prints an animated
//! SVG. `make pictures` writes docs/images/top.svg with it.

mod svg;
#[path = "../../tests/top/terminal.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod terminal;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use self::svg::Frame;
use self::terminal::Terminal;

const WIDTH: u16 = 80;
const HEIGHT: u16 = 24;
const VICTIM: &str = "sweep/worker-2";

/// A process that ends when this is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a file of the build that this program belongs to.
fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this program is somewhere");
    let path = own.parent().expect("it is in a directory").join(name);
    path.canonicalize().unwrap_or_else(|_| panic!("{} is missing: make pictures", path.display()))
}

/// The screens of a terminal, each when it first appeared.
struct Recording {
    terminal: Terminal,
    start: Instant,
    frames: RefCell<Vec<Frame>>,
}

impl Recording {
    /// Adds what appears on the screen until that is the case.
    fn go_on(&self, what: &str, reached: impl Fn(&str, usize) -> bool) {
        self.terminal.wait_until(what, |screen| {
            let styled = self.terminal.styled_screen();
            let frame = Frame::new(self.start.elapsed(), &styled);
            let mut frames = self.frames.borrow_mut();
            if frames.last().is_none_or(|last| last.rows != frame.rows) {
                frames.push(frame);
            }
            reached(screen, frames.len())
        });
    }

    fn looks(&self, count: usize) {
        let seen = self.frames.borrow().len();
        self.go_on("more looks", |_, frames| frames >= seen + count);
    }
}

fn kill_worker(fiber: &Path, session: u32) {
    let name = format!("{session}/{VICTIM}");
    let killed = Command::new(fiber).args(["kill", "--now", &name]).stdout(Stdio::null()).status();
    assert!(killed.expect("the command can be started").success(), "{name} can't be killed");
}

fn main() {
    let (fiber, sweep) = (built("../fiber"), built("sweep"));
    let mut command = Command::new(sweep);
    let journals = tempfile::tempdir().expect("there is room");
    command.args(["--processes", "4", "--size", "300"]).env("FIBER_JOURNALS", journals.path());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let program = Program(command.spawn().expect("it can be started"));
    let session = program.0.id();

    let terminal = Terminal::open(WIDTH, HEIGHT, &[]);
    terminal.enter(&format!("{} top --interval 500ms {session}", fiber.display()));
    terminal.wait_for("sweep: 4 workers");
    terminal.wait_for("Slowest tasks");
    let recording = Recording { terminal, start: Instant::now(), frames: RefCell::new(Vec::new()) };
    recording.looks(4);
    kill_worker(&fiber, session);
    recording.go_on("the death", |screen, _| screen.contains("SIGKILL"));
    let still = recording.frames.borrow().len() - 1;
    recording.looks(6);
    print!("{}", svg::animation(&recording.frames.borrow(), still));
}

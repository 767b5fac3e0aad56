//! Commands that follow a session which runs elsewhere, and what ends them.

use rustix::process::Signal;

use crate::program::{Program, ProgramOutput, Setup};

/// How a command is lost that follows a session.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// Its terminal is closed.
    Terminal,
    /// It gets a signal.
    Signal(Signal),
}

/// All ways that leave the session of `fiber run -a`.
pub const LOSSES: [Loss; 4] = [
    Loss::Terminal,
    Loss::Signal(Signal::HUP),
    Loss::Signal(Signal::QUIT),
    Loss::Signal(Signal::KILL),
];

impl Loss {
    /// Starts a command that will be lost.
    pub fn start(self, setup: Setup) -> Program {
        match self {
            Loss::Terminal => setup.in_a_terminal().start(),
            Loss::Signal(_) => setup.start(),
        }
    }

    /// Loses a command when its session has printed `ready: 2`.
    #[track_caller]
    pub fn lose(self, command: Program) -> ProgramOutput {
        command.line_with("ready: 2");
        match self {
            // The program that is the terminal. The command ends by itself.
            Loss::Terminal => {
                command.signal(Signal::KILL);
                command.end()
            }
            Loss::Signal(signal) => {
                command.signal(signal);
                let ending = command.end();
                let is_caught = signal == Signal::HUP;
                if is_caught { ending.code(128 + signal.as_raw()) } else { ending.signal(signal) }
            }
        }
    }
}

/// Checks that signals and a lost reader end the commands that follow a session, which has printed
/// `ready: 2`. The caller checks that it goes on. `command` makes a command of its arguments.
#[track_caller]
pub fn can_be_ended(session: &str, command: impl Fn(&[&str]) -> Setup) {
    let attach = ["attach", "--from-start", session];
    let logs = ["logs", "--follow", session];
    let wait = ["wait", session];
    let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::KILL];
    // All of them side by side: some take seconds to find the session.
    let started: Vec<_> = [&attach[..], &logs, &wait]
        .into_iter()
        .flat_map(|words| signals.map(|signal| (words[0], signal, command(words).start())))
        .collect();
    let unread = [(&attach, 128 + Signal::PIPE.as_raw()), (&logs, 0)];
    let unread = unread.map(|(words, code)| (command(words).start_unread(), code));
    for (name, signal, program) in started {
        if name != "wait" {
            program.line("ready: 2");
        }
        program.signal(signal);
        let ending = program.end();
        let is_caught = name == "attach" && ![Signal::QUIT, Signal::KILL].contains(&signal);
        if is_caught {
            ending.code(128 + signal.as_raw())
        } else {
            ending.signal(signal)
        };
    }
    for (program, code) in unread {
        program.end().code(code);
    }
}

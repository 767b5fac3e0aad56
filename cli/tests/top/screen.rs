//! `fiber top` in a terminal, as a person uses it.

use fiber_test_support::program::Program;
use fiber_test_support::trial;
use rustix::process::{Pid, Signal, kill_process};

use crate::start;
use crate::terminal::Terminal;

fn command(program: &Program) -> String {
    format!("{} top --interval 200ms {}", env!("CARGO_BIN_EXE_fiber"), program.pid())
}

fn watch(program: &Program, variables: &[(&str, &str)]) -> Terminal {
    let terminal = Terminal::open(80, 24, variables);
    terminal.enter(&command(program));
    terminal.wait_for("squares: 3 workers");
    terminal
}

/// Checks that the shell is there, and that it shows what is typed.
#[track_caller]
pub(crate) fn is_restored(terminal: &Terminal) {
    terminal.wait_for_prompt();
    terminal.enter("echo left with $?");
    let screen = terminal.wait_for("left with 0");
    assert!(screen.contains("echo left with $?"), "{screen}");
    assert!(!screen.contains("Slowest tasks"), "{screen}");
    terminal.enter("stty -a | grep -o ' icanon'");
    terminal.wait_until("canonical input", |screen| screen.lines().any(|line| line == " icanon"));
}

#[trial]
fn a_person_finds_the_stack_of_a_slow_task() {
    let program = start();
    let terminal = watch(&program, &[]);
    let screen = terminal.wait_for("1 long");
    let pid = format!("pid {}", program.pid());
    for text in [pid.as_str(), "4 processes", "Pools 1", "tasks/s", "Last events"] {
        assert!(screen.contains(text), "`{text}` is missing in:\n{screen}");
    }
    // To the tasks, and into the worker of the slowest.
    terminal.press("Tab");
    terminal.press("Tab");
    terminal.wait_for("spin");
    terminal.press("Enter");
    terminal.wait_for("runs for");
    terminal.wait_for("a worker speaks");
    terminal.press("s");
    terminal.wait_for("Stacks of squares/worker-");
    terminal.wait_for("spin");
    terminal.press("Escape");
    terminal.wait_for("last output");
    // Escape and another key in one read are a key with Alt.
    terminal.press("Escape");
    terminal.wait_for("Pools 1");
    terminal.press("Tab");
    terminal.wait_for("P99");
    terminal.press("?");
    terminal.wait_for("q, Ctrl-C");
    terminal.press("?");
    terminal.press("q");
    is_restored(&terminal);
}

#[trial]
fn the_terminal_is_restored_when_the_session_ends() {
    let program = start();
    let terminal = watch(&program, &[]);
    let pid = program.pid();
    drop(program);
    terminal.wait_for(&format!("The session of pid {pid} ("));
    is_restored(&terminal);
}

/// Returns the commands that watch a program.
fn watching(program: &Program) -> Vec<Pid> {
    let pid = program.pid().to_string();
    let of_top = |entry: std::fs::DirEntry| {
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<_> = command.split(|byte| *byte == 0).collect();
        let is_top = words.len() > 4 && words[1] == b"top" && words[4] == pid.as_bytes();
        is_top.then(|| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).flatten()
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(of_top).collect()
}

#[trial]
fn ctrl_c_and_signals_leave_the_session_and_restore_the_terminal() {
    let program = start();
    let terminal = watch(&program, &[]);
    terminal.press("C-c");
    is_restored(&terminal);
    // Nothing can restore it after the last two.
    let caught = [Signal::TERM, Signal::HUP];
    for signal in [&caught[..], &[Signal::QUIT, Signal::KILL]].concat() {
        // A command that ends at once is gone before the shell brings it to the foreground.
        let foreground = if caught.contains(&signal) { "& sleep 0; fg;" } else { ";" };
        terminal.enter(&format!("clear; {} {foreground} echo code $?", command(&program)));
        program.wait_until("the command", || !watching(&program).is_empty());
        if caught.contains(&signal) {
            terminal.wait_for("squares: 3 workers");
        }
        for pid in watching(&program) {
            kill_process(pid, signal).unwrap();
        }
        terminal.wait_for(&format!("code {}", 128 + signal.as_raw()));
        if caught.contains(&signal) {
            is_restored(&terminal);
        }
    }
    // The terminal goes.
    terminal.enter(&command(&program));
    program.wait_until("the command", || !watching(&program).is_empty());
    drop(terminal);
    program.wait_until("its end", || watching(&program).is_empty());
    assert!(program.has_not_ended());
}

#[trial]
fn a_smaller_terminal_says_so_until_it_grows() {
    let program = start();
    let terminal = watch(&program, &[]);
    terminal.resize(50, 10);
    terminal.wait_for("50x10");
    terminal.wait_until("what to do", |screen| screen.contains("--once"));
    terminal.resize(120, 40);
    terminal.wait_for("Processes 4");
    terminal.wait_for("Functions");
    terminal.press("q");
    is_restored(&terminal);
}

#[trial]
fn without_color_and_unicode_the_screen_is_plain() {
    let program = start();
    let colored = watch(&program, &[]);
    let has_color = |screen: &str| {
        let sequences = screen.split("\u{1b}[").filter_map(|rest| rest.split('m').next());
        let mut numbers = sequences.flat_map(|sequence| sequence.split(';'));
        // 39 is the terminal's own color.
        numbers.any(|number| {
            number.parse::<u32>().is_ok_and(|number| matches!(number, 30..=38 | 90..=97))
        })
    };
    assert!(has_color(&colored.styled_screen()));
    let plain = watch(&program, &[("NO_COLOR", "1")]);
    plain.wait_for("1 long");
    assert!(!has_color(&plain.styled_screen()), "{:?}", plain.styled_screen());
    let dumb = watch(&program, &[("TERM", "dumb")]);
    let screen = dumb.wait_for("1 long");
    assert!(screen.is_ascii() && !has_color(&dumb.styled_screen()), "{screen}");
}

#[trial]
fn sessions_are_listed_and_filtered() {
    let (one, other) = (start(), start());
    let terminal = Terminal::open(100, 40, &[]);
    terminal.enter(&format!("{} top", env!("CARGO_BIN_EXE_fiber")));
    terminal.wait_for("Sessions");
    for program in [&one, &other] {
        terminal.wait_for(&format!("pid {}", program.pid()));
    }
    // Other programs of this machine may be listed first.
    let pid = format!("pid {}", one.pid());
    terminal.press("/");
    terminal.enter(&pid);
    terminal
        .wait_until("one session", |screen| screen.contains("Sessions 1") && screen.contains(&pid));
    terminal.press("Enter");
    terminal.wait_for("squares: 3 workers");
    terminal.press("q");
    is_restored(&terminal);
}

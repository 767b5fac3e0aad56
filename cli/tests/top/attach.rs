//! `fiber attach` and `fiber run --restarts` in a terminal, as a person uses them.

use fiber_test_support::trial;

use crate::screen::is_restored;
use crate::start;
use crate::terminal::Terminal;

#[trial]
fn a_person_follows_a_program_of_this_host_and_detaches() {
    let program = start();
    let pid = program.pid();
    let terminal = Terminal::open(100, 24, &[]);
    let attach = || {
        terminal.enter(&format!("clear; {} attach {pid}", env!("CARGO_BIN_EXE_fiber")));
        terminal.wait_for(&format!("The output of pid {pid} is where it was started"));
        terminal.wait_until("the progress", |screen| {
            screen.lines().any(|line| line.contains("/s") && line.contains("q or Ctrl-C detaches"))
        });
    };
    attach();
    terminal.press("q");
    terminal.wait_for(&format!("Detached from pid {pid}, which goes on"));
    is_restored(&terminal);
    attach();
    drop(program);
    terminal.wait_for("its exit code is known where it was started");
    terminal.wait_for_prompt();
    terminal.enter("echo left with $?");
    terminal.wait_for("left with 1");
}

#[trial]
fn ctrl_c_ends_a_program_with_restarts_for_good() {
    let terminal = Terminal::open(100, 24, &[("SCENARIO", "busy")]);
    let own = std::env::current_exe().expect("this binary is somewhere");
    let (command, own) = (env!("CARGO_BIN_EXE_fiber"), own.display());
    terminal.enter(&format!("{command} run --restarts 5 {own}"));
    terminal.wait_for("a worker speaks");
    terminal.press("C-c");
    terminal.wait_for_prompt();
    terminal.enter("echo left with $?");
    let screen = terminal.wait_for("left with 130");
    assert!(!screen.contains("starting it again"), "{screen}");
}

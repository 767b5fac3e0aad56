//! The screen in terminals of several sizes.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use fiber_core::stats::SessionStats;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::app::{Effect, Pane};
use super::super::theme::Theme;
use super::*;
use crate::inspect::InspectError;
use crate::inspect::sessions::Observed;
use crate::inspect::testing::{head_here, service, stats};

const PLAIN: Theme = Theme { color: false, unicode: false };

fn observed(pid: u32, mut stats: SessionStats) -> Observed {
    stats.session = format!("{pid:016x}");
    Observed { head: head_here(pid), stats: Ok(Arc::new(stats)) }
}

/// Returns the screen of a session with this many workers.
fn app(theme: Theme, workers: u64) -> App {
    let mut app = App::new(theme, Some(format!("{:016x}", 4001)));
    let stats = stats("simulate", workers);
    app.update(vec![observed(4001, stats)]);
    app
}

/// Draws the screen and returns its lines.
fn lines(app: &mut App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    cells.chunks(usize::from(width)).map(|row| row.concat().trim_end().to_string()).collect()
}

fn text(app: &mut App, width: u16, height: u16) -> String {
    lines(app, width, height).join("\n")
}

fn press(app: &mut App, keys: &[KeyCode]) -> Effect {
    let press = |key: &KeyCode| app.press(KeyEvent::new(*key, KeyModifiers::NONE));
    keys.iter().map(press).last().unwrap_or(Effect::None)
}

#[track_caller]
fn shows(app: &mut App, (width, height): (u16, u16), wanted: &[&str]) {
    let text = text(app, width, height);
    for wanted in wanted {
        assert!(text.contains(wanted), "`{wanted}` is missing in:\n{text}");
    }
}

#[test]
fn a_small_terminal_shows_everything_that_matters() {
    shows(
        &mut app(PLAIN, 8),
        (80, 24),
        &[
            "fiber top  simulate  pid 4001, local, up 3h05m, 9 processes",
            "tasks/s 12.3k",
            "PSS 135.0M",
            "squares            8/8     3   12.3k     3.0M      320     7.0M       2      1",
            "squares: 8 workers",
            "!1 slow #0 long +4 short .3 idle",
            "worker-1 !!!!!!!! 41.0s step #124",
            "!41.0s ~ulate::step     124 worker-1",
            "1m30s squares/worker-2 (pid 3999) was killed by signal 9",
            "? help",
        ],
    );
}

#[test]
fn the_smallest_terminal_shows_a_row_of_each_pane_and_whole_hints() {
    let (width, height) = SMALLEST;
    let mut app = app(PLAIN, 8);
    let whole = &[
        "fiber top  simulate  pid 4001, local, up 3h05m, 9 processes",
        "POOL              WORKERS  WAITING     DONE  FAILED DEATHS|",
        "squares               8/8     3.0M     7.0M       2      1|",
        "|!1 slow #0 long +4 short .3|",
        "|!++++...",
        "|RUNS FOR FUNCTION       INDEX|",
        "|  !41.0s ~ulate::step     124|",
        "1m30s squares/worker-2 (pid 3999) was killed by signal",
    ];
    shows(&mut app, SMALLEST, whole);
    let drawn = lines(&mut app, width, height);
    let hints = drawn.last().unwrap();
    assert_eq!(hints, "Tab pane  Enter open  / filter  o sort  ? help  q leave");
    // A longer filter takes the place of hints, never that of the last two.
    app.filter.0 = "worker-".repeat(9);
    let drawn = lines(&mut app, width, height);
    let hints = drawn.last().unwrap();
    assert!(hints.starts_with("filter: worker-") && hints.ends_with("? help  q leave"), "{hints}");
}

#[test]
fn each_line_of_help_is_whole() {
    let mut app = app(PLAIN, 2);
    press(&mut app, &[KeyCode::Char('?')]);
    for size in [SMALLEST, (80, 24)] {
        let lines = HELP.iter().map(|(keys, what)| format!("{keys:<HELP_KEYS$}{what}"));
        let lines: Vec<String> = lines.collect();
        shows(&mut app, size, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn what_tasks_wait_for_shows_in_a_line_of_its_own() {
    let mut stats = stats("simulate", 8);
    let call = &mut stats.report.pools[0].calls[0];
    (call.held, call.waits_for) = (12, vec!["simulate::load".into()]);
    let mut app = App::new(PLAIN, Some(format!("{:016x}", 4001)));
    app.update(vec![observed(4001, stats.clone())]);
    for size in [SMALLEST, (80, 24)] {
        shows(&mut app, size, &["step: 12 wait for load", "8/8 ", "!41.0s ", "1m30s "]);
    }
    // A warning goes first where there is room for one line alone.
    let usage = stats.report.processes[0].usage.as_mut().unwrap();
    usage.spilled = 300 << 20;
    app.update(vec![observed(4001, stats)]);
    let wanted = ["values of simulate: ", "step: 12 wait for load", "8/8 ", "!41.0s ", "1m30s "];
    shows(&mut app, (80, 24), &wanted);
    shows(&mut app, SMALLEST, &["values of simulate: ", "8/8 ", "!41.0s ", "1m30s "]);
}

#[test]
fn a_filter_of_a_worker_picks_lines_and_threads() {
    let mut app = app(PLAIN, 8);
    let mut stats = stats("simulate", 8);
    stats.report.processes[1].tail = vec!["step 1".into(), "a warning".into()];
    app.update(vec![observed(4001, stats)]);
    let type_text = |app: &mut App, text: &str| {
        press(app, &[KeyCode::Char('/')]);
        press(app, &text.chars().map(KeyCode::Char).collect::<Vec<_>>());
        press(app, &[KeyCode::Enter]);
    };
    // The filter of the panes does not hide the worker's output.
    type_text(&mut app, "worker-1");
    press(&mut app, &[KeyCode::Tab, KeyCode::Enter]);
    shows(&mut app, (80, 24), &["step 1", "a warning", "/ filter"]);
    type_text(&mut app, "warn");
    shows(&mut app, (80, 24), &["a warning", "filter: warn"]);
    assert!(!text(&mut app, 80, 24).contains("step 1"));
    press(&mut app, &[KeyCode::Esc]);
    shows(&mut app, (80, 24), &["step 1", "a warning", "squares/worker-1"]);
    press(&mut app, &[KeyCode::Char('s')]);
    app.stack =
        Some("process 1\n\nthread 1 `main`: runs\n    step\n\nthread 2 `idle`: sleeps".into());
    type_text(&mut app, "MAIN");
    shows(&mut app, (80, 24), &["thread 1 `main`: runs", "    step", "filter: MAIN"]);
    assert!(!text(&mut app, 80, 24).contains("idle"));
    press(&mut app, &[KeyCode::Esc]);
    shows(&mut app, (80, 24), &["thread 2 `idle`"]);
    // Back at the panes, their filter is there again.
    press(&mut app, &[KeyCode::Esc, KeyCode::Esc]);
    shows(&mut app, (80, 24), &["filter: worker-1", "squares: 1 worker "]);
}

#[test]
fn many_workers_are_a_grid_whose_cells_open() {
    let mut app = app(PLAIN, 1024);
    shows(&mut app, (80, 24), &["squares: 1024 workers, 4 a cell", "127 long"]);
    let drawn = text(&mut app, 200, 60);
    assert!(
        drawn.contains("squares: 1024 workers ") && drawn.contains("|!++++...#++++...#"),
        "{drawn}"
    );
    text(&mut app, 80, 24);
    // Two cells to the right: the workers 9 to 12.
    press(&mut app, &[KeyCode::Tab, KeyCode::Right, KeyCode::Right, KeyCode::Enter]);
    shows(&mut app, (80, 24), &["4 workers of 1024", "worker-9 ", "worker-12"]);
    press(&mut app, &[KeyCode::Down, KeyCode::Enter]);
    shows(&mut app, (80, 24), &["squares/worker-10", "pid 4011 on host", "line of worker-10"]);
    press(&mut app, &[KeyCode::Esc, KeyCode::Esc]);
    shows(&mut app, (80, 24), &["4 a cell"]);
    assert_eq!(app.cursor(Pane::Workers), 2);
}

#[test]
fn a_line_of_the_grid_is_as_wide_as_the_pane() {
    let mut app = app(PLAIN, 1024);
    let drawn = lines(&mut app, 80, 24);
    let first = drawn.iter().position(|line| line.contains("127 long")).unwrap();
    let cells = |line: &String| line.chars().skip(1).take_while(|c| "!#+.".contains(*c)).count();
    let numbers: Vec<usize> = drawn[first + 1..].iter().map(cells).collect();
    assert!(numbers[0] >= 30 && numbers.iter().sum::<usize>() >= 256, "{numbers:?}");
    press(&mut app, &[KeyCode::Tab, KeyCode::Down]);
    assert_eq!(app.cursor(Pane::Workers), numbers[0]);
}

#[test]
fn a_worker_shows_its_statistics_and_its_stack() {
    let mut app = app(PLAIN, 8);
    press(&mut app, &[KeyCode::Tab, KeyCode::Enter]);
    shows(
        &mut app,
        (80, 24),
        &[
            "runs      pid 4002 on host, worker, running",
            "runs for  41.0s: task 124 (`simulate::step`), ten times the usual time",
            "line of worker-1",
        ],
    );
    let Effect::Stack(head, process) = press(&mut app, &[KeyCode::Char('s')]) else {
        panic!("it asks")
    };
    assert_eq!((head.name.as_str(), process.0), ("pid 4001", 2));
    shows(&mut app, (80, 24), &["Stacks of squares/worker-1", "Waiting"]);
    app.stack = Some((1..=100).map(|line| format!("frame {line}\n")).collect());
    shows(&mut app, (80, 24), &["frame 1\n", "frame 20"].map(str::trim_end));
    press(&mut app, &[KeyCode::End]);
    shows(&mut app, (80, 24), &["frame 100"]);
}

#[test]
fn tab_goes_through_all_panes() {
    let mut app = app(PLAIN, 8);
    for title in
        ["8 workers", "Slowest", "Functions", "Actors", "Processes", "Last events", "Pools"]
    {
        press(&mut app, &[KeyCode::Tab]);
        shows(&mut app, (80, 24), &[title]);
    }
    press(&mut app, &[KeyCode::BackTab]);
    assert_eq!(app.pane, Pane::Events);
}

#[test]
fn a_service_shows_its_actors() {
    let mut bank = stats("bank", 0);
    bank.report.pools.clear();
    service(&mut bank, 12);
    let mut app = App::new(PLAIN, Some(format!("{:016x}", 4001)));
    app.update(vec![observed(4001, bank)]);
    let wanted = [
        "messages/s 7.8k",
        "|ACTOR                TYPE       MSGS/S WAITING     P50     P99 FAILED RESTARTS    PSS|",
        "|till-1 (teller-1)    ~r::Teller    100      12   2.0ms   2.0ms      0        0  14.0M|",
        "|teller-2             ~r::Teller    200      12   4.0ms   4.0ms      1        1  15.0M|",
    ];
    shows(&mut app, (87, 24), &wanted);
    shows(&mut app, SMALLEST, &["|till-1 (te~    100      12   2.0ms   2.0ms      0        0|"]);
    shows(&mut app, (100, 40), &["Actors 12", "Processes 13", "  teller-2"]);
    press(&mut app, &[KeyCode::Tab; 4]);
    press(&mut app, &[KeyCode::Char('o'), KeyCode::Char('o')]);
    let drawn = text(&mut app, 80, 24);
    assert!(drawn.contains("Actors 12 by amount"), "{drawn}");
    assert!(drawn.find("teller-12") < drawn.find("teller-11"), "{drawn}");
    press(&mut app, &[KeyCode::Enter]);
    shows(&mut app, (80, 24), &["teller-12", "actor, running"]);
}

#[test]
fn a_terminal_that_is_too_small_says_so() {
    for (width, height) in [(40, 10), (59, 24), (80, 15), (20, 3), (1, 1)] {
        let drawn = text(&mut app(PLAIN, 8), width, height);
        if width >= 40 {
            let words = drawn.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&format!("{width}x{height}")), "{words}");
            assert!(words.contains("--once") && words.contains("60x16"), "{words}");
        }
    }
    for (width, height) in [(60, 16), (61, 17), (300, 16), (60, 200)] {
        shows(&mut app(PLAIN, 1024), (width, height), &["squares", "1024 workers"]);
    }
}

#[test]
fn sessions_are_listed_and_one_opens() {
    let mut app = App::new(PLAIN, None);
    let problem = InspectError::Silent("pid 9 does not answer".into());
    let silent = Observed { head: head_here(9), stats: Err(problem) };
    let all = || vec![observed(1, stats("one", 2)), observed(2, stats("two", 3)), silent.clone()];
    assert_eq!(app.update(all()), None);
    shows(&mut app, (80, 24), &["Sessions 2", "pid 1", "one", "two", "pid 9 does not answer"]);
    press(&mut app, &[KeyCode::Down, KeyCode::Enter]);
    shows(&mut app, (80, 24), &["two  pid 2", "squares: 3 workers"]);
    // It ends: the list is shown again.
    assert_eq!(app.update(vec![observed(1, stats("one", 2))]), None);
    shows(&mut app, (80, 24), &["Sessions 1", "The session of pid 2 (two) has ended."]);
    app.update(vec![observed(1, stats("one", 2))]);
    press(&mut app, &[KeyCode::Enter]);
    shows(&mut app, (80, 24), &["one  pid 1"]);
    let ended = app.update(Vec::new()).expect("there is no other session");
    assert_eq!(ended, "The session of pid 1 (one) has ended.");
}

#[test]
fn a_session_that_does_not_answer_stays() {
    let mut app = app(PLAIN, 2);
    let problem = InspectError::Silent("pid 4001 does not answer".into());
    let silent = Observed { head: head_here(4001), stats: Err(problem) };
    assert_eq!(app.update(vec![silent]), None);
    shows(&mut app, (80, 24), &["pid 4001 does not answer"]);
    assert_eq!(app.update(vec![observed(4001, stats("simulate", 2))]), None);
    shows(&mut app, (80, 24), &["squares: 2 workers"]);
    let ended = app.update(Vec::new()).expect("it has ended");
    assert!(ended.contains("has ended"), "{ended}");
}

#[test]
fn a_paused_screen_keeps_what_it_shows() {
    let mut app = app(PLAIN, 2);
    press(&mut app, &[KeyCode::Char('p')]);
    assert_eq!(app.update(vec![observed(4001, stats("simulate", 5))]), None);
    shows(&mut app, (80, 24), &["PAUSED", "squares: 2 workers"]);
    press(&mut app, &[KeyCode::Char('p')]);
    app.update(vec![observed(4001, stats("simulate", 5))]);
    shows(&mut app, (80, 24), &["squares: 5 workers"]);
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let mut evil = stats("simulate", 1);
    evil.program = "bad\u{1b}[2Jname".into();
    evil.report.processes[1].tail = vec!["\u{1b}]0;title\u{7}line".into()];
    let mut app = App::new(PLAIN, Some(format!("{:016x}", 4001)));
    app.update(vec![observed(4001, evil)]);
    press(&mut app, &[KeyCode::Tab, KeyCode::Enter]);
    let drawn = text(&mut app, 80, 24);
    assert!(!drawn.contains(['\u{1b}', '\u{7}']) && drawn.contains("line"), "{drawn}");
}

//! The output of children.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

#[trial]
fn output_goes_to_the_parents_output() {
    let ending = Setup::new("output").run().code(0);
    let ending =
        ending.says(&["from standard output", "and a last line without an end", "from a worker"]);
    assert!(ending.errors.contains("from standard error"), "{}", ending.errors);
    assert!(!ending.out.contains("from nowhere"), "{}", ending.out);
}

#[trial]
fn each_line_can_have_a_prefix() {
    let ending = Setup::new("output")
        .env("FIBER_OUTPUT", "prefix")
        .run()
        .code(0)
        .says(&["[talker] from standard output\n", "[talker] and a last line without an end"]);
    assert!(ending.errors.contains("[talker] from standard error"), "{}", ending.errors);
    let worker =
        ending.out.lines().find(|line| line.ends_with("from a worker")).expect("it was printed");
    assert!(worker.starts_with("[choir"), "{worker}");
}

#[trial]
fn equal_lines_of_several_processes_become_one_and_none_is_lost() {
    let setup = Setup::new("equal lines").env("FIBER_OUTPUT", "merge");
    let enough = setup.directory().join("enough");
    let program = setup.start();
    let merged = program.line_with("[4 workers] round ");
    std::fs::write(enough, "").unwrap();
    let ending = program.end().code(0);
    let rounds = ending.out.lines().find_map(|line| line.strip_prefix("rounds "));
    let rounds: usize = rounds.expect("it is printed").parse().unwrap();
    let mut sung = vec![0; rounds];
    let lines = ending.out.lines().filter(|line| line.starts_with('[')).chain([&*merged]);
    for (label, round) in lines.map(|line| line.split_once("] round ").expect("a line")) {
        let several = label.strip_suffix(" workers").map(|label| label[1..].parse().unwrap());
        assert!(several.is_some() || label.starts_with("[choir/worker-"), "{label}");
        sung[round.parse::<usize>().unwrap()] += several.unwrap_or(1);
    }
    assert_eq!(sung, vec![4; rounds]);
}

#[trial]
fn output_can_go_to_a_file_for_each_process() {
    let setup = Setup::new("output").env("FIBER_OUTPUT", "file").env("FIBER_LOG_DIR", "logs/today");
    let ending = setup.run().code(0);
    assert!(
        !ending.out.contains("from") && !ending.errors.contains("from"),
        "{}{}",
        ending.out,
        ending.errors
    );
    let log = |name: &str| {
        std::fs::read_to_string(ending.directory().join("logs/today").join(name)).unwrap()
    };
    assert_eq!(
        log("talker.log"),
        "from standard output\nfrom standard error\nand a last line without an end"
    );
    assert_eq!(log("choir-worker-1.log"), "from a worker\n");
    for created in ["logs", "logs/today"] {
        let mode = fs::metadata(ending.directory().join(created)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{created}");
    }
}

#[trial]
fn a_log_directory_that_can_not_be_written_is_reported() {
    let setup =
        Setup::new("too large").env("FIBER_OUTPUT", "file").env("FIBER_LOG_DIR", "/proc/no/such");
    let ending = setup.env("FIBER_MAX_MESSAGE", "64KiB").run();
    assert!(ending.out.contains("set `log_dir` to a writable directory"), "{}", ending.out);
}

#[trial]
fn a_log_directory_that_others_could_have_made_is_refused() {
    let shared = tempfile::tempdir().unwrap();
    let logs = shared.path().join("logs");
    fs::create_dir(&logs).unwrap();
    for (directory, mode) in [(shared.path(), 0o1777), (&*logs, 0o777)] {
        fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
    }
    let setup = Setup::new("too large").env("FIBER_OUTPUT", "file").env("FIBER_LOG_DIR", &logs);
    let ending = setup.env("FIBER_MAX_MESSAGE", "64KiB").run();
    let problem = format!("other users can write `{}`: choose", logs.display());
    assert!(ending.out.contains(&problem), "{}", ending.out);
}

#[trial]
fn a_progress_bar_is_drawn_only_in_a_terminal() {
    Setup::new("progress").in_a_terminal().run().code(0).says(&[
        "squares ",
        "300/300",
        "sum 8955050",
    ]);
    let ending = Setup::new("progress").run().code(0).says(&["sum 8955050"]);
    assert_eq!(ending.errors, "");
}

#[trial]
fn lines_during_a_progress_bar_leave_no_old_bar() {
    let setup = Setup::new("progress beside lines").in_a_terminal();
    let go = setup.directory().join("go");
    let program = setup.start();
    let of_workers = (0..8).flat_map(|x| [format!("worker {x}"), format!("also worker {x}")]);
    let of_workers = of_workers.collect::<Vec<_>>();

    program.shows(&of_workers);
    std::fs::write(go, "").unwrap();
    let ending = program.end().code(0);

    // `script` sets no size for its terminal; programs then use 80 columns.
    let size = |cells| std::num::NonZero::new(cells).unwrap();
    let mut terminal = vt100::Parser::new(size(60), size(80), 0);
    terminal.process(ending.out.replace('\n', "\r\n").as_bytes());
    let rows = terminal.screen().rows(0, 80).map(|row| row.trim_end().to_string());
    let screen = rows.filter(|row| !row.is_empty()).collect::<Vec<_>>();
    let bars = screen.iter().filter(|row| row.starts_with("lines ")).collect::<Vec<_>>();
    assert!(matches!(*bars, [bar] if bar.contains(" 8/8 ")), "{screen:#?}");
    for line in of_workers.into_iter().chain((0..8).map(|x| format!("program {x}"))) {
        assert_eq!(screen.iter().filter(|row| **row == line).count(), 1, "{line} in {screen:#?}");
    }
    assert_eq!(screen.len(), 25, "{screen:#?}");
}

#[trial]
fn output_without_a_reader_stops_nothing() {
    let ending = Setup::new("chatter").start_unread().end().code(0);
    assert!(
        ending.errors.contains("sum 190") && ending.errors.contains("spawned 7"),
        "{}",
        ending.errors
    );
}

#[trial]
fn a_slow_reader_misses_nothing() {
    let ending = Setup::new("report").start_read_slowly().end().code(0);
    let lines: Vec<&str> = ending.out.lines().collect();
    assert_eq!(lines.len(), 5000);
    assert!(lines.last().is_some_and(|line| line.starts_with("line 4999")), "{:?}", lines.last());
}

#[trial]
fn output_that_can_not_be_written_is_reported_and_stops_nothing() {
    let words = "output of a child process is lost: this process's output can't be written: \
                 No space left on device";
    for scenario in ["report", "report without a log"] {
        let ending = Setup::new(scenario).start_on_a_full_device().end().code(0);
        assert!(ending.errors.contains(words), "{scenario}: {}", ending.errors);
    }
}

#[trial]
fn lines_without_an_end_are_forwarded_once() {
    let ending = Setup::new("unfinished lines").run().code(0);
    let texts = [
        "one task",
        "a thread",
        "initializer",
        "before a timeout",
        "process",
        "actor",
        "rank 0",
        "rank 1",
    ];
    let tasks = (0..1000).map(|n| format!("task {n}"));
    for text in texts.map(String::from).into_iter().chain(tasks) {
        let times = ending.out.matches(&format!("<{text}>")).count();
        // Each incarnation of a worker runs its initializer.
        let right = if text == "initializer" { times >= 1 } else { times == 1 };
        assert!(right, "<{text}> appears {times} times in:\n{}", ending.out);
    }
}

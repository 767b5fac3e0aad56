//! How seeds are played, and what is said of those that fail.

use std::time::Duration;

use fiber::Pool;
use fiber::sim::{self, Faults};

use crate::{fails, run_test};

fn square(x: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(10));
    x * x
}

#[test]
fn no_seed_fails_in_which_all_goes_well() {
    sim::check(30, async |world| {
        let pool = Pool::new(3)?.max_deaths(u32::MAX);
        pool.wait_until_ready().await?;
        let storm = world.storm(Faults::default());
        let squares = pool.map(square, 0..60).await?;
        assert_eq!(squares, (0..60).map(|x| x * x).collect::<Vec<_>>());
        world.calm(storm).await;
        Ok(())
    });
}

#[test]
#[ignore = "another test starts it"]
fn one_seed_in_many_fails() {
    sim::check(300, async |world| {
        let pool = Pool::new(3)?.max_deaths(u32::MAX);
        pool.wait_until_ready().await?;
        let storm = world.storm(Faults::default());
        println!("a line of the program");
        // The addresses of random numbers' states have a part in the history, too.
        let numbers: Vec<u64> = pool.map(|x: u64| x ^ rand::random::<u64>(), 0..40).await?;
        world.note(format!("{:?}", numbers.first()));
        world.calm(storm).await;
        if world.draw(0..8) == 0 { Err("it is one of them".into()) } else { Ok(()) }
    });
}

/// Returns the text between two others.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let from = text.find(start).unwrap_or_else(|| panic!("no `{start}` in {text}")) + start.len();
    let len = text[from..].find(end).unwrap_or_else(|| panic!("no `{end}` in {text}"));
    &text[from..from + len]
}

#[test]
fn a_failing_seed_is_played_again_with_the_same_history() {
    let name = "plays::one_seed_in_many_fails";
    let texts = [
        "fails: it is one of them",
        "Its history",
        "a line of the program",
        "FAILS",
        "play it again, with all of its history: FIBER_SIM_SEED=",
        &format!(" cargo test {name}"),
    ];
    let output = fails(name, &[], &texts);
    let seed = between(&output, "FIBER_SIM_SEED=", " ");
    let last = between(&output, "Its history", "Its output");
    let (_, last) = last.split_once('\n').expect("the line ends");

    let replay = || fails(name, &[("FIBER_SIM_SEED", seed)], &["fails: it is one of them"]);
    let history = |output: &str| between(output, ". Its history:\n", "Its output").to_string();
    let whole = history(&replay());
    assert!(whole.ends_with(last), "{last}\nis not the end of\n{whole}");
    assert!(whole.contains("starts") && whole.contains("pool-1/worker-1"), "{whole}");
    assert_eq!(history(&replay()), whole);
}

#[test]
fn a_failing_seed_has_a_page() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("history.html");
    let path = path.to_str().expect("it is a text");
    let name = "plays::one_seed_in_many_fails";
    fails(name, &[("FIBER_SIM_HTML", path)], &[]);
    let page = std::fs::read_to_string(path).expect("it is written");
    assert!(page.contains("fails: it is one of them: its history</title>"), "{page}");
    assert!(page.contains("<th>pool-1/worker-3</th>"), "{page}");
    fails(name, &[("FIBER_SIM_HTML", "/no/folder")], &["FIBER_SIM_HTML: /no/folder: No such"]);
}

#[test]
fn given_seeds_and_another_number_are_played() {
    let name = "plays::one_seed_in_many_fails";
    let passing = (0..50).find(|seed| run_test(name, &[("FIBER_SIM_SEED", &seed.to_string())]).0);
    let passing = passing.expect("most seeds do not fail");
    let (_, output) = run_test(name, &[("FIBER_SIM_SEED", &format!("{passing}, {passing}"))]);
    assert_eq!(output.matches("does not fail. Its history:").count(), 2, "{output}");
    let texts = ["FIBER_SIM_SEED is `7,x`", "a number below 2^64"];
    fails(name, &[("FIBER_SIM_SEED", "7,x")], &texts);
    fails(name, &[("FIBER_SIM_COUNT", "0")], &["FIBER_SIM_COUNT is `0`", "from 1"]);
    fails(name, &[("FIBER_SIM_PLAY", "7")], &["FIBER_SIM_PLAY is set, but not by fiber"]);
}

#[test]
#[ignore = "another test starts it"]
fn one_seed_panics() {
    sim::run(7, async |_| panic!("{} of them", 3));
}

#[test]
#[ignore = "another test starts it"]
fn one_seed_waits_for_ever() {
    sim::run(7, async |_| {
        let pool = Pool::new(1)?;
        pool.apply(|| std::thread::sleep(Duration::MAX), ()).await?;
        Ok(())
    });
}

#[test]
#[ignore = "another test starts it"]
fn one_seed_waits_for_itself() {
    sim::run(7, async |_| {
        let (_sender, receiver) = std::sync::mpsc::channel::<()>();
        receiver.recv()?;
        Ok(())
    });
}

#[test]
#[ignore = "another test starts it"]
fn one_seed_exits() {
    sim::run(7, async |_| std::process::exit(0));
}

#[test]
#[ignore = "another test starts it"]
fn one_seed_aborts() {
    sim::check(3, async |_| std::process::abort());
}

#[test]
#[ignore = "another test starts it"]
fn no_seeds() {
    sim::check(0, async |_| Ok(()));
}

#[test]
#[ignore = "another test starts it"]
fn a_world_in_a_world() {
    sim::run(7, async |_| {
        sim::check(1, async |_| Ok(()));
        Ok(())
    });
}

#[test]
#[ignore = "another test starts it"]
fn another_thread_checks() {
    let named = std::thread::Builder::new().name("my-thread".into());
    let thread = named.spawn(|| sim::check(1, async |_| Ok(()))).expect("there is room");
    thread.join().expect("it passes");
}

#[test]
#[ignore = "another test starts it"]
fn no_world() {
    sim::world().note("nothing");
}

#[test]
fn failures_say_what_was_wrong() {
    fails(
        "plays::one_seed_panics",
        &[],
        &[
            "seed 7 fails: 3 of them (at ",
            "tests/simulation/plays.rs:",
            "play it again, with all of its history: cargo test plays::one_seed_panics",
        ],
    );
    fails(
        "plays::one_seed_waits_for_ever",
        &[],
        &["it goes on after 3600 s of its time", "head: main (0) "],
    );
    fails("plays::one_seed_waits_for_itself", &[], &["head: main (0) waits for another thread"]);
    fails("plays::one_seed_exits", &[], &["the program has ended its process, with code 0"]);
    fails("plays::one_seed_aborts", &[], &["signal 6 has ended the process"]);
    fails("plays::no_seeds", &[], &["no seed checks nothing: ask for at least one"]);
    fails("plays::a_world_in_a_world", &[], &["it can't begin another one there"]);
    fails(
        "plays::another_thread_checks",
        &[],
        &["the test `my-thread` was started again", "on the thread of a function with `#[test]`"],
    );
    fails("plays::no_world", &[], &["this thread is not in a simulated world"]);
}

#[test]
#[ignore = "another test starts it"]
fn one_seed_computes_without_end() {
    sim::run(7, async |_| {
        let file = std::env::var("FIBER_TEST_PID").expect("the test sets it");
        std::fs::write(file, std::process::id().to_string())?;
        loop {
            std::hint::spin_loop();
        }
    });
}

#[test]
fn the_end_of_a_test_ends_its_seeds() {
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("pid");
    let mut test = std::process::Command::new(std::env::current_exe().expect("it has a path"));
    test.args(["plays::one_seed_computes_without_end", "--exact", "--ignored"]);
    let mut test = test.env("FIBER_TEST_PID", &file).spawn().expect("it can be started");
    let wait_for = |what: &dyn Fn() -> bool| {
        while !what() {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let pid = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_for(&|| !pid().is_empty());
    test.kill().expect("it runs");
    test.wait().expect("it is a child");
    // Without a parent that waits for it, init does.
    wait_for(&|| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid())).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
}

#[test]
fn a_test_may_check_several_programs() {
    for most in [1, 5] {
        sim::check(5, async move |world| {
            assert!(world.draw(0..most) < most);
            Ok(())
        });
    }
    let captured = String::from("a value that the program takes");
    sim::run(3, async move |_| {
        drop(captured);
        Ok(())
    });
}

//! Seeds of all scenarios. `make soak` plays more of them. With SIM_SECONDS, fresh ones are played
//! for so long, SIM_SEEDS of them at most; SIM_TWICE is the number of those that are played twice.

use std::process::Command;

use fiber_test_support::soak;

fn play(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_fiber-sim")).args(arguments).output();
    let output = output.expect("it can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {text}");
}

#[test]
fn no_seed_fails() {
    play(&["--seeds", &format!("0..{}", 60 * soak())]);
}

/// Returns a number of the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("`{name}={text}` is no number")))
}

#[test]
fn a_seed_has_one_history() {
    let count = number("SIM_TWICE").unwrap_or(4 * soak() as u64);
    play(&["--twice", &count.to_string()]);
}

/// Returns the lines of a seed's history, without those of changes of threads.
fn history(seed: u64, arguments: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_fiber-sim")).args(arguments).output();
    let text = String::from_utf8(output.expect("it can be started").stdout).expect("it is text");
    let begin = format!("plays {seed}");
    let lines = text.lines().skip_while(|line| *line != begin).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("plays "));
    lines.filter(|line| !line.ends_with(" runs")).map(str::to_string).collect()
}

/// A failure is found in a batch of seeds, and looked at alone.
#[test]
fn a_seed_has_the_same_history_whoever_asks_for_it() {
    for seed in 40..40 + 2 * soak() as u64 {
        let (alone, next, earlier) = (seed.to_string(), seed + 1, seed - 3);
        let expected = history(seed, &["--seed", &alone, "--scenario", "stay"]);
        assert!(expected.iter().any(|line| line.contains("changes of threads")), "{expected:?}");
        let only = format!("{alone}..{next}");
        let batch = format!("{earlier}..{next}");
        let asked: [&[&str]; 4] = [
            &["--seed", &alone, "--scenario", "stay", "--limits", "200,5,4,1", "--trace"],
            &["--seeds", &only, "--scenario", "stay", "--history", "events"],
            &["--seeds", &batch, "--scenario", "stay", "--history", "trace"],
            &["--scenario", "stay", "--core", "1", "--history", "events", "--seeds", &batch],
        ];
        for arguments in asked {
            assert_eq!(history(seed, arguments), expected, "{arguments:?}");
        }
    }
}

/// Numbers of processes come again, after some 32,000 processes on many machines.
#[test]
fn a_killed_player_leaves_nothing_for_the_next_one_of_its_number() {
    let temp = std::env::temp_dir().join(format!("fiber-seeds-{}", std::process::id()));
    std::fs::create_dir_all(&temp).expect("there is room");
    let play = |before: &str| {
        let script =
            format!("{before} exec \"$0\" --seeds 1..2 --scenario crashes --history trace");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_fiber-sim")]).env("TMPDIR", &temp);
        String::from_utf8(shell.output().expect("there is a shell").stdout).expect("it is text")
    };
    let left = "mkdir -p $TMPDIR/fiber-sim-$(printf %010d $$); \
                touch $TMPDIR/fiber-sim-$(printf %010d $$)/journal;";
    let [fresh, second] = ["", left].map(play);
    std::fs::remove_dir_all(&temp).expect("it is there");
    assert!(fresh.contains("no failure"), "{fresh}");
    assert_eq!(fresh, second);
}

#[test]
fn neither_known_seeds_nor_fresh_ones_fail() {
    let seconds = number("SIM_SECONDS").unwrap_or(0).to_string();
    let known = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds.txt");
    let most = number("SIM_SEEDS").unwrap_or(u64::MAX).to_string();
    play(&["--for", &seconds, "--most", &most, "--known", known]);
}

/// Whoever checks one commit plays the same.
#[test]
fn fresh_seeds_begin_where_the_environment_says_and_are_as_many_as_are_asked_for() {
    let play = |first: &str| {
        let mut player = Command::new(env!("CARGO_BIN_EXE_fiber-sim"));
        let arguments = ["--for", "3600", "--most", "3"];
        let played = player.args(arguments).env("SIM_FRESH_FROM", first).output();
        played.expect("it can be started")
    };
    let text = String::from_utf8(play("12345").stdout).expect("it is text");
    assert!(text.contains("3 fresh seeds from 12345 and"), "{text}");
    let wrong = play("one");
    let problem = String::from_utf8(wrong.stderr).expect("it is text");
    assert!(!wrong.status.success() && problem.contains("\"one\""), "{problem}");
}

#[test]
fn a_failing_seed_is_made_smaller() {
    let play = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_fiber-sim")).args(arguments).output();
        let output = output.expect("it can be started");
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).expect("it is text")
    };
    let text = play(&["--for", "60", "--scenario", "failing"]);
    let smallest = text.lines().find_map(|line| line.strip_prefix("the smallest that fails: "));
    let smallest = smallest.unwrap_or_else(|| panic!("it is not made smaller: {text}"));
    // Half of four items are too few.
    assert!(smallest.ends_with(" --scenario failing --limits 4,1,0,0"), "{smallest}");
    let arguments = &smallest[smallest.find("--seed").expect("it has a seed")..];
    let text = play(&arguments.split(' ').collect::<Vec<_>>());
    assert!(text.contains("there are 4 items") || text.contains("there are 3 items"), "{text}");
}

#[test]
fn a_history_is_a_page() {
    let path = std::env::temp_dir().join(format!("fiber-sim-{}.html", std::process::id()));
    play(&["--seed", "7", "--scenario", "map", "--html", path.to_str().expect("it is a text")]);
    let page = std::fs::read_to_string(&path).expect("it is written");
    std::fs::remove_file(&path).expect("it is there");
    assert!(page.contains("<title>seed 7, scenario map: no failure</title>"), "{page}");
    assert!(page.contains("<th>pool-1/worker-1</th>"), "{page}");
    let output = Command::new(env!("CARGO_BIN_EXE_fiber-sim")).args(["--html", "x"]).output();
    let problem = output.expect("it can be started").stderr;
    assert!(String::from_utf8_lossy(&problem).contains("add --seed SEED"));
}

//! Maps that go on where an earlier run has ended.

use super::{Ended, Folder, wait_for_end, wait_for_line};

#[test]
fn what_is_done_never_runs_again_and_what_failed_does() {
    let folder = Folder::new();
    let script = "echo $1 >>runs; echo out$1; test $1 != 2 || test -e good";
    let map = |options: &[&str], items: &[&str]| {
        let command = ["--journal", "sweep", "--", "sh", "-c", script, "sh", ":::"];
        folder.map(&[options, &command, items].concat())
    };
    let runs = || folder.read("runs").lines().map(str::to_string).collect::<Vec<_>>();
    assert_eq!(map(&["-p", "1"], &["1", "2", "3"]).failed(1, &[]).stdout(), "out1\nout2\nout3\n");
    assert_eq!(runs(), ["1", "2", "3"]);
    // The failed one runs again. The output is complete, and has the new order.
    folder.write("good", "");
    let again = map(&["--timeout", "1m"], &["3", "4", "2", "1"]).succeeded();
    assert_eq!(again.stdout(), "out3\nout4\nout2\nout1\n");
    let mut new = runs()[3..].to_vec();
    new.sort();
    assert_eq!(new, ["2", "4"]);
    // Without an order, outcomes of the journal find their items.
    let mut lines = map(&["--unordered", "--json"], &["4", "3", "2"]).succeeded().json();
    lines.sort_by_key(|line| line["index"].as_u64());
    let items: Vec<_> = lines.iter().map(|line| (&line["item"], &line["stdout"])).collect();
    let text = |text: &str| serde_json::Value::from(text);
    let expected = ["4", "3", "2"].map(|item| (text(item), text(&format!("out{item}\n"))));
    assert!(
        items.into_iter().eq(expected.iter().map(|(item, stdout)| (item, stdout))),
        "{lines:?}"
    );
    assert_eq!(runs().len(), 5);
}

#[test]
fn a_map_that_was_killed_goes_on() {
    let folder = Folder::new();
    folder.pipe("pipe");
    // The third command of the first run waits for its end.
    let script = "echo $1 >>runs; test $1 != 3 || ! mkdir first 2>/dev/null || { echo on >pipe; \
                  exec 9>pipe; sleep 1000; }; echo $1";
    let arguments =
        ["--journal", "./j", "-p", "1", "--", "sh", "-c", script, "sh", ":::", "1", "2", "3", "4"];
    let mut map = folder.spawn(&arguments);
    // Outcomes come out when they are recorded.
    let mut stdout = std::io::BufReader::new(map.stdout.take().expect("it is a pipe"));
    for expected in ["1\n", "2\n"] {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut stdout, &mut line).expect("it is text");
        assert_eq!(line, expected);
    }
    let mut pipe = folder.open_pipe("pipe");
    wait_for_line(&mut pipe);
    map.kill().expect("it runs");
    wait_for_end(pipe);
    map.wait().expect("it has ended");
    assert_eq!(folder.map(&arguments).succeeded().stdout(), "1\n2\n3\n4\n");
    assert_eq!(folder.read("runs"), "1\n2\n3\n3\n4\n");
}

#[test]
fn sigterm_lets_a_map_with_a_journal_end_in_order() {
    let folder = Folder::new();
    folder.pipe("pipe");
    folder.pipe("go");
    let script = "echo on >pipe; read x <go; echo $1";
    let arguments =
        ["--journal", "./j", "-p", "1", "--", "sh", "-c", script, "sh", ":::", "1", "2"];
    let mut map = folder.spawn(&arguments);
    wait_for_line(&mut folder.open_pipe("pipe"));
    let pid = map.id().to_string();
    let mut stderr = std::io::BufReader::new(map.stderr.take().expect("it is a pipe"));
    std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("there is a kill");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).expect("it is text");
    assert!(line.contains("1 task is running") || line.contains("1 tasks are"), "{line}");
    std::fs::write(folder.path("go"), "\n").expect("the command reads");
    assert_eq!(Ended(map.wait_with_output().expect("it ends")).code(), Some(75));
}

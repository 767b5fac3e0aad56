//! The chat: each reader gets each post once, in order, whatever dies meanwhile.

use std::collections::HashSet;
use std::error::Error;
use std::thread::{self, JoinHandle};

use fiber_test_support::program::{Program, Setup};
use fiber_test_support::wait::wait_for;
use fiber_test_support::{scenario, trial};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::chat_program;
use super::http::{Events, page, post};

const ROOM: &str = "/rooms/lobby";

#[scenario("chat")]
fn chat() -> Result<(), Box<dyn Error>> {
    chat_program::main()
}

/// Starts the program. Returns its address, too.
fn start(folder: &TempDir) -> (Program, String) {
    let folder = folder.path().to_str().expect("it is text");
    let program = Setup::new("chat").args(&["--port", "0", "--folder", folder]).start();
    let addr = program.line("http://").trim_end_matches('/').to_string();
    (program, addr)
}

/// Posts as a browser does: again until there is an answer, which is the number of the post.
fn say(addr: &str, name: &str, text: &str) -> u64 {
    let key = format!("{name} {text}");
    let number =
        wait_for("an answer", || post(addr, &format!("{ROOM}/{name}"), &key, text).ok_or(()));
    number.parse().expect("it is a number")
}

/// Reads the posts from `from` to `to` as a browser does: it connects again when a connection ends.
fn read(addr: &str, from: u64, to: u64) -> JoinHandle<Vec<String>> {
    let addr = addr.to_string();
    thread::spawn(move || {
        let mut posts = Vec::new();
        let mut last = from - 1;
        while last < to {
            let Ok(events) = Events::after(&addr, ROOM, Some(last)) else { continue };
            for (number, text) in events {
                assert_eq!(number, last + 1, "a post is missing, or comes twice");
                last = number;
                posts.push(text);
                if last == to {
                    break;
                }
            }
        }
        posts
    })
}

/// Kills the processes whose names contain this.
fn kill(program: &Program, name: &str) {
    let mut killed = 0;
    for pid in program.processes() {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains(name) {
            let pid = Pid::from_raw(pid as i32).expect("it is positive");
            killed += usize::from(kill_process(pid, Signal::KILL).is_ok());
        }
    }
    assert!(killed > 0, "there is no process `{name}`");
}

#[trial]
fn each_reader_gets_each_post_once_while_servers_and_rooms_are_killed() {
    const WRITERS: u64 = 3;
    const ROUNDS: u64 = 4;
    const POSTS: u64 = 15;
    let folder = TempDir::new().unwrap();
    let (program, addr) = start(&folder);
    assert!(page(&addr, "/").contains("EventSource"));
    let all = WRITERS * ROUNDS * POSTS;
    let readers: Vec<_> = (0..3).map(|_| read(&addr, 1, all)).collect();
    for round in 0..ROUNDS {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let addr = addr.clone();
                thread::spawn(move || {
                    let text = |number: u64| format!("{}", round * POSTS + number);
                    let said =
                        (0..POSTS).map(|number| say(&addr, &format!("w{writer}"), &text(number)));
                    said.collect::<Vec<_>>()
                })
            })
            .collect();
        // Some posts are there, and others are on their way.
        say(&addr, "w0", &format!("{}", round * POSTS));
        kill(&program, if round % 2 == 0 { "web/server-" } else { "rooms-" });
        for writer in writers {
            assert!(writer.join().unwrap().is_sorted_by(|one, other| one < other));
        }
    }
    let posts = readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>();
    assert!(posts.iter().all(|read| *read == posts[0]));
    let expected: HashSet<_> = (0..WRITERS)
        .flat_map(|writer| (0..ROUNDS * POSTS).map(move |number| format!("w{writer}: {number}")))
        .collect();
    assert_eq!(posts[0].iter().cloned().collect::<HashSet<_>>(), expected);
    program.signal(Signal::KILL);
    program.end().signal(Signal::KILL);

    // The next program has them, too.
    let (program, addr) = start(&folder);
    assert_eq!(read(&addr, 1, all).join().unwrap(), posts[0]);
    assert_eq!(
        say(&addr, "w0", "0"),
        posts[0].iter().position(|post| post == "w0: 0").unwrap() as u64 + 1
    );
    assert_eq!(say(&addr, "w0", "new"), all + 1);
    program.press_ctrl_c();
    program.end().signal(Signal::INT);
}

#[trial]
fn a_reader_who_is_slow_misses_nothing() {
    const POSTS: u64 = 400;
    let folder = TempDir::new().unwrap();
    let (program, addr) = start(&folder);
    let text = "x".repeat(20_000);
    say(&addr, "anna", "first");
    let mut slow = Events::after(&addr, ROOM, None).unwrap();
    assert_eq!(slow.next(), Some((1, "anna: first".into())));
    for number in 2..=POSTS {
        assert_eq!(say(&addr, "anna", &format!("{number} {text}")), number);
    }
    let slow = slow.take(POSTS as usize - 1).map(|(number, _)| number);
    assert!(slow.eq(2..=POSTS));
    // A reader who enters gets the latest.
    let latest = Events::after(&addr, ROOM, None).unwrap().take(50).map(|(number, _)| number);
    assert!(latest.eq(POSTS - 49..=POSTS));
    program.press_ctrl_c();
    program.end().signal(Signal::INT);
}

#[trial]
fn a_port_that_is_used_already_is_an_error_that_names_it() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let (program, addr) = start(&folders[0]);
    let port = addr.rsplit(':').next().unwrap();
    let folder = folders[1].path().to_str().unwrap();
    let second = Setup::new("chat").args(&["--port", port, "--folder", folder]).run().code(1);
    assert!(second.errors.contains(&format!("{addr} can't be used")), "{}", second.errors);
    program.press_ctrl_c();
    program.end().signal(Signal::INT);
}

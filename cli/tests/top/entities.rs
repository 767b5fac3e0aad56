//! `fiber entities`, on a program that runs, and on the journal that it leaves.

use std::time::Duration;

use fiber::Journal;
use fiber::actix::{Actor, Context};
use fiber::entities::{Entities, EventSourced, Reminder};
use fiber::manager::Snapshot;
use fiber_test_support::program::{Program, Setup};
use fiber_test_support::{scenario, trial};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::run;

/// The variable with the folder of the program's journal.
const JOURNAL: &str = "BANK_JOURNAL";

struct Account(i64);

impl Actor for Account {
    type Context = Context<Account>;
}

impl EventSourced for Account {
    type Event = i64;

    fn apply(&mut self, amount: i64) {
        self.0 += amount;
    }
}

impl Snapshot for Account {
    type State = i64;

    fn snapshot(&self) -> i64 {
        self.0
    }

    fn restore(&mut self, balance: i64) {
        self.0 = balance;
    }
}

#[fiber::message]
struct Deposit(i64);

#[fiber::handlers]
impl Account {
    fn deposit(&mut self, Deposit(amount): Deposit) {
        self.persist(amount);
    }

    fn reminder(&mut self, _: Reminder) {}
}

/// Deposits 1, 2 and 3 to each of three accounts, and keeps the first live.
#[scenario("bank")]
fn bank() -> ! {
    let accounts = Entities::builder("accounts").processes(2).events_and_snapshots(2).reminders();
    let accounts = accounts.durable(Journal::at(std::env::var_os(JOURNAL).expect("it is set")));
    let accounts = accounts.start(|_: String, ()| Account(0), ()).wait().expect("they start");
    for amount in 1..=3 {
        for owner in ["anna", "bert", "ann/e"] {
            accounts.of(owner).send(Deposit(amount)).wait().expect("it is recorded");
        }
    }
    let day = Duration::from_secs(86_400);
    accounts.of("anna").remind_every("interest", day).wait().expect("it is recorded");
    println!("ready");
    fiber_test_support::hang()
}

/// Starts the program, with its journal in a folder that has to be kept.
fn start() -> (Program, TempDir) {
    let folder = tempfile::tempdir().expect("there is room");
    let program = Setup::new("bank").env(JOURNAL, folder.path().join("bank")).start();
    program.line("ready");
    (program, folder)
}

/// Runs `fiber entities` on a session, or on a journal in a directory.
struct Shown {
    source: [String; 2],
}

impl Shown {
    #[track_caller]
    fn out(&self, arguments: &[&str]) -> String {
        let (code, out, errors) = self.run(arguments);
        assert_eq!((code, &*errors), (Some(0), ""));
        out
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let [option, source] = &self.source;
        run(&[&["entities"], arguments, &[&**option, &**source]].concat())
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.out(&[arguments, &["--json"]].concat())).expect("it is JSON")
    }

    #[track_caller]
    fn fails(&self, arguments: &[&str], words: &[&str]) {
        let (code, out, errors) = self.run(arguments);
        assert_eq!((code, &*out), (Some(1), ""), "{errors}");
        words.iter().for_each(|word| assert!(errors.contains(word), "no `{word}`: {errors}"));
    }

    /// Checks what a session and its journal show alike.
    #[track_caller]
    fn shows_the_records(&self) {
        let found = self.json(&["show", "accounts"]);
        let keys = found["keys"].as_array().unwrap().iter();
        let rows = keys.map(|key| {
            json!([
                key["key"],
                key["last_event"],
                key["events"],
                key["has_snapshot"],
                key["reminders"]
            ])
        });
        let expected =
            json!([["ann/e", 3, 1, true, 0], ["anna", 3, 1, true, 1], ["bert", 3, 1, true, 0]]);
        assert_eq!(Value::from(rows.collect::<Vec<_>>()), expected);
        assert_eq!(found["more"], 0);

        let found = self.json(&["show", "accounts", "--prefix", "ann", "--limit", "1"]);
        assert_eq!((&found["keys"][0]["key"], &found["more"]), (&json!("ann/e"), &json!(1)));

        let anna = self.json(&["show", "accounts", "anna"]);
        assert_eq!(anna["snapshot"], json!({ "number": 2, "state": 3 }));
        assert_eq!(anna["events"], json!([{ "number": 3, "version": 1, "event": 3 }]));
        assert_eq!(anna["reminders"][0]["name"], "interest");
        assert_eq!(anna["reminders"][0]["every"], 86_400.0);
        let text = self.out(&["show", "accounts", "anna"]);
        for part in
            ["state after event 2: 3", "events since: 3 to 3", "reminder `interest`: in 23h"]
        {
            assert!(text.contains(part), "no `{part}` in {text}");
        }

        let events = self.out(&["events", "accounts", "ann/e"]);
        let event: Value = serde_json::from_str(&events).expect("it is one line of JSON");
        assert_eq!(event, json!({ "number": 3, "version": 1, "event": 3 }));

        self.fails(&["show", "account"], &["`account`", "did you mean `accounts`?"]);
        self.fails(
            &["show", "accounts", "carl"],
            &["no key `carl`", "fiber entities show accounts"],
        );
        self.fails(&["events", "accounts", "carl"], &["no key `carl`"]);
    }
}

#[trial]
fn entities_of_a_session_are_shown_with_their_places() {
    let (program, _folder) = start();
    let shown = Shown { source: ["--session".into(), program.pid().to_string()] };
    shown.shows_the_records();
    let list = || shown.json(&["list"]);
    // Processes tell how many are live with their heartbeats.
    program.wait_until("all are known to be live", || list()[0]["live"] == 3);
    let listed = &list()[0];
    assert_eq!((&listed["name"], &listed["processes"]), (&json!("accounts"), &json!(2)));
    assert!(listed["of"].as_str().unwrap().ends_with("entities::Account"));
    assert!(listed["journal"].as_str().unwrap().ends_with("bank"));
    let anna = shown.json(&["show", "accounts", "anna"]);
    assert!(anna["live_in"].as_str().unwrap().starts_with("accounts-"), "{anna}");
    assert!(shown.out(&["show", "accounts", "anna"]).contains("anna: live in accounts-"));
}

#[trial]
fn entities_of_a_program_that_was_killed_are_read_from_its_journal() {
    let (program, folder) = start();
    program.signal(Signal::KILL);
    program.wait_until("it has ended", || !program.has_not_ended());
    let journal = |name: &str| folder.path().join(name).display().to_string();
    let shown = Shown { source: ["--journal".into(), journal("bank")] };
    shown.shows_the_records();
    let listed = &shown.json(&["list"])[0];
    assert_eq!((&listed["name"], &listed["recorded"]), (&json!("accounts"), &json!(3)));
    assert!(shown.out(&["show", "accounts", "anna"]).contains("anna: asleep"));
    let (code, _, errors) = run(&["entities", "list", "--journal", &journal("banks")]);
    assert!(code == Some(1) && errors.contains("/banks"), "{errors}");
}

//! Stacks as `fiber stack` shows them, of all that runs the user's code.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use actix::prelude::*;
use fiber::stats::ProcessRole;
use fiber::{AsyncManager, Entities, Pool, Process, Ring, RingNode, Sender};
use fiber_test_support::signals::kill;
use fiber_test_support::wait::wait_for;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::inspector::{ask, connect, inspect};

/// Ends the threads of this process that spin.
static END: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn spin() {
    while !END.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

fn plain(_: u64) {
    spin();
}

fn of_two(_: u64, _: String) {
    spin();
}

async fn later(_: u64) {
    std::future::ready(()).await;
    spin();
}

fn with_a_value(_: u64, _: &u64) {
    spin();
}

fn producer(_: u64, _: Sender<u64>) {
    spin();
}

fn rank(_: RingNode, _: u64) {
    spin();
}

struct Spinner;

impl Actor for Spinner {
    type Context = Context<Spinner>;
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
struct Spin;

impl Handler<Spin> for Spinner {
    type Result = ();

    fn handle(&mut self, _: Spin, _: &mut Context<Spinner>) {
        spin();
    }
}

/// Returns the lines about a thread that spins in this function, in any process of this session
/// that has this role.
fn thread_in(function: &str, role: ProcessRole) -> Vec<String> {
    let mut connection = connect(&fiber::stats().unwrap().session);
    wait_for("a thread in the function", || {
        let session = inspect(&mut connection);
        let asked = session.report.processes.iter().filter(|process| process.role == role);
        let answers = asked.map(|process| {
            let request = serde_json::json!({ "stack": { "process": process.id } });
            ask(&mut connection, &request.to_string())
        });
        let answers: Vec<Value> = answers.collect();
        let mut stacks = answers.iter().filter_map(|answer| answer["ok"].as_str());
        let is_in = |thread: &&str| thread.contains("::spin (") && thread.contains(function);
        let found = stacks.find_map(|stack| stack.split("\n\n").find(is_in));
        found.map(|thread| thread.lines().map(String::from).collect()).ok_or(answers)
    })
}

/// Fails if the stack shows a call that is neither this file's nor the standard library's.
#[track_caller]
fn shows_the_user_alone(function: &str, role: ProcessRole) {
    let thread = thread_in(function, role);
    let is_call = |line: &&String| line.starts_with("    ") && !line.starts_with("    …");
    for call in thread.iter().filter(is_call) {
        let is_std = call.contains("(library/") || call.trim_start().starts_with("core::");
        assert!(is_std || call.contains(file!()), "{call} in\n{}", thread.join("\n"));
    }
    let hidden = thread.iter().any(|line| line.starts_with("    … called by "));
    assert!(hidden, "the user's code has no caller:\n{}", thread.join("\n"));
}

#[test]
fn the_stack_of_a_task_ends_at_its_function() {
    let pool = Pool::builder().processes(1).threads_per_worker(5).build().unwrap();
    let _plain = pool.apply(plain, 1);
    let _of_two = pool.apply(of_two, (1, "x".to_string()));
    let _later = pool.apply(later, 1);
    let _with_a_value = pool.with(7_u64).apply(with_a_value, 1);
    let _items = pool.stream(producer, 1);
    for function in ["plain", "of_two", "later", "with_a_value", "producer"] {
        shows_the_user_alone(&format!("::stacks::{function}"), ProcessRole::Worker);
    }
}

#[test]
fn the_stack_of_a_process_a_rank_and_a_handler_ends_at_the_function() {
    let _process = Process::spawn(plain, 1);
    let _run = Ring::builder().size(1).run(rank, 1);
    let actor = AsyncManager::start(|()| Spinner, ()).wait().unwrap();
    let _reply = actor.send(Spin);
    shows_the_user_alone("::stacks::plain", ProcessRole::Function);
    shows_the_user_alone("::stacks::rank", ProcessRole::RingNode);
    shows_the_user_alone("::stacks::Spinner", ProcessRole::Actor);
}

#[test]
fn the_stack_of_an_entity_ends_at_its_handler() {
    let entities = Entities::builder("spinners").processes(1);
    let entities = entities.start(|_: String, ()| Spinner, ()).wait().unwrap();
    let _reply = entities.of("one").send(Spin);
    shows_the_user_alone("::stacks::Spinner", ProcessRole::Actor);
}

#[test]
fn the_stack_of_a_feeder_ends_at_its_iterator() {
    let pool = Pool::new(1).unwrap();
    let _results = pool.imap(plain, (0..3).inspect(|_| spin()));
    shows_the_user_alone("feeder_ends_at_its_iterator", ProcessRole::Head);
    END.store(true, Ordering::Relaxed);
}

#[test]
fn a_worker_that_dies_while_it_is_asked_has_ended() {
    let pool = Pool::builder().name("mortal").processes(1).build().unwrap();
    let pid = pool.apply(std::process::id, ()).wait().unwrap();
    let mut connection = connect(&fiber::stats().unwrap().session);
    let session = inspect(&mut connection);
    let worker = session.report.processes.iter().find(|process| process.pid == Some(pid)).unwrap();
    // The answer to this would come when the test is over.
    let request = serde_json::json!({ "profile": {
        "process": worker.id, "seconds": 600.0, "hertz": 1, "idle": false
    } });
    writeln!(connection.get_mut(), "{request}").unwrap();
    kill(pid);
    let mut answer = String::new();
    connection.read_line(&mut answer).unwrap();
    assert!(answer.contains("has ended meanwhile"), "{answer}");
}

//! `fiber map`.

use fiber_test_support::trial;
use serde_json::{Value, json};

use crate::engine::{Engine, fiber};

#[trial]
fn a_command_runs_in_an_image_of_fiber_and_its_program(engine: &'static dyn Engine) {
    let arguments = ["map", "-p", "1", "--json", "ls", "-d", ":::", "/fiber/bin", "/home"];
    let ending = fiber(engine, &arguments).run().code(1);
    let lines: Vec<Value> =
        ending.out.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    // The image has no other directories than those of its programs.
    let codes: Vec<&Value> = lines.iter().map(|line| &line["exit_code"]).collect();
    assert_eq!(codes, [&json!(0), &json!(2)], "{}", ending.errors);
    assert_eq!(lines[0]["stdout"], "/fiber/bin\n");
    let host = rustix::system::uname();
    assert_ne!(lines[0]["host"], host.nodename().to_string_lossy().as_ref());
}

//! Hosts that can't reach each other's Unix sockets, as on two machines.

use std::process::Command;

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

use crate::scenarios::IN_NEW_NAMESPACE;

#[trial]
fn processes_of_two_machines_use_memory_where_they_share_it_and_links_elsewhere() {
    let [program, arguments @ ..] = IN_NEW_NAMESPACE;
    let made = Command::new(program).args(arguments).arg("true").status();
    if !made.is_ok_and(|ended| ended.success()) {
        return eprintln!("skipped: this user can't make namespaces");
    }
    let ending = Setup::new("hosts apart").env("FIBER_LINK", "nng").run().code(0);
    ending.says(&["a ring works", "a queue works", "an actor works", "shared objects work"]);
}

//! Machines that can't be used: errors that name them, the reason and the remedy.

use fiber_test_support::trial;

use crate::machines::{builds, program};

#[track_caller]
fn fails(hosts: &str, words: &[&str]) {
    program("one task", hosts).run().code(0).says(&["error: "]).says(words);
}

#[trial]
fn no_machines() {
    fails("", &["the backend `ssh` needs machines", "FIBER_SSH_HOSTS=a,b:16"]);
    fails("a:x", &["`a:x`", "a number from 1 on"]);
}

#[trial]
fn a_machine_that_does_not_exist() {
    fails("nowhere", &["`nowhere`", "Could not resolve hostname", "correct its name"]);
}

#[trial]
fn a_machine_that_refuses_the_key() {
    fails("stranger", &["`stranger`", "Permission denied", "no passwords", "ssh stranger true"]);
}

#[trial]
fn a_machine_whose_key_has_changed() {
    fails("changed", &["`changed`", "it may be another machine"]);
}

#[trial]
fn a_machine_that_nobody_has_confirmed() {
    fails("unconfirmed", &["`unconfirmed`", "nobody has confirmed its key"]);
}

#[trial]
fn a_machine_that_does_not_serve_ssh() {
    fails("silent", &["`silent`", "Connection refused", "is sshd running there"]);
}

/// Nothing was written there.
#[trial]
fn a_machine_of_another_architecture() {
    fails("alien", &["`alien` is", "aarch64", "this program needs Linux x86_64", "hosts"]);
    assert!(!builds("alien").exists());
}

#[trial]
fn a_machine_with_an_older_c_library() {
    fails("old", &["`old` is", "with glibc 2.17", "needs Linux x86_64 with glibc 2.", "musl"]);
    assert!(!builds("old").exists());
}

#[trial]
fn a_machine_without_room() {
    fails("full", &["`full` has", "free in", "ssh.cache"]);
}

#[trial]
fn a_machine_that_is_out_of_processes() {
    let remedy = "raise the limits (`ulimit -u`, that of the control group";
    fails("crowded", &["`crowded`", "the limit of processes and threads is reached", remedy]);
}

#[trial]
fn an_interface_that_does_not_exist() {
    let setup = program("one task", "a").env("FIBER_INTERFACE", "ib77");
    setup.run().code(0).says(&["error: ", "`ib77`", "`fib-ssh` (10.83.7.1)"]);
}

#[trial]
fn a_directory_that_does_not_exist() {
    let setup = program("one task", "a").env("FIBER_WORKING_DIR", "/does/not/exist");
    setup.run().code(0).says(&["`a`: it can't enter /does/not/exist: create", "`working_dir`"]);
}

//! Helpers of the tests of links. Each test uses some of them.

#![allow(dead_code, unused_macros, unused_imports)]

use std::process::{Child, Command};
use std::time::Duration;

use bytes::Bytes;

/// Makes a test for each promise and each kind of link. Links in memory lead to no other process.
macro_rules! promises {
    (everywhere { $($promise:ident),* $(,)? } between_processes { $($far:ident),* $(,)? }) => {
        mod unix {
            $(#[test] fn $promise() { super::run(super::$promise(super::LinkKind::Unix)) })*
            $(#[test] fn $far() { super::run(super::$far(super::LinkKind::Unix)) })*
        }
        mod nng_links {
            $(#[test] fn $promise() { super::run(super::$promise(super::LinkKind::Nng)) })*
            $(#[test] fn $far() { super::run(super::$far(super::LinkKind::Nng)) })*
        }
        mod memory {
            $(#[test] fn $promise() { super::run(super::$promise(super::LinkKind::Memory)) })*
        }
    };
}
pub(crate) use promises;

/// Runs a test on one thread, as a process's runtime does.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, within(test));
}

/// Fails a test that waits too long.
pub(crate) async fn within(test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(180), test).await.expect("it happens in three minutes")
}

const ROLE: &str = "FIBER_TEST_ROLE";

/// Runs the test `child_process` of this binary in a process of its own.
pub(crate) fn spawn_child(role: &str, arguments: &[String]) -> Child {
    spawn_test("child_process", role, arguments)
}

/// Runs one test of this binary in a process of its own.
pub(crate) fn spawn_test(test: &str, role: &str, arguments: &[String]) -> Child {
    spawn(&[], test, role, arguments)
}

/// Works as [`spawn_child`], by a program that runs the command after its own arguments.
pub(crate) fn spawn_child_by(wrapper: &[&str], role: &str, arguments: &[String]) -> Child {
    spawn(wrapper, "child_process", role, arguments)
}

fn spawn(wrapper: &[&str], test: &str, role: &str, arguments: &[String]) -> Child {
    let binary = std::env::current_exe().unwrap();
    let binary = binary.to_str().expect("its path is text");
    let words = [wrapper, &[binary, test, "--exact", "--nocapture"]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
        .env(ROLE, [&[role.to_owned()], arguments].concat().join("\n"))
        .stdout(std::process::Stdio::null());
    command.spawn().unwrap()
}

/// Returns the role and the arguments of this process if it is such a child.
pub(crate) fn child() -> Option<(String, Vec<String>)> {
    let role = std::env::var(ROLE).ok()?;
    let mut lines = role.lines().map(str::to_owned);
    Some((lines.next()?, lines.collect()))
}

/// Returns bytes that depend on `seed`.
pub(crate) fn filler(seed: usize, length: usize) -> Bytes {
    let word = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let mut bytes = word.repeat(length.div_ceil(8));
    bytes.truncate(length);
    for (index, byte) in bytes.iter_mut().step_by(4096).enumerate() {
        *byte ^= index as u8;
    }
    bytes.into()
}

/// Returns the resident memory of this process in bytes.
pub(crate) fn resident_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel tells");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

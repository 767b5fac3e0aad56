//! Helpers of the tests of links. Each test uses some of them.

#![allow(dead_code, unused_macros, unused_imports)]

use std::future::poll_fn;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{LinkKind, SessionKey};
use fiber_transport::{Connection, ListenAt, Listener, connect, listen};

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

/// Runs a test while no other uses this process's memory of values.
pub(crate) fn alone(test: impl Future<Output = ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    run(test);
}

/// Waits for the next peer, whose messages have a limit.
pub(crate) async fn next_peer(listener: &mut dyn Listener, limit: usize) -> Connection {
    let mut connection = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
    connection.incoming.set_limit(limit);
    connection
}

/// Returns two connected ends in this process.
pub(crate) async fn pair(kind: LinkKind, limit: usize) -> (Connection, Connection) {
    let key = SessionKey::random();
    let mut listener = listen(kind, &key, &ListenAt::default()).unwrap();
    let address = listener.address();
    let (near, far) = tokio::join!(connect(&address, &key), next_peer(&mut *listener, limit));
    let mut near = near.unwrap();
    near.incoming.set_limit(limit);
    (near, far)
}

/// Starts a child process, and returns it with the link by which it connects.
pub(crate) async fn connected_child(role: &str, limit: usize) -> (Child, Connection) {
    let key = SessionKey::random();
    let mut listener = listen(LinkKind::Unix, &key, &ListenAt::default()).unwrap();
    let child = spawn_child(role, &[listener.address(), key.reveal()]);
    (child, next_peer(&mut *listener, limit).await)
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

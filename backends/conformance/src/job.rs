//! The commands of this program as a job.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

/// The first argument of a job, before its command.
pub(super) const JOB: &str = "as-a-job";

/// Runs the job of a test, if the arguments name one, and returns the code to exit with.
///
/// # Panics
/// If a command does not work: the test then sees another end of the job than it expects.
pub fn run_if_job() -> Option<i32> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != JOB {
        return None;
    }
    let arguments: Vec<String> = arguments.collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Some(match words.as_slice() {
        ["exit", code] => code.parse::<u8>().expect("a code").into(),
        ["signal", number] => {
            let signal = rustix::process::Signal::from_named_raw(number.parse().expect("a number"))
                .expect("a signal");
            rustix::process::kill_process(rustix::process::getpid(), signal).expect("it may");
            wait_for_ever()
        }
        ["print"] => {
            println!("one line");
            eprintln!("another line");
            print!("and no end of the third");
            0
        }
        ["echo", name, rest @ ..] => {
            println!("{name}={}", std::env::var(name).unwrap_or_else(|_| "not set".into()));
            rest.iter().for_each(|word| println!("<{word}>"));
            0
        }
        ["secret", name] => {
            let value = std::env::var_os(name).and_then(fiber_core::secrets::read_secret);
            println!("{name}={}", value.unwrap_or_else(|| "not set".into()));
            0
        }
        ["flood", lines] => {
            (0..lines.parse().expect("a number")).for_each(|line: u32| println!("line {line}"));
            0
        }
        ["call", address] => call(address),
        ["delegate", address] => {
            let mut other = Command::new("/proc/self/exe");
            let mut other = other
                .args([JOB, "call", address])
                .stdin(Stdio::null())
                .spawn()
                .expect("it can be started");
            // Wait for `other`, which never ends.
            other.wait().expect("it is a child");
            1
        }
        ["eat"] => {
            let mut eaten: Vec<Vec<u8>> = Vec::new();
            loop {
                eaten.push(vec![1; 1 << 20]);
            }
        }
        ["wait"] => wait_for_ever(),
        other => panic!("no job is called {other:?}"),
    })
}

/// Connects, sends a line, and stays until the other side closes.
fn call(address: &str) -> i32 {
    let mut stream = TcpStream::connect(address).expect("the address can be reached");
    stream.write_all(b"here\n").expect("the test listens");
    stream.read_to_end(&mut Vec::new()).expect("the other side closes");
    0
}

fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

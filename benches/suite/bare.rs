//! The machine without fiber, measured beside it: Unix sockets, with nothing around them.
//!
//! The other process of a round trip is the benchmark's own binary, started again with
//! `BENCH_ECHO`: call [`serve_if_asked`] as the first thing in `main`.

use std::env;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::measure::median;

/// The size of the messages to echo.
const ECHO: &str = "BENCH_ECHO";
const PING_BYTES: usize = 64;
const PINGS: usize = 20_000;
const WARM_UP: usize = 1_000;
const REPEATS: usize = 3;

/// In a process that was started to echo, does so until the other end is gone, and does not return.
/// Else returns at once.
pub(crate) fn serve_if_asked() {
    let Ok(size) = env::var(ECHO) else { return };
    if let Err(error) = echo(&size) {
        eprintln!("{ECHO}={size}: {error}");
        process::exit(1)
    }
    process::exit(0)
}

fn echo(size: &str) -> io::Result<()> {
    let mut message = vec![0; size.parse().map_err(io::Error::other)?];
    let mut stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    loop {
        match stream.read_exact(&mut message) {
            Ok(()) => stream.write_all(&message)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// A process that writes each message back, and the socket to it, which is its stdin. It ends when
/// this is dropped.
struct Echo {
    process: Child,
    stream: UnixStream,
    message: Vec<u8>,
}

impl Echo {
    fn start(size: usize) -> io::Result<Echo> {
        let (stream, far) = UnixStream::pair()?;
        let mut command = Command::new(env::current_exe()?);
        command.env(ECHO, size.to_string()).stdin(OwnedFd::from(far)).stdout(Stdio::null());
        Ok(Echo { process: command.spawn()?, stream, message: vec![7; size] })
    }

    fn there_and_back(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.message)?;
        self.stream.read_exact(&mut self.message)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // Either fails only when the process has ended already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Returns the time of one round trip of 64 bytes between two processes over a Unix stream socket:
/// the median of 20,000.
pub(crate) fn unix_ping() -> io::Result<Duration> {
    let mut echo = Echo::start(PING_BYTES)?;
    let mut times = Vec::with_capacity(PINGS);
    for ping in 0..WARM_UP + PINGS {
        let start = Instant::now();
        echo.there_and_back()?;
        if ping >= WARM_UP {
            times.push(start.elapsed());
        }
    }
    Ok(median(times))
}

/// Sends `count` messages of `size` bytes there and back, spread over `parallel` echo processes
/// with a socket and a thread each.
///
/// Returns bytes a second, both ways counted, as the median of three runs: comparable to tasks
/// whose argument and result are of that size.
pub(crate) fn unix_stream(size: usize, count: usize, parallel: usize) -> io::Result<f64> {
    let echoes = (0..parallel).map(|_| Echo::start(size));
    let mut echoes = echoes.collect::<io::Result<Vec<_>>>()?;
    echoes.iter_mut().try_for_each(Echo::there_and_back)?;
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let left = AtomicUsize::new(count);
        let start = Instant::now();
        thread::scope(|scope| {
            let work = |echo: &mut Echo| -> io::Result<()> {
                while take(&left) {
                    echo.there_and_back()?;
                }
                Ok(())
            };
            let threads = echoes.iter_mut().map(|echo| scope.spawn(move || work(echo)));
            threads.collect::<Vec<_>>().into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| io::Error::other("a thread panicked"))?
            })
        })?;
        times.push(start.elapsed());
    }
    Ok((2 * size * count) as f64 / median(times).as_secs_f64())
}

/// Takes one from what is left.
pub(crate) fn take(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

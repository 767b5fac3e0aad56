//! The machine without fiber, measured beside it: sockets, threads and nng, with nothing around
//! them.
//!
//! The other process of a round trip is the benchmark's own binary, started again with
//! `BENCH_ECHO`, which says what to echo: call [`serve_if_asked`] as the first thing in `main`.

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{self, Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nng::options::{LocalAddr, Options as _};
use nng::{Listener, Protocol, Socket, SocketAddr};
// nng 1.0.1 brings old declarations only; this links the library itself.
use nng_sys as _;

const ECHO: &str = "BENCH_ECHO";
pub(crate) const PING_BYTES: usize = 64;
/// The stream in one direction: frames, and bytes in each.
pub(crate) const FRAMES: usize = 1024;
pub(crate) const FRAME_BYTES: usize = 256 << 10;
const PINGS: usize = 20_000;
const WARM_UP: usize = 1_000;
const REPEATS: usize = 3;

/// In a process that was started to echo, does so until the other end is gone, and does not return.
/// Else returns at once.
pub(crate) fn serve_if_asked() {
    let Ok(asked) = env::var(ECHO) else { return };
    let served = match asked.split_once(':') {
        Some(("unix", size)) => echo_unix(size),
        Some(("flood", size)) => flood_unix(size),
        Some(("nng", url)) => echo_nng(url),
        Some(("pair", url)) => echo_pair(url),
        _ => Err(io::Error::other(format!(
            "{ECHO}={asked}: none of unix:SIZE, nng:URL and pair:URL"
        ))),
    };
    match served {
        Ok(()) => process::exit(0),
        Err(error) => {
            eprintln!("{ECHO}={asked}: {error}");
            process::exit(1)
        }
    }
}

/// A process that echoes, ended when dropped.
struct Echo(Child);

impl Echo {
    /// Starts this binary again, to echo what `asked` says.
    fn start(asked: &str, stdin: Stdio, stdout: Stdio) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        Ok(Self(command.env(ECHO, asked).stdin(stdin).stdout(stdout).spawn()?))
    }

    /// A Unix socket to a process that reads messages of `size` bytes and writes each back. It is
    /// the child's stdin.
    fn unix(size: usize) -> io::Result<(Self, UnixStream)> {
        let (near, far) = UnixStream::pair()?;
        let echo = Self::start(&format!("unix:{size}"), OwnedFd::from(far).into(), Stdio::null())?;
        Ok((echo, near))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // Either fails only when the process has ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Writes messages until the reader is gone.
fn flood_unix(size: &str) -> io::Result<()> {
    let message = vec![7; size.parse().map_err(io::Error::other)?];
    let mut stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    while stream.write_all(&message).is_ok() {}
    Ok(())
}

/// `count` messages of `size` bytes from another process: bytes a second, as the median of three
/// runs.
pub(crate) fn unix_one_way(size: usize, count: usize) -> io::Result<f64> {
    let (mut stream, far) = UnixStream::pair()?;
    let _flood = Echo::start(&format!("flood:{size}"), OwnedFd::from(far).into(), Stdio::null())?;
    let mut message = vec![0; size];
    let mut rates = Vec::new();
    for _ in 0..REPEATS {
        stream.read_exact(&mut message)?;
        let start = Instant::now();
        for _ in 0..count {
            stream.read_exact(&mut message)?;
        }
        rates.push((size * count) as f64 / start.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[rates.len() / 2])
}

fn echo_unix(size: &str) -> io::Result<()> {
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

/// One round trip of 64 bytes between two processes over a Unix stream socket: the median of
/// 20,000.
pub(crate) fn unix_ping() -> io::Result<Duration> {
    let (_echo, mut stream) = Echo::unix(PING_BYTES)?;
    let mut message = [7; PING_BYTES];
    median_round_trip(|| {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)
    })
}

/// `count` messages of `size` bytes there and back, spread over `parallel` echo processes with a
/// socket and a thread each.
///
/// Returns bytes a second, both ways counted, as the median of three runs: comparable to tasks
/// whose argument and result are of that size.
pub(crate) fn unix_stream(size: usize, count: usize, parallel: usize) -> io::Result<f64> {
    let mut ends = Vec::new();
    for _ in 0..parallel {
        let (echo, mut stream) = Echo::unix(size)?;
        let mut message = vec![7; size];
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        ends.push((echo, stream, message));
    }
    let mut rates = Vec::new();
    for _ in 0..REPEATS {
        let left = AtomicUsize::new(count);
        let start = Instant::now();
        thread::scope(|scope| {
            let threads: Vec<_> = ends
                .iter_mut()
                .map(|(_, stream, message)| {
                    let left = &left;
                    scope.spawn(move || -> io::Result<()> {
                        while take(left) {
                            stream.write_all(message)?;
                            stream.read_exact(message)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| io::Error::other("a thread panicked"))?
            })
        })?;
        rates.push((2 * size * count) as f64 / start.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[REPEATS / 2])
}

/// `tasks` sleeps of `duration` on `threads` threads that take from one counter: the time until the
/// last has woken, as the median of three runs.
pub(crate) fn sleep_loop(threads: usize, tasks: usize, duration: Duration) -> Duration {
    let mut runs: Vec<_> = (0..REPEATS)
        .map(|_| {
            let left = AtomicUsize::new(tasks);
            let ready = Barrier::new(threads + 1);
            thread::scope(|scope| {
                let sleepers: Vec<_> = (0..threads)
                    .map(|_| {
                        scope.spawn(|| {
                            ready.wait();
                            while take(&left) {
                                thread::sleep(duration);
                            }
                        })
                    })
                    .collect();
                ready.wait();
                let start = Instant::now();
                for sleeper in sleepers {
                    sleeper.join().expect("a sleeper has nothing to panic about");
                }
                start.elapsed()
            })
        })
        .collect();
    runs.sort();
    runs[REPEATS / 2]
}

/// Takes one from what is left.
fn take(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// One round trip of 64 bytes between two processes over nng on tcp, a PUSH to the other's PULL
/// each way: the median of 20,000.
pub(crate) fn nng_ping() -> io::Result<Duration> {
    let (inbox, url) = nng_inbox()?;
    let mut echo = Echo::start(&format!("nng:{url}"), Stdio::null(), Stdio::piped())?;
    let mut said =
        BufReader::new(echo.0.stdout.take().ok_or_else(|| io::Error::other("no stdout"))?);
    let mut peer = String::new();
    if said.read_line(&mut peer)? == 0 {
        return Err(io::Error::other(
            "the process that was to echo over nng ended before it listened",
        ));
    }
    let outbox = nng_outbox(peer.trim_end())?;
    let message = [7; PING_BYTES];
    median_round_trip(|| {
        outbox.send(&message[..]).map_err(|(_, error)| io::Error::other(error))?;
        inbox.recv().map(drop).map_err(io::Error::other)
    })
}

fn echo_nng(url: &str) -> io::Result<()> {
    let (inbox, own) = nng_inbox()?;
    let outbox = nng_outbox(url)?;
    println!("{own}");
    loop {
        let message = inbox.recv().map_err(io::Error::other)?;
        outbox.send(message).map_err(|(_, error)| io::Error::other(error))?;
    }
}

/// nng on one tcp connection to another process, a PAIR socket at each end.
pub(crate) struct NngPair {
    socket: Socket,
    _echo: Echo,
}

impl NngPair {
    pub(crate) fn new() -> io::Result<Self> {
        let (socket, url) = nng_listening(Protocol::Pair0)?;
        let _echo = Echo::start(&format!("pair:{url}"), Stdio::null(), Stdio::null())?;
        Ok(Self { socket, _echo })
    }

    /// Sends `PING_BYTES`, and waits until they come back.
    pub(crate) fn ping(&self) -> io::Result<()> {
        self.send(&[7; PING_BYTES])?;
        self.socket.recv().map(drop).map_err(io::Error::other)
    }

    /// Sends `FRAMES` of `FRAME_BYTES`, and waits until they have arrived.
    pub(crate) fn flow(&self) -> io::Result<()> {
        let frame = vec![7; FRAME_BYTES];
        (0..FRAMES).try_for_each(|_| self.send(&frame))?;
        self.ping()
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        self.socket.send(message).map_err(|(_, error)| io::Error::other(error))
    }
}

/// Sends small messages back and takes large ones.
fn echo_pair(url: &str) -> io::Result<()> {
    let socket = Socket::new(Protocol::Pair0).map_err(io::Error::other)?;
    socket.dial(url).map_err(io::Error::other)?;
    loop {
        let message = socket.recv().map_err(io::Error::other)?;
        if message.len() <= PING_BYTES {
            socket.send(message).map_err(|(_, error)| io::Error::other(error))?;
        }
    }
}

/// A PULL socket that listens on a port that the system picks, and its URL.
fn nng_inbox() -> io::Result<(Socket, String)> {
    nng_listening(Protocol::Pull0)
}

fn nng_listening(protocol: Protocol) -> io::Result<(Socket, String)> {
    let socket = Socket::new(protocol).map_err(io::Error::other)?;
    let listener = Listener::new(&socket, "tcp://127.0.0.1:0").map_err(io::Error::other)?;
    match listener.get_opt::<LocalAddr>() {
        // nng 1.0.1 hands out the port in network byte order, unlike the address.
        Ok(SocketAddr::Inet(at)) => {
            Ok((socket, format!("tcp://{}:{}", at.ip(), u16::from_be(at.port()))))
        }
        other => Err(io::Error::other(format!("nng listens, but says no address: {other:?}"))),
    }
}

/// A PUSH socket to a URL.
fn nng_outbox(url: &str) -> io::Result<Socket> {
    let socket = Socket::new(Protocol::Push0).map_err(io::Error::other)?;
    socket.dial(url).map_err(io::Error::other)?;
    Ok(socket)
}

fn median_round_trip(mut trip: impl FnMut() -> io::Result<()>) -> io::Result<Duration> {
    for _ in 0..WARM_UP {
        trip()?;
    }
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let start = Instant::now();
        trip()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[PINGS / 2])
}

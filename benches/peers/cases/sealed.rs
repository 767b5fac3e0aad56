//! Sealed links over nng, as between hosts, beside nng by itself.

use std::env;
use std::future::poll_fn;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use fiber::Array;
use fiber_core::{LinkKind, SessionKey};
use fiber_transport::{Connection, ListenAt, Message, connect, listen};
use nng::options::{LocalAddr, Options as _};
use nng::{Listener, Protocol, Socket, SocketAddr};
// nng 1.0.1 brings old declarations only; this links the library itself.
use nng_sys as _;

use super::{ask, print};
use crate::measure::{median, rate, ready_pool, seconds};
use crate::table::{Figure, Row, Table};

/// Set in the process at the other end: the address and the key of a link, or the URL of a pair.
const PEER: &str = "BENCH_LINK_PEER";
const PING_BYTES: usize = 64;
/// The stream in one direction: frames, and bytes in each.
const FRAMES: usize = 1024;
const FRAME_BYTES: usize = 256 << 10;
const ROUNDS: usize = 21;
/// In each round.
const PINGS: usize = 1_000;
const WARM_UP: usize = 1_000;
const LIMIT: usize = 32 << 20;
/// Bytes of a large array, how many are sent in a round, and how many rounds there are.
const ARRAY: usize = 16 << 20;
const ARRAYS: usize = 32;
const ARRAY_ROUNDS: usize = 5;

/// Argument with which this binary starts itself again to send arrays over nng.
pub(super) const ARRAYS_OVER_NNG: &str = "arrays-over-nng";

pub(super) fn sealed(table: &mut Table) -> anyhow::Result<()> {
    let [sealed, bare] = block_on(measure())?;
    eprintln!("  sealed: {sealed:?}; bare: {bare:?}");
    let flow = |measured: &Measured| Figure::Throughput(rate(FRAMES * FRAME_BYTES, measured.flow));
    let row = Row::new("256 KiB frames over a sealed link", flow(&sealed));
    table.push(row.beside("bare", flow(&bare)).at_least(0.7, "bare"));
    table.push(
        Row::new("64 B there and back over a sealed link", seconds(sealed.ping))
            .beside("bare", seconds(bare.ping)),
    );
    let added =
        Row::new("what a sealed link adds to that", seconds(sealed.ping.saturating_sub(bare.ping)));
    table.push(added.below(Figure::Seconds(10e-6)));
    arrays(table)
}

/// Arrays for tasks in containers and pods, which share no memory, beside frames of their size.
fn arrays(table: &mut Table) -> anyhow::Result<()> {
    let bare = block_on(measure_large_frames())?;
    let time: Duration = ask(ARRAYS_OVER_NNG, &[("FIBER_LINK", "nng")])?;
    let rate = |time| Figure::Throughput(rate(ARRAY * ARRAYS, time));
    let row = Row::new("arrays of 16 MiB to tasks over a sealed link", rate(time))
        .beside("bare frames", rate(bare))
        .at_least(0.8, "bare frames");
    table.push(row);
    Ok(())
}

/// Returns how many bytes go over a sealed link in a second.
pub(super) fn link_rate() -> anyhow::Result<f64> {
    let time = block_on(async {
        let (mut link, _peer) = connect_peer().await?;
        let mut times = Vec::new();
        for _ in 0..ARRAY_ROUNDS {
            let start = Instant::now();
            flow(&mut link).await?;
            times.push(start.elapsed());
        }
        Ok(median(times))
    })?;
    Ok(rate(FRAMES * FRAME_BYTES, time))
}

async fn measure_large_frames() -> anyhow::Result<Duration> {
    let (mut link, _peer) = connect_peer().await?;
    let frame = Bytes::from(vec![7; ARRAY]);
    let mut times = Vec::new();
    for _ in 0..ARRAY_ROUNDS {
        let start = Instant::now();
        for _ in 0..ARRAYS {
            link.link.send(Message::with_body(Vec::new(), frame.clone()))?;
        }
        ping(&mut link).await?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

/// Prints the time in which tasks of a worker behind a sealed link get all arrays.
pub(super) fn answer_arrays_over_nng() -> anyhow::Result<()> {
    let pool = ready_pool(1)?;
    let array = Array::build(ARRAY / 8, |elements: &mut [f64]| elements.fill(1.0));
    let last = |array: Array<f64>| array[array.len() - 1];
    let mut times = Vec::new();
    for _ in 0..ARRAY_ROUNDS {
        let start = Instant::now();
        for result in pool.imap(last, std::iter::repeat_n(array.clone(), ARRAYS)).wait() {
            ensure!(result? == 1.0, "a result is wrong");
        }
        times.push(start.elapsed());
    }
    print(&median(times))
}

#[derive(Debug)]
struct Measured {
    ping: Duration,
    flow: Duration,
}

impl Measured {
    /// The medians.
    fn new((pings, flows): (Vec<Duration>, Vec<Duration>)) -> Measured {
        Measured { ping: median(pings), flow: median(flows) }
    }
}

/// Sealed, and bare, in turns: whatever else the machine does meanwhile, it does to both.
async fn measure() -> anyhow::Result<[Measured; 2]> {
    let (mut link, _peer) = connect_peer().await?;
    let pair = NngPair::new()?;
    for _ in 0..WARM_UP {
        ping(&mut link).await?;
        pair.ping()?;
    }

    let (mut sealed, mut bare) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for _ in 0..ROUNDS {
        for _ in 0..PINGS {
            let start = Instant::now();
            ping(&mut link).await?;
            sealed.0.push(start.elapsed());
        }
        for _ in 0..PINGS {
            let start = Instant::now();
            pair.ping()?;
            bare.0.push(start.elapsed());
        }
        let start = Instant::now();
        flow(&mut link).await?;
        sealed.1.push(start.elapsed());
        let start = Instant::now();
        pair.flow()?;
        bare.1.push(start.elapsed());
    }
    Ok([sealed, bare].map(Measured::new))
}

async fn flow(connection: &mut Connection) -> anyhow::Result<()> {
    let body = Bytes::from(vec![7; FRAME_BYTES]);
    for _ in 0..FRAMES {
        connection.link.send(Message::with_body(Vec::new(), body.clone()))?;
    }
    // It comes back when all before it has arrived.
    ping(connection).await
}

async fn ping(connection: &mut Connection) -> anyhow::Result<()> {
    connection.link.send(Message::new(vec![7; PING_BYTES]))?;
    let answer = connection.next().await.context("the other end is gone")??;
    ensure!(answer.len() == PING_BYTES, "another message came back");
    Ok(())
}

/// A link to another process, and that process.
async fn connect_peer() -> anyhow::Result<(Connection, Peer)> {
    let key = SessionKey::random();
    let mut listener = listen(LinkKind::Nng, &key, &ListenAt::default())?;
    let process = Peer::start(format!("{} {}", listener.address(), key.reveal()))?;
    let mut link = poll_fn(|context| listener.poll_accept(context)).await?;
    link.incoming.set_limit(LIMIT);
    Ok((link, process))
}

/// The process at the other end, ended when dropped.
struct Peer(Child);

impl Peer {
    fn start(asked: String) -> anyhow::Result<Peer> {
        Ok(Peer(Command::new(env::current_exe()?).env(PEER, asked).spawn()?))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Either fails only when the process has ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// In a process that was started as the other end: sends small messages back and takes large ones,
/// until the link ends, and does not return. Else returns at once.
pub(super) fn serve_if_asked() {
    let Ok(asked) = env::var(PEER) else { return };
    let served = match asked.split_once(' ') {
        Some((address, key)) => block_on(serve(address, key)),
        None => serve_pair(&asked),
    };
    if let Err(error) = served {
        eprintln!("{PEER}: {error:#}");
        std::process::exit(1);
    }
    std::process::exit(0)
}

async fn serve(address: &str, key: &str) -> anyhow::Result<()> {
    let mut connection = connect(address, &key.parse()?).await?;
    connection.incoming.set_limit(LIMIT);
    while let Some(message) = connection.next().await {
        let body = message?;
        if body.len() <= PING_BYTES {
            connection.link.send(Message::with_body(Vec::new(), body.bytes))?;
        }
    }
    Ok(())
}

/// Sends small messages back and takes large ones, over bare nng.
fn serve_pair(url: &str) -> anyhow::Result<()> {
    let socket = Socket::new(Protocol::Pair0)?;
    socket.dial(url)?;
    loop {
        let message = socket.recv()?;
        if message.len() <= PING_BYTES {
            socket.send(message).map_err(|(_, error)| error)?;
        }
    }
}

/// nng on one tcp connection to another process, a PAIR socket at each end.
struct NngPair {
    socket: Socket,
    _peer: Peer,
}

impl NngPair {
    fn new() -> anyhow::Result<NngPair> {
        let socket = Socket::new(Protocol::Pair0)?;
        let listener = Listener::new(&socket, "tcp://127.0.0.1:0")?;
        let SocketAddr::Inet(at) = listener.get_opt::<LocalAddr>()? else {
            bail!("nng listens on another kind of address");
        };
        // nng 1.0.1 hands out the port in network byte order, unlike the address.
        let _peer = Peer::start(format!("tcp://{}:{}", at.ip(), u16::from_be(at.port())))?;
        Ok(NngPair { socket, _peer })
    }

    /// Sends `PING_BYTES`, and waits until they come back.
    fn ping(&self) -> anyhow::Result<()> {
        self.send(&[7; PING_BYTES])?;
        self.socket.recv()?;
        Ok(())
    }

    /// Sends `FRAMES` of `FRAME_BYTES`, and waits until they have arrived.
    fn flow(&self) -> anyhow::Result<()> {
        let frame = vec![7; FRAME_BYTES];
        (0..FRAMES).try_for_each(|_| self.send(&frame))?;
        self.ping()
    }

    fn send(&self, message: &[u8]) -> anyhow::Result<()> {
        Ok(self.socket.send(message).map_err(|(_, error)| error)?)
    }
}

/// As a node runs: on one thread.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

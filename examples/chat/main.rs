//! A chat server: several processes serve web pages, others keep the rooms. Kill any of them.
//!
//! ```text
//! cargo run -p fiber-examples --features web --example chat
//! firefox http://127.0.0.1:8081/                       # in several windows
//! curl -N 127.0.0.1:8081/rooms/lobby                   # the last posts, and each new one
//! curl -d "hello" 127.0.0.1:8081/rooms/lobby/anna      # a post of anna
//! pkill -9 -f "chat: web"                              # readers connect again
//! pkill -9 -f examples/chat                            # start it again: each post is there
//! ```
//!
//! A room is an entity (`room.rs`), and each of its posts an event. A reader gets the last posts
//! from the room, and new ones at once from a topic (`web.rs`): each one once, in order, also when
//! web servers or the processes of the rooms die meanwhile. All web servers listen at one port.
//!
//! `--port 8081` sets the port, 0 any that is free, `--servers 2` the number of web servers, and
//! `--folder` where the journal of the rooms is.

mod room;
mod web;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use fiber::supervisor::ChildSpec;
use fiber::{Entities, Journal, Supervisor};
use lexopt::prelude::*;
use tokio::net::{TcpSocket, TcpStream};

use self::room::Room;

/// The name of the entities.
const ROOMS: &str = "rooms";
/// So many deaths in a second are no reason to give up.
const DEATHS: u32 = 20;

struct Options {
    port: u16,
    servers: usize,
    folder: PathBuf,
}

impl Options {
    fn read() -> Result<Options, lexopt::Error> {
        let mut options = Options { port: 8081, servers: 2, folder: "fiber-journals/chat".into() };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("port") => options.port = arguments.value()?.parse()?,
                Long("servers") => options.servers = arguments.value()?.parse()?,
                Long("folder") => options.folder = arguments.value()?.into(),
                other => return Err(other.unexpected()),
            }
        }
        Ok(options)
    }
}

/// Returns a socket at an address that other processes can use, too. The kernel spreads new
/// connections over those that listen.
fn bind(addr: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

/// Serves web pages. It runs in a process of its own, which is started again when it dies.
async fn serve(addr: SocketAddr) -> std::io::Result<()> {
    axum::serve(bind(addr)?.listen(1024)?, web::routes()).await
}

#[fiber::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Options { port, servers, folder } = Options::read()?;
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // Another program may share its port, too.
    TcpListener::bind(addr)
        .map_err(|error| format!("{addr} can't be used: {error}; --port names another port"))?;
    // It keeps the port for the web servers, and does not listen.
    let port = bind(addr)?;
    let addr = port.local_addr()?;

    let rooms = Entities::builder(ROOMS).processes(2).events_and_snapshots(100);
    let rooms = rooms.manager(|process| process.intensity(DEATHS, Duration::from_secs(1)));
    let rooms = rooms.durable(Journal::at(folder));
    let _rooms = rooms.start(|_name: String, ()| Room::default(), ()).await?;

    let mut web = Supervisor::builder("web").intensity(DEATHS, Duration::from_secs(1));
    for number in 1..=servers {
        web = web.child(ChildSpec::process(format!("server-{number}"), serve, addr)?);
    }
    let web = web.start().await?;
    while TcpStream::connect(addr).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("http://{addr}/");
    // It ends only if the servers die again and again. Ctrl-C ends all processes: what was answered
    // is recorded.
    Err(web.join().await?.to_string().into())
}

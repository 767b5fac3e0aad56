//! HTTP requests to axum in front of accounts: entities in processes of their own, and plain actors of
//! actix beside the server.

use std::env;
use std::future::pending;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::str;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use actix::prelude::*;
use anyhow::{Context as _, bail, ensure};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use fiber::Entities;
use fiber::entities::Entity;
use futures_util::future::try_join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use super::entities::{Meter, Persist};
use crate::measure::{rate, seconds};
use crate::table::{Figure, Row, Table};

/// The argument of a process that is a service.
pub(super) const SERVICE: &str = "service-of-accounts";
/// The variable with what its accounts are.
const ACCOUNTS_ARE: &str = "BENCH_ACCOUNTS";

const ACCOUNTS: usize = 200;
const PROCESSES: usize = 2;
/// The connections, each of which has one request under way.
const CONNECTIONS: usize = 64;
const TIME: Duration = Duration::from_secs(5);

pub(super) fn service(table: &mut Table) -> anyhow::Result<()> {
    let (fiber, fiber_slow) = measure("entities")?;
    let (actix, actix_slow) = measure("actors of actix")?;
    let name = format!("requests to axum in front of {ACCOUNTS} accounts");
    let row = Row::new(&*name, Figure::Rate(fiber)).beside("actix", Figure::Rate(actix));
    // Three times what 200 managed actors in 200 processes reached.
    table.push(row.above(Figure::Rate(6.9e3)).note(format!(
        "{CONNECTIONS} connections. fiber: entities in {PROCESSES} processes, one event a request, \
         in memory. actix: in the server's process, without a record."
    )));
    let row = Row::new(format!("{name}, 99th percentile"), seconds(fiber_slow));
    table.push(row.beside("actix", seconds(actix_slow)));
    Ok(())
}

/// Returns the requests a second to a service of these accounts, and the time of the slowest but one
/// of a hundred.
fn measure(accounts: &str) -> anyhow::Result<(f64, Duration)> {
    let mut service = Command::new(env::current_exe()?)
        .arg(SERVICE)
        .env(ACCOUNTS_ARE, accounts)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(service.stdout.take().context("it is piped")?).read_line(&mut line)?;
    let times = line.trim().parse::<SocketAddr>().context("its address").and_then(load);
    service.kill()?;
    service.wait()?;
    let mut times = times?;
    times.sort();
    let figures = (rate(times.len(), TIME), times[times.len() * 99 / 100]);
    eprintln!("  {accounts}: {:.0} requests/s, 99 % within {:.1?}", figures.0, figures.1);
    Ok(figures)
}

/// Returns the times of all requests.
fn load(address: SocketAddr) -> anyhow::Result<Vec<Duration>> {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let end = Instant::now() + TIME;
        let clients = (0..CONNECTIONS).map(|number| client(address, number, end));
        Ok(try_join_all(clients).await?.concat())
    })
}

async fn client(address: SocketAddr, number: usize, end: Instant) -> anyhow::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut times, mut answer) = (Vec::new(), Vec::<u8>::new());
    for account in (0..ACCOUNTS).cycle().skip(number) {
        let start = Instant::now();
        if start >= end {
            break;
        }
        let head = "HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(format!("POST /{account} {head}").as_bytes()).await?;
        answer.clear();
        while !is_whole(&answer)? {
            ensure!(stream.read_buf(&mut answer).await? > 0, "the service has closed it");
        }
        times.push(start.elapsed());
        ensure!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    }
    Ok(times)
}

fn is_whole(answer: &[u8]) -> anyhow::Result<bool> {
    let Some((head, body)) = str::from_utf8(answer)?.split_once("\r\n\r\n") else {
        return Ok(false);
    };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    Ok(body.len() >= length.context("an answer without a length")?.parse::<usize>()?)
}

/// Is a service, and prints its address.
pub(super) fn be_service() -> anyhow::Result<()> {
    Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        match &*env::var(ACCOUNTS_ARE)? {
            "entities" => {
                let accounts = Entities::builder("accounts").processes(PROCESSES).events();
                let accounts = accounts.start(Meter::new, ()).await?;
                let all: Arc<[_]> = (0..ACCOUNTS).map(|number| accounts.of(number)).collect();
                println!("{address}");
                let routes = Router::new().route("/{account}", post(pay_entity));
                axum::serve(listener, routes.with_state(all)).await?;
            }
            "actors of actix" => {
                let all = actors()?;
                println!("{address}");
                let routes = Router::new().route("/{account}", post(pay_actor));
                axum::serve(listener, routes.with_state(all)).await?;
            }
            other => bail!("{ACCOUNTS_ARE}={other}: not known"),
        }
        Ok(())
    })
}

/// Starts the actors on a thread of their own.
fn actors() -> anyhow::Result<Arc<[Addr<Meter>]>> {
    let (all, started) = mpsc::channel();
    thread::spawn(move || {
        System::new().block_on(async move {
            let _ =
                all.send((0..ACCOUNTS).map(|_| Meter::new(String::new(), ()).start()).collect());
            pending::<()>().await;
        });
    });
    Ok(started.recv()?)
}

type Answer = Result<String, StatusCode>;

fn answer<E>(count: Result<u64, E>) -> Answer {
    count.map(|count| format!("{count}\n")).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

async fn pay_entity(
    State(accounts): State<Arc<[Entity<Meter>]>>,
    Path(account): Path<usize>,
) -> Answer {
    answer(accounts.get(account).ok_or(StatusCode::NOT_FOUND)?.send(Persist(1)).await)
}

async fn pay_actor(
    State(accounts): State<Arc<[Addr<Meter>]>>,
    Path(account): Path<usize>,
) -> Answer {
    answer(accounts.get(account).ok_or(StatusCode::NOT_FOUND)?.send(Persist(1)).await)
}

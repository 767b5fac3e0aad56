//! ractor in two processes, by ractor_cluster.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorRef, pg};
use ractor_cluster::{NodeServer, client_connect};

use crate::nodes::{Other, wait_for_end};
use crate::programs::{Program, START};
use crate::ractor_local::Tell;
use crate::stage::{Address, Stage};

type Player = ActorRef<Tell<true>>;

/// Is a process of the program. The first one prints how long it takes.
pub(crate) async fn be(program: &Program, node: &str, port: &[String]) {
    match (node, port) {
        ("0", []) => println!("{}", first(program).await.as_secs_f64()),
        (_, [port]) => second(program, port.parse().expect("a port")).await,
        _ => unreachable!("only this program starts it"),
    }
}

async fn first(program: &Program) -> Duration {
    let port = free_port();
    start_node(port, "first").await;
    let other = Other::start(&[&port.to_string()]);
    let stage = start(program, 0).await;
    let other = other.ready().await;
    let time = stage.run(|first| first.tell(START)).await;
    other.kill();
    time
}

async fn second(program: &Program, port: u16) {
    let server = start_node(free_port(), "second").await;
    client_connect(&server, ("127.0.0.1", port)).await.expect("the first process listens");
    let _stage = start(program, 1).await;
    wait_for_end().await;
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there are free ports");
    listener.local_addr().expect("it has one").port()
}

async fn start_node(port: u16, name: &str) -> ActorRef<ractor_cluster::NodeServerMessage> {
    let (name, host) = (name.to_string(), "localhost".to_string());
    let server = NodeServer::new(port, "savina".into(), name, host, None, None);
    Actor::spawn(None, server, ()).await.expect("it starts").0
}

/// Starts the actors of a process, and waits until those of both processes are known.
async fn start(program: &Program, process: u32) -> Arc<Stage<Player>> {
    let stage = Stage::new();
    for id in (0..program.actors()).filter(|id| program.place(*id) == process) {
        let actor = <Player as Address>::start(stage.host(program, id));
        pg::join(id.to_string(), vec![actor.get_cell()]);
    }
    let mut all: Vec<Player> = Vec::new();
    for id in 0..program.actors() {
        let member = loop {
            match pg::get_members(&id.to_string()).pop() {
                Some(member) => break member,
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        all.push(member.into());
    }
    let _ = stage.addresses.set(all);
    stage
}

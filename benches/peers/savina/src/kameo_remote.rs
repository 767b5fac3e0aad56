//! kameo in two processes, by its remote actors.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kameo::actor::{Actor, ActorRef, RemoteActorRef, Spawn};
use kameo::message::{Context, Message};
use kameo::{RemoteActor, mailbox, remote, remote_message};

use crate::nodes::{Other, wait_for_end};
use crate::programs::{Note, Program, START};
use crate::stage::{Address, Host, Stage};

#[derive(RemoteActor)]
struct Player(Host<Peer>);

/// The address of an actor in either process.
#[derive(Clone)]
struct Peer(RemoteActorRef<Player>);

impl Actor for Player {
    type Args = Player;
    type Error = Infallible;

    async fn on_start(host: Player, _: ActorRef<Player>) -> Result<Player, Infallible> {
        Ok(host)
    }
}

#[remote_message]
impl Message<Note> for Player {
    type Reply = ();

    async fn handle(&mut self, note: Note, _: &mut Context<Player, ()>) {
        self.0.receive(note);
    }
}

impl Address for Peer {
    fn tell(&self, note: Note) {
        self.0.tell(&note).send().expect("it is sent");
    }

    fn start(_: Host<Peer>) -> Peer {
        unreachable!("no program across processes creates actors")
    }
}

/// Is a process of the program. The first one prints how long it takes.
pub(crate) async fn be(program: &Program, node: &str) {
    remote::bootstrap().expect("it listens");
    if node == "0" {
        let other = Other::start(&[]);
        let stage = start(program, 0).await;
        let other = other.ready().await;
        println!("{}", stage.run(|first| first.tell(START)).await.as_secs_f64());
        other.kill();
    } else {
        let _stage = start(program, 1).await;
        wait_for_end().await;
    }
}

/// Starts the actors of a process, and waits until those of both processes are known.
async fn start(program: &Program, process: u32) -> Arc<Stage<Peer>> {
    let stage = Stage::new();
    let mut own = Vec::new();
    for id in (0..program.actors()).filter(|id| program.place(*id) == process) {
        let player = Player(stage.host(program, id));
        let actor = Player::spawn_with_mailbox(player, mailbox::unbounded());
        // The first processes to be there know each other a little later.
        while actor.register(format!("actor {id}")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        own.push(actor);
    }
    let mut all = Vec::new();
    for id in 0..program.actors() {
        all.push(loop {
            match RemoteActorRef::<Player>::lookup(format!("actor {id}")).await {
                Ok(Some(found)) => break Peer(found),
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        });
    }
    let _ = stage.addresses.set(all);
    // They live as long as the process.
    std::mem::forget(own);
    stage
}

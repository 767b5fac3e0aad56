//! kameo in one process.

use std::convert::Infallible;
use std::time::Duration;

use kameo::actor::{Actor, ActorRef, Spawn};
use kameo::mailbox;
use kameo::message::{Context, Message};

use crate::programs::{Note, Program, START};
use crate::stage::{Address, Host, Stage};

type Player = Host<Own>;

/// The address of an actor of kameo.
#[derive(Clone)]
pub(crate) struct Own(ActorRef<Player>);

impl Actor for Player {
    type Args = Player;
    type Error = Infallible;

    async fn on_start(host: Player, _: ActorRef<Player>) -> Result<Player, Infallible> {
        Ok(host)
    }
}

impl Message<Note> for Player {
    type Reply = ();

    async fn handle(&mut self, note: Note, context: &mut Context<Player, ()>) {
        self.receive(note);
        if self.is_leaf {
            context.stop();
        }
    }
}

impl Address for Own {
    fn tell(&self, note: Note) {
        self.0.tell(note).try_send().expect("its mailbox has no limit");
    }

    fn start(host: Player) -> Own {
        Own(Player::spawn_with_mailbox(host, mailbox::unbounded()))
    }
}

pub(crate) async fn run(program: &Program) -> Duration {
    let stage = Stage::new();
    let start = |id| Own::start(stage.host(program, id));
    let all: Vec<Own> = (0..program.actors()).map(start).collect();
    let _ = stage.addresses.set(all.clone());
    let time = stage.run(|first| first.tell(START)).await;
    all.iter().for_each(|actor| actor.0.kill());
    time
}

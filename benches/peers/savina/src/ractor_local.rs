//! ractor in one process.

use std::time::Duration;

use ractor::message::{BoxedDowncastErr, SerializedMessage};
use ractor::{Actor, ActorProcessingErr, ActorRef, ActorRuntime, Message};

use crate::programs::{Note, Program, START};
use crate::stage::{Address, Host, Stage};

/// A message, which may also go to other processes.
pub(crate) struct Tell<const REMOTE: bool>(pub(crate) Note);

impl<const REMOTE: bool> Message for Tell<REMOTE> {
    fn serializable() -> bool {
        REMOTE
    }

    fn serialize(self) -> Result<SerializedMessage, BoxedDowncastErr> {
        let Tell(Note { kind, from, value }) = self;
        let mut args = vec![kind];
        args.extend(from.to_le_bytes());
        args.extend(value.to_le_bytes());
        Ok(SerializedMessage::Cast { variant: String::new(), args, metadata: None })
    }

    fn deserialize(message: SerializedMessage) -> Result<Self, BoxedDowncastErr> {
        let SerializedMessage::Cast { args, .. } = message else {
            return Err(BoxedDowncastErr);
        };
        let (from, value) = (args[1..5].try_into(), args[5..13].try_into());
        let (from, value) = (from.expect("4 bytes"), value.expect("8 bytes"));
        let (from, value) = (u32::from_le_bytes(from), u64::from_le_bytes(value));
        Ok(Tell(Note { kind: args[0], from, value }))
    }
}

/// An actor of ractor.
pub(crate) struct Player<const REMOTE: bool>;

impl<const REMOTE: bool> Actor for Player<REMOTE> {
    type Msg = Tell<REMOTE>;
    type State = Host<ActorRef<Tell<REMOTE>>>;
    type Arguments = Self::State;

    async fn pre_start(
        &self,
        _: ActorRef<Tell<REMOTE>>,
        host: Self::State,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(host)
    }

    async fn handle(
        &self,
        own: ActorRef<Tell<REMOTE>>,
        Tell(note): Tell<REMOTE>,
        host: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        host.receive(note);
        if host.is_leaf {
            own.stop(None);
        }
        Ok(())
    }
}

impl<const REMOTE: bool> Address for ActorRef<Tell<REMOTE>> {
    fn tell(&self, note: Note) {
        self.cast(Tell(note)).expect("the actor runs");
    }

    fn start(host: Host<Self>) -> Self {
        ActorRuntime::spawn_instant(None, Player::<REMOTE>, host).expect("it starts").0
    }
}

pub(crate) async fn run(program: &Program) -> Duration {
    let stage = Stage::new();
    let start = |id| Address::start(stage.host(program, id));
    let all: Vec<ActorRef<Tell<false>>> = (0..program.actors()).map(start).collect();
    let _ = stage.addresses.set(all.clone());
    let time = stage.run(|first| first.tell(START)).await;
    all.iter().for_each(|actor| actor.stop(None));
    time
}

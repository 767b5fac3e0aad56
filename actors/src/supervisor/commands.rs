//! What references ask of a supervisor.

use actix::{ActorContext, Context, Handler, Message};
use fiber_core::{Error, ExitReason, Result};
use tokio::sync::oneshot;

use super::child::{Cause, Child, Origin, Phase, Turn};
use super::directory::{check_name, unknown};
use super::machine::{Pace, Supervisor};
use super::spec::ChildSpec;
use super::tree::Entry;

pub(super) enum Command {
    Add(ChildSpec, oneshot::Sender<Result<()>>),
    End {
        name: String,
        how: End,
        done: oneshot::Sender<Result<oneshot::Receiver<()>>>,
    },
    Shutdown,
    /// Ends the supervisor and all below it at once.
    Kill(ExitReason),
}

pub(super) enum End {
    Terminate,
    Kill(ExitReason),
}

impl Message for Command {
    type Result = ();
}

impl Handler<Command> for Supervisor {
    type Result = ();

    fn handle(&mut self, command: Command, context: &mut Context<Supervisor>) {
        if self.catch_up() {
            // Dropped, the command is answered by the supervisor's end.
            return context.terminate();
        }
        match command {
            Command::Add(spec, answer) => self.add(spec, answer),
            Command::End { name, how, done } => {
                // Who asked may have gone since.
                let _ = done.send(self.end_one(&name, how));
            }
            Command::Shutdown => self.conclude(ExitReason::Shutdown, Pace::InTurn),
            Command::Kill(reason) => self.conclude(reason, Pace::AtOnce),
        }
        if self.advance() {
            context.terminate();
        }
    }
}

impl Supervisor {
    fn add(&mut self, spec: ChildSpec, answer: oneshot::Sender<Result<()>>) {
        let refusal = check_name(spec.name()).err().or_else(|| {
            if self.is_ending() {
                let reason = ExitReason::Shutdown;
                return Some(Error::ActorStopped { name: self.identity.path().into(), reason });
            }
            let problem = format!("supervisor `{}` has a child `{}` already", self.identity.path(), spec.name());
            self.names.contains_key(spec.name()).then_some(Error::Invalid { what: "add", problem })
        });
        if let Some(error) = refusal {
            let _ = answer.send(Err(error));
            return;
        }
        let key = self.insert(spec, Origin::Adding(answer));
        self.begin(key, Turn::Alone);
    }

    /// Ends a child; what is returned resolves when it has ended.
    fn end_one(&mut self, name: &str, how: End) -> Result<oneshot::Receiver<()>> {
        let Some(&key) = self.names.get(name) else {
            return Err(unknown(self.identity.path(), name));
        };
        let (waiter, ended) = oneshot::channel();
        let alive = self.children.get(&key).is_some_and(Child::is_alive);
        match (how, alive) {
            (End::Kill(reason), true) => self.end(key, Cause::Kill, Some(reason), Some(waiter)),
            (End::Terminate, true) => self.end(key, Cause::Terminate, None, Some(waiter)),
            (End::Terminate, false) => self.remove(key, &ExitReason::Shutdown),
            (End::Kill(_), false) => {}
        }
        Ok(ended)
    }

    /// Takes a child in. It is not started yet.
    pub(super) fn insert(&mut self, spec: ChildSpec, origin: Origin) -> super::child::Key {
        let key = self.next_key();
        let kind = spec.start.lock().kind();
        spec.identity.taken(self.identity.path());
        self.directory.list(&spec);
        self.names.insert(spec.name().into(), key);
        let entry = Entry::new(Some(self.node), spec.name(), kind);
        let child = Child::new(spec, origin, entry);
        debug_assert!(matches!(child.state, Phase::Due), "a new child has not been started");
        self.children.insert(key, child);
        key
    }
}

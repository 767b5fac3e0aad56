//! What reaches a supervisor: what its own tasks tell it, and what references ask of it.

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, StreamHandler};
use fiber_core::{Error, ExitReason, Result};
use futures_util::stream;
use tokio::sync::oneshot;

use super::child::{Cause, Child, Origin, Turn};
use super::directory::unknown;
use super::event::Event;
use super::machine::{Pace, Supervisor};
use super::spec::{ChildSpec, check_name};

pub(super) enum Command {
    Add(ChildSpec, oneshot::Sender<Result<()>>),
    /// As `Add`, for a child that is kept if its first start fails, and tried again.
    Keep(ChildSpec, oneshot::Sender<Result<()>>),
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

impl Actor for Supervisor {
    type Context = Context<Supervisor>;

    fn started(&mut self, context: &mut Context<Supervisor>) {
        if self.advance() {
            context.terminate();
        }
    }
}

impl StreamHandler<Event> for Supervisor {
    fn handle(&mut self, event: Event, context: &mut Context<Supervisor>) {
        if self.react(event) {
            context.terminate();
        }
    }
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
            Command::Keep(spec, answer) => self.keep(spec, answer),
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
    /// The context in which it will hear of events.
    pub(super) fn context(&self) -> Context<Supervisor> {
        let inbox = self.inbox.clone();
        let mut context = Context::new();
        context.add_stream(stream::poll_fn(move |task| inbox.borrow_mut().poll_recv(task)));
        context
    }

    /// Reacts to all that has happened already. A command must come after that: else a child that
    /// has started would be taken for one that still starts. `true` if the supervisor has ended.
    fn catch_up(&mut self) -> bool {
        loop {
            let next = self.inbox.borrow_mut().try_recv();
            let Ok(event) = next else { return false };
            if self.react(event) {
                return true;
            }
        }
    }

    fn react(&mut self, event: Event) -> bool {
        match event {
            Event::Child { key, incarnation, news } => self.news(key, incarnation, news),
            Event::TimeOver { timer, whose } => self.time_over(timer, whose),
        }
        self.advance()
    }

    fn add(&mut self, spec: ChildSpec, answer: oneshot::Sender<Result<()>>) {
        if let Some(error) = self.refusal(&spec) {
            let _ = answer.send(Err(error));
            return;
        }
        let key = self.insert(spec, Origin::Adding(answer));
        self.begin(key, Turn::Alone);
    }

    fn keep(&mut self, spec: ChildSpec, answer: oneshot::Sender<Result<()>>) {
        let refusal = self.refusal(&spec);
        if refusal.is_none() {
            let key = self.insert(spec, Origin::Added);
            self.begin(key, Turn::Alone);
        }
        // Who asked may have gone since.
        let _ = answer.send(refusal.map_or(Ok(()), Err));
    }

    /// Why a child can't be taken in, if so.
    fn refusal(&self, spec: &ChildSpec) -> Option<Error> {
        check_name("ChildSpec::new", spec.name()).err().or_else(|| {
            if self.is_ending() {
                let reason = ExitReason::Shutdown;
                return Some(Error::ActorStopped { name: self.identity.path().into(), reason });
            }
            let problem = format!(
                "supervisor `{}` has a child `{}` already",
                self.identity.path(),
                spec.name()
            );
            self.names
                .contains_key(spec.name())
                .then_some(Error::invalid("SupervisorRef::add_child", problem))
        })
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
}

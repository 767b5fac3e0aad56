//! The actor around the machine: it feeds events and commands to the transitions.

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, StreamHandler};
use fiber_core::{Error, ExitReason, Result};
use futures_util::stream;
use tokio::sync::oneshot;

use super::super::directory::unknown;
use super::super::spec::{ChildSpec, check_name};
use super::child::{Child, Origin, StartOrder, StopCause};
use super::event::{Command, Event, StopMethod};
use super::state::{StopMode, Supervisor};

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
        if self.handle_event(event) {
            context.terminate();
        }
    }
}

impl Handler<Command> for Supervisor {
    type Result = ();

    fn handle(&mut self, command: Command, context: &mut Context<Supervisor>) {
        if self.handle_queued_events() || self.handle_command(command) {
            context.terminate();
        }
    }
}

impl Supervisor {
    /// Returns a context that receives the supervisor's events.
    pub(in crate::supervisor) fn context(&self) -> Context<Supervisor> {
        let inbox = self.inbox.clone();
        let mut context = Context::new();
        context.add_stream(stream::poll_fn(move |task| inbox.borrow_mut().poll_recv(task)));
        context
    }

    /// Handles an event. Returns whether the supervisor has ended.
    fn handle_event(&mut self, event: Event) -> bool {
        match event {
            Event::Child { key, incarnation, event } => self.child_event(key, incarnation, event),
            Event::TimerExpired { timer, purpose } => self.timer_expired(timer, purpose),
        }
        self.advance()
    }

    /// Handles the events that came before a command: without them, a child that has started would
    /// look as if it still starts. Returns whether the supervisor has ended.
    fn handle_queued_events(&mut self) -> bool {
        loop {
            let next = self.inbox.borrow_mut().try_recv();
            let Ok(event) = next else { return false };
            if self.handle_event(event) {
                return true;
            }
        }
    }

    /// Handles a command. Returns whether the supervisor has ended.
    fn handle_command(&mut self, command: Command) -> bool {
        // Callers may have gone meanwhile, so answers may fail.
        match command {
            Command::Add(spec, answer) => match self.refusal(&spec) {
                Some(error) => drop(answer.send(Err(error))),
                None => {
                    let key = self.insert(spec, Origin::Adding(answer));
                    self.start_child(key, StartOrder::Concurrent);
                }
            },
            Command::AddInBackground(spec, answer) => {
                let refusal = self.refusal(&spec);
                if refusal.is_none() {
                    let key = self.insert(spec, Origin::Added);
                    self.start_child(key, StartOrder::Concurrent);
                }
                let _ = answer.send(refusal.map_or(Ok(()), Err));
            }
            Command::StopChild { name, method, answer } => {
                let _ = answer.send(self.stop_named_child(&name, method));
            }
            Command::Stop => self.stop_all(ExitReason::Shutdown, StopMode::InOrder),
            Command::Kill(reason) => self.stop_all(reason, StopMode::AtOnce),
        }
        self.advance()
    }

    /// Returns why a child can't be added, if so.
    fn refusal(&self, spec: &ChildSpec) -> Option<Error> {
        check_name("ChildSpec::new", spec.name()).err().or_else(|| {
            if self.is_stopping() {
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

    /// Stops or kills a child. The receiver resolves when it has ended.
    fn stop_named_child(
        &mut self,
        name: &str,
        method: StopMethod,
    ) -> Result<oneshot::Receiver<()>> {
        let Some(&key) = self.names.get(name) else {
            return Err(unknown(self.identity.path(), name));
        };
        let (waiter, ended) = oneshot::channel();
        let alive = self.children.get(&key).is_some_and(Child::is_alive);
        match (method, alive) {
            (StopMethod::Kill(reason), true) => {
                self.stop_child(key, StopCause::Kill, Some(reason), Some(waiter));
            }
            (StopMethod::Stop, true) => {
                self.stop_child(key, StopCause::Remove, None, Some(waiter));
            }
            (StopMethod::Stop, false) => self.remove(key, &ExitReason::Shutdown),
            (StopMethod::Kill(_), false) => {}
        }
        Ok(ended)
    }
}

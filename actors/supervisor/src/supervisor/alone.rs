//! Actors that are restarted without a supervisor: those in the processes of managed actors. One
//! process may have thousands of them, each with rules of its own.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, Context};
use fiber_core::{ExitReason, random_fraction, rounded};
use tokio::sync::mpsc;

use super::actor_loop::{ActorCommand, Commands, Own, catch_panic, run_actor};
use super::intensity::{Failures, RestartLimits};
use super::spec::Restart;

/// The rules of an actor without a supervisor, which are those of a supervisor with one child.
#[derive(Debug)]
pub struct Alone {
    /// The actor's name, in errors and logs.
    pub name: Arc<str>,
    /// When the actor is restarted.
    pub restart: Restart,
    /// How many restarts are allowed, and the pauses before them.
    pub limits: RestartLimits,
    /// Whether the actor has run before, elsewhere. Else a first start that fails is its end.
    pub has_run: bool,
}

/// The life of an actor, for the process in which it runs.
pub trait Life<A: Actor<Context = Context<A>>>: 'static {
    /// Is called before an incarnation starts in this context.
    fn starting(&self, context: &mut Context<A>);

    /// Makes the actor of an incarnation. A panic is a failure of its start.
    fn create(&self) -> A;

    /// Is called when an incarnation has started; for an actor that has run before, at once, too.
    fn started(&self);

    /// Is called after the end of an incarnation.
    fn ended(&self, reason: &ExitReason);

    /// Is called after that, if another incarnation follows unless there were too many.
    fn failed(&self, reason: &ExitReason);
}

impl Alone {
    /// Runs an actor until it has ended for good, and returns why. Its code gets `addr` from
    /// [`own_addr`](crate::own_addr). If the sender of the commands is dropped, the actor ends.
    pub async fn run<A, L>(
        self,
        addr: Box<dyn Any + Send + Sync>,
        life: Box<L>,
        commands: mpsc::UnboundedReceiver<ActorCommand>,
    ) -> ExitReason
    where
        A: Actor<Context = Context<A>>,
        L: Life<A>,
    {
        let own = Arc::new(Own { name: Arc::clone(&self.name), addr: Some(addr) });
        let RestartLimits { intensity, backoff } = self.limits;
        let mut commands = Commands::new(commands);
        let (mut failures, mut in_a_row) = (Failures::default(), 0);
        let has_started = Cell::new(self.has_run);
        if self.has_run {
            life.started();
        }
        let on_started = || {
            has_started.set(true);
            life.started();
        };
        loop {
            let began = Instant::now();
            let mut context = Context::new();
            life.starting(&mut context);
            let reason = match catch_panic(|| life.create()) {
                Ok(actor) => {
                    let exit = || ExitReason::Normal;
                    run_actor(&own, context, actor, &mut commands, on_started, exit).await
                }
                Err(reason) => reason,
            };
            if reason == ExitReason::Normal {
                // It may have stopped itself when it started.
                on_started();
            }
            life.ended(&reason);
            if let Some(end) = commands.end {
                return end;
            }
            if !has_started.get() || !self.restart.follows(&reason) {
                return reason;
            }
            life.failed(&reason);
            if failures.add(Instant::now(), &intensity) {
                let reached = intensity.reached(&self.name, reason);
                tracing::error!("actor `{}` {reached}", self.name);
                return reached;
            }
            if began.elapsed() >= backoff.resets_after() {
                in_a_row = 0;
            }
            let pause = backoff.pause(in_a_row, random_fraction());
            in_a_row = in_a_row.saturating_add(1);
            tracing::warn!("`{}` {reason}; restarting it in {}", self.name, rounded(pause));
            if !pause.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    end = commands.end() => return end,
                }
            }
        }
    }
}

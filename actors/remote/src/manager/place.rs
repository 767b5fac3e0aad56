//! The process of a manager as a place for other managed actors, its guests.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use fiber_core::{Error, ExitReason, Result};
use fiber_transport::Link;
use fiber_values::transfer::KeepAlive;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::ManagerInner;
use super::owned::ManagedActor;
use super::process::ActorMain;
use super::start::ManagerSpec;
use super::wire::{ActorEvent, Request};
use fiber_runtime::mesh::{ActorId, ProcessRef};
use fiber_runtime::runtime::{ProcessCommand, Runtime};
use fiber_supervisor::supervisor::{Inside, Restart, TreePlace};

/// Gets a manager with its owner, or why there is none.
pub(super) type Done = oneshot::Sender<Result<(ProcessRef, Arc<ManagerInner>)>>;

/// See the module's documentation.
pub(super) struct Place {
    runtime: &'static Runtime,
    /// The name of the manager.
    name: Arc<str>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The process in the tree, once it has started.
    tree: Option<TreePlace>,
    /// The process, while it runs.
    running: Option<RunningProcess>,
    guests: HashMap<ActorId, Box<Guest>>,
    /// Why no process follows.
    end: Option<ExitReason>,
}

/// A process that is ready.
pub(super) struct RunningProcess {
    pub(super) process: ProcessRef,
    pub(super) pid: u32,
    pub(super) link: Arc<dyn Link>,
    pub(super) commands: mpsc::UnboundedSender<ProcessCommand>,
}

/// An actor in the process of another manager.
struct Guest {
    actor: Arc<ManagedActor>,
    main: ActorMain,
    /// Keeps alive the shared objects in the factory's arguments.
    _keep_alive: KeepAlive,
    inside: Inside,
    /// Keeps the process of its group.
    _group: Option<Arc<ManagerInner>>,
    phase: Phase,
}

enum Phase {
    /// It has not started yet.
    Starting { done: Done, manager: (ProcessRef, Arc<ManagerInner>) },
    /// It has started in the process, and does so again after a restart of that.
    Started { incarnation: u64 },
    /// Its process was asked to stop it.
    Stopping { incarnation: u64 },
}

impl Place {
    pub(super) fn new(runtime: &'static Runtime, name: &Arc<str>) -> Arc<Place> {
        Arc::new(Place { runtime, name: Arc::clone(name), state: Mutex::default() })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.state.lock().running.as_ref().map(|running| running.pid)
    }

    /// Kills the process, if it runs.
    pub(super) fn kill(&self, reason: ExitReason) {
        if let Some(running) = &self.state.lock().running {
            let _ = running.commands.send(ProcessCommand::Kill(reason));
        }
    }

    /// Sets where the tree shows the process.
    pub(super) fn set_tree(&self, tree: TreePlace) {
        self.state.lock().tree = Some(tree);
    }

    /// Starts an actor in the process, or when the process runs again.
    pub(super) async fn start(
        self: Arc<Self>,
        spec: ManagerSpec,
        group: Option<Arc<ManagerInner>>,
        done: Done,
    ) {
        let (runtime, _keep_alive) = (self.runtime, spec.keep_alive.clone());
        let (owner, actor, main) = match entered(runtime, spec).await {
            Ok(entered) => entered,
            Err(error) => return drop(done.send(Err(error))),
        };
        let (id, place) = (actor.id(), Arc::downgrade(&self));
        actor.snapshot.on_failure(move |error: &Error| {
            let reason = ExitReason::Failed(error.to_string());
            if let Some(place) = place.upgrade() {
                place.end_one(id, reason);
            }
        });
        let names = move || runtime.directory().names_of(id);
        let mut state = self.state.lock();
        let (Some(tree), None) = (&state.tree, &state.end) else {
            let end = state.end.clone().unwrap_or(ExitReason::Shutdown);
            drop(state);
            let problem = format!("the process of `{}` has ended: {end}", self.name);
            actor.gone(ExitReason::NotStarted(problem.clone()));
            return drop(done.send(Err(Error::not_started(&*main.name, problem))));
        };
        let inside = tree.add(&main.name, names);
        let inner = ManagerInner {
            runtime,
            actor: Arc::clone(&actor),
            place: Arc::clone(&self),
            supervisor: None,
        };
        let phase = Phase::Starting { done, manager: (owner, Arc::new(inner)) };
        let guest = Guest { actor, main, _keep_alive, inside, _group: group, phase };
        if let Some(running) = &state.running {
            guest.send_to(running);
        }
        state.guests.insert(id, Box::new(guest));
    }

    /// Notes that the process is ready, and starts its guests in it.
    pub(super) fn ready(&self, running: RunningProcess) {
        let mut state = self.state.lock();
        state.guests.values().for_each(|guest| guest.send_to(&running));
        state.running = Some(running);
    }

    /// Notes what has happened to a guest in the process.
    pub(super) fn note(&self, id: ActorId, event: ActorEvent) {
        let mut state = self.state.lock();
        let State { running: Some(running), guests, .. } = &mut *state else { return };
        if matches!(event, ActorEvent::NotStarted(_) | ActorEvent::Ended(_)) {
            let _ = running.link.send(Request::Forget(id).message());
        }
        let Some(guest) = guests.get_mut(&id) else { return };
        match event {
            ActorEvent::Started => {
                let process = running.process.clone();
                let starting = guest.started(process);
                drop(state);
                // Nobody may wait for it any more. Then it is stopped.
                if let Some((done, manager)) = starting {
                    let _ = done.send(Ok(manager));
                }
            }
            ActorEvent::NotStarted(reason) | ActorEvent::Ended(reason) => {
                let guest = guests.remove(&id);
                drop(state);
                if let Some(guest) = guest {
                    guest.inside.ended_for_good(&reason);
                    guest.end(reason);
                }
            }
            event => {
                if let Some(event) = guest.actor.note(event, &running.link) {
                    guest.inside.note(event);
                }
            }
        }
    }

    /// Notes the end of the process, and with it those of its guests.
    pub(super) async fn ended(&self, reason: &ExitReason) {
        let (mut over, mut restarting) = (Vec::new(), Vec::new());
        {
            let mut state = self.state.lock();
            state.running = None;
            for (id, guest) in &state.guests {
                match &guest.phase {
                    Phase::Started { incarnation } if guest.main.restart != Restart::Temporary => {
                        guest.inside.ended(reason.clone());
                        restarting.push((Arc::clone(&guest.actor), *incarnation));
                    }
                    _ => over.push(*id),
                }
            }
            let removed: Vec<_> = over.iter().filter_map(|id| state.guests.remove(id)).collect();
            drop(state);
            removed.into_iter().for_each(|guest| guest.end(reason.clone()));
        }
        for (actor, incarnation) in restarting {
            actor.ended(incarnation, reason.clone()).await;
        }
    }

    /// Ends all guests for good: no process follows.
    pub(super) fn end(&self, reason: &ExitReason) {
        let mut state = self.state.lock();
        state.end.get_or_insert_with(|| reason.clone());
        let guests = std::mem::take(&mut state.guests);
        drop(state);
        guests.into_values().for_each(|guest| guest.end(reason.clone()));
    }

    /// Stops a guest for good, in order.
    pub(super) fn stop(&self, id: ActorId) {
        let mut state = self.state.lock();
        let State { running, guests, .. } = &mut *state;
        let Some(guest) = guests.get_mut(&id) else { return };
        if let Some(running) = running {
            if let Phase::Started { incarnation } = guest.phase {
                guest.phase = Phase::Stopping { incarnation };
            }
            let _ = running.link.send(Request::Stop(id).message());
            return;
        }
        let guest = guests.remove(&id);
        drop(state);
        if let Some(guest) = guest {
            guest.end(ExitReason::Shutdown);
        }
    }

    /// Ends a guest for good, at once.
    fn end_one(&self, id: ActorId, reason: ExitReason) {
        let mut state = self.state.lock();
        if let Some(running) = &state.running {
            let _ = running.link.send(Request::Kill(id, reason.clone()).message());
        }
        let guest = state.guests.remove(&id);
        drop(state);
        if let Some(guest) = guest {
            guest.end(reason);
        }
    }
}

/// Returns an actor that can be started, with its names, and the process that owns it.
async fn entered(
    runtime: &'static Runtime,
    spec: ManagerSpec,
) -> Result<(ProcessRef, Arc<ManagedActor>, ActorMain)> {
    let owner = ProcessRef { id: runtime.id(), address: runtime.address().await?.into() };
    spec.snapshot.get().await?;
    let (actor, main) = spec.main.own(runtime, &owner, spec.snapshot);
    if let Some(registered) = spec.registered
        && let Err(error) = registered.enter(runtime, &actor.owned).await
    {
        actor.gone(ExitReason::NotStarted(error.to_string()));
        return Err(Error::not_started(&*main.name, error.to_string()));
    }
    Ok((owner, actor, main))
}

impl Guest {
    /// Asks the process to start the actor.
    fn send_to(&self, running: &RunningProcess) {
        let main = ActorMain {
            snapshot: self.actor.snapshot.now(),
            has_run: !matches!(self.phase, Phase::Starting { .. }),
            ..self.main.clone()
        };
        let _ = running.link.send(Request::Start(Box::new(main)).message());
    }

    /// Notes that the actor has started. Returns who waits for its first start.
    fn started(&mut self, process: ProcessRef) -> Option<(Done, (ProcessRef, Arc<ManagerInner>))> {
        let incarnation = self.actor.owned.started(process);
        self.inside.started();
        let phase = match self.phase {
            Phase::Stopping { .. } => Phase::Stopping { incarnation },
            _ => Phase::Started { incarnation },
        };
        match std::mem::replace(&mut self.phase, phase) {
            Phase::Starting { done, manager } => Some((done, manager)),
            Phase::Started { .. } | Phase::Stopping { .. } => None,
        }
    }

    /// Ends the actor for good.
    fn end(self, reason: ExitReason) {
        let Guest { actor, main, phase, .. } = self;
        match phase {
            Phase::Starting { done, .. } => {
                actor.gone(reason.clone());
                let _ = done.send(Err(Error::Start { name: main.name.to_string(), reason }));
            }
            Phase::Started { incarnation } | Phase::Stopping { incarnation } => {
                let runtime = actor.runtime;
                let end = move || async move {
                    actor.ended(incarnation, reason.clone()).await;
                    actor.gone(reason);
                };
                runtime.spawn(end);
            }
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.name).finish()
    }
}

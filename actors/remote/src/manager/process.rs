//! The process of managed actors.
//!
//! Its main thread runs an actix system, with the actor that the process was started for and those
//! that its owner starts in it later.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use fiber_core::{ExitReason, shortage, wait_for_kill};
use fiber_transport::Link;
use fiber_values::codec::EncodedValue;
use fiber_values::entry::EntryRef;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::hosted::{HostedActor, RunningActor};
use super::snapshot::SnapshotInterval;
use super::wire::{ActorEvent, Request};
use fiber_runtime::mesh::{ActorId, Full, ProcessRef};
use fiber_runtime::runtime::{ChildMain, ControlMessage, ParentMessage, Runtime, StartedMain};
use fiber_runtime::tokio_runtime::new_runtime;
use fiber_supervisor::supervisor::{Restart, RestartLimits, Shutdown};

/// The exit code of a process whose actor needed more restarts than are allowed.
const EXIT_GIVEN_UP: i32 = 1;

/// A managed actor on the way to its process: the main function of that process, or an actor that
/// joins it.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ActorMain {
    pub(super) entry: EntryRef,
    pub(super) name: Arc<str>,
    /// The process that owns the actor, and its number there. Its owner sets it.
    pub(super) owned: Option<(ProcessRef, ActorId)>,
    pub(super) arguments: EncodedValue,
    /// The state from which the actor continues after a restart of the process.
    pub(super) snapshot: Option<EncodedValue>,
    /// The folder of the journal that has the snapshots of a durable actor.
    pub(super) journal: Option<String>,
    pub(super) interval: SnapshotInterval,
    pub(super) mailbox: u64,
    pub(super) full: Full,
    /// When the actor is restarted in its process.
    pub(super) restart: Restart,
    pub(super) shutdown: Shutdown,
    pub(super) limits: RestartLimits,
    /// Whether the actor has run before, in a process that has died.
    pub(super) has_run: bool,
}

impl ActorMain {
    /// Returns how many places the mailbox has for the messages of each process, if these wait for
    /// one.
    pub(super) fn places(&self) -> Option<NonZeroU32> {
        let places = NonZeroU32::new(u32::try_from(self.mailbox).ok()?);
        places.filter(|_| self.full == Full::Wait)
    }
}

/// An order to the main thread.
enum Order {
    Start(Box<HostedActor>),
    Stop(ActorId),
    Kill(ActorId, ExitReason),
    Forget(ActorId),
    /// Ends the process.
    Shutdown,
}

impl ChildMain for ActorMain {
    fn start(self, runtime: &'static Runtime, link: Arc<dyn Link>) -> StartedMain {
        let (orders, arrived) = mpsc::unbounded_channel();
        let first = HostedActor::new(runtime, &link, self);
        let mut held = HashMap::new();
        held.extend(first.held.clone().map(|held| (first.id, held)));
        let receive = move |message| {
            let order = match message {
                ParentMessage::Shutdown => Order::Shutdown,
                ParentMessage::Data(message) => match EncodedValue::from(message).decode() {
                    Ok(Request::Start(main)) => {
                        let actor = HostedActor::new(runtime, &link, *main);
                        held.extend(actor.held.clone().map(|held| (actor.id, held)));
                        Order::Start(Box::new(actor))
                    }
                    Ok(Request::Stop(actor)) => Order::Stop(actor),
                    Ok(Request::Kill(actor, reason)) => Order::Kill(actor, reason),
                    Ok(Request::Kept(actor)) => {
                        return held.get(&actor).into_iter().for_each(|held| held.kept());
                    }
                    Ok(Request::Forget(actor)) => {
                        held.remove(&actor);
                        Order::Forget(actor)
                    }
                    Err(_) => return tracing::error!("ignored an invalid message of the owner"),
                },
            };
            // The main thread may be about to end.
            let _ = orders.send(order);
        };
        StartedMain { receive: Box::new(receive), run: Box::new(move || run(first, arrived)) }
    }
}

/// Runs the process, and returns its exit code.
fn run(first: HostedActor, orders: mpsc::UnboundedReceiver<Order>) -> i32 {
    match new_runtime() {
        Ok(tokio) => actix_rt::System::with_tokio_rt(|| tokio).block_on(serve(first, orders)),
        Err(error) => {
            let problem = shortage::explain(&error);
            let problem = format!("creating its tokio runtime failed: {problem}");
            // The parent kills this process when it knows of the failure.
            let _ = first.link.send(ControlMessage::Failed(problem).message());
            wait_for_kill();
        }
    }
}

/// Runs actors until the first one has ended and the parent has received the reason.
async fn serve(first: HostedActor, mut orders: mpsc::UnboundedReceiver<Order>) -> i32 {
    let (runtime, link, id) = (first.runtime, Arc::clone(&first.link), first.id);
    let address = match runtime.address_now() {
        Ok(address) => Some(address.to_string()),
        Err(error) => return fail(&link, error.to_string(), orders).await,
    };
    let (done, mut ended) = oneshot::channel();
    let ready = ControlMessage::Ready { address }.message();
    let first = first.spawn(ready, |end| drop(done.send(end)));
    let mut others = HashMap::<ActorId, RunningActor>::new();
    let mut is_stopping = false;
    let end = loop {
        tokio::select! {
            end = &mut ended => break end,
            order = orders.recv(), if !is_stopping => match order {
                Some(Order::Start(actor)) => {
                    let (id, link) = (actor.id, Arc::clone(&link));
                    let started = ActorEvent::Started.encode(id);
                    let ended = move |end: ActorEvent| {
                        let _ = link.send(end.encode(id));
                    };
                    let actor = actor.spawn(started, ended);
                    others.insert(id, actor);
                }
                Some(Order::Stop(id)) => others.get(&id).into_iter().for_each(RunningActor::stop),
                Some(Order::Kill(id, reason)) => {
                    others.get(&id).into_iter().for_each(|actor| actor.kill(reason.clone()));
                }
                Some(Order::Forget(id)) => drop(others.remove(&id)),
                // Without orders, the link to the owner is lost.
                Some(Order::Shutdown) | None => {
                    is_stopping = true;
                    stop(&others).await;
                    first.ask_to_stop();
                }
            }
        }
    };
    let reason = match end {
        Ok(ActorEvent::Ended(reason)) => reason,
        Ok(ActorEvent::NotStarted(reason)) => {
            runtime.backtraces_printed().await;
            return fail(&link, reason.start_problem(), orders).await;
        }
        _ => ExitReason::Shutdown,
    };
    stop(&others).await;
    let code = match reason {
        ExitReason::Normal | ExitReason::Shutdown => 0,
        _ => EXIT_GIVEN_UP,
    };
    let _ = link.send(ActorEvent::Ended(reason).encode(id));
    while !is_stopping {
        // The parent answers with a shutdown when it has received the reason.
        is_stopping = matches!(orders.recv().await, Some(Order::Shutdown) | None);
    }
    code
}

/// Stops actors, and waits for their ends.
async fn stop(actors: &HashMap<ActorId, RunningActor>) {
    actors.values().for_each(RunningActor::stop);
    join_all(actors.values().map(RunningActor::ended)).await;
}

/// Reports to the parent that the process can't start. The parent then kills it.
async fn fail(
    link: &Arc<dyn Link>,
    problem: String,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> i32 {
    let _ = link.send(ControlMessage::Failed(problem).message());
    // The actix system runs on, and the link to the parent may end first.
    while orders.recv().await.is_some() {}
    EXIT_GIVEN_UP
}

//! Addresses without the type of their actor.

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fiber_core::{Error, ExitReason, Result};
use fiber_transport::Received;
use fiber_values::codec;
use fiber_values::entry::EntryRef;
use fiber_values::transfer::{self, KeepAlive};
use serde::{Deserialize, Serialize, Serializer};
use tokio::sync::oneshot;

use super::message::RemoteMessage;
use super::outgoing::Outgoing;
use fiber_runtime::mesh::{
    ActorId, Answer, CallFailure, Load, OwnedActor, Payload, Pending, ProcessRef, Route, Terms,
    Unanswered, Waiter, current_deadline,
};
use fiber_runtime::reply::{PendingCall, Reply};
use fiber_runtime::runtime::Runtime;
use fiber_supervisor::current_actor;

/// An address of an actor of any type.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct UntypedAddr {
    #[serde(serialize_with = "serialize_target")]
    pub(crate) target: Arc<Target>,
    /// The route to an owned actor, from the first use of the address.
    #[serde(skip)]
    route: Arc<OnceLock<Arc<Route>>>,
    pub(crate) timeout: Option<Duration>,
    /// When the request ends whose time limit its calls have, too.
    #[serde(skip)]
    pub(crate) deadline: Option<Instant>,
    pub(crate) resend: bool,
    pub(crate) urgent: bool,
    /// The actor's number in the pool from which the address has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<u64>,
}

/// Notes that the value with the address means nothing to another session.
fn serialize_target<S: Serializer>(target: &Arc<Target>, serializer: S) -> Result<S::Ok, S::Error> {
    transfer::note_handle();
    target.serialize(serializer)
}

#[derive(PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) session: u64,
    pub(crate) name: Arc<str>,
    /// The actor's process. For an owned actor, its owner.
    pub(crate) home: ProcessRef,
    pub(crate) actor: ActorId,
    pub(crate) owned: bool,
    /// How many places the mailbox has for the messages of each process, if these wait for one.
    pub(crate) places: Option<NonZeroU32>,
}

impl Target {
    /// Returns an actor that this process owns.
    pub(crate) fn owned(runtime: &Runtime, home: ProcessRef, owned: &OwnedActor) -> Target {
        Target {
            session: runtime.session(),
            name: Arc::clone(&owned.name),
            home,
            actor: owned.id,
            owned: true,
            places: owned.places,
        }
    }
}

impl UntypedAddr {
    pub(crate) fn new(target: Target) -> UntypedAddr {
        UntypedAddr {
            target: Arc::new(target),
            route: Arc::default(),
            timeout: None,
            deadline: None,
            resend: false,
            urgent: false,
            index: None,
        }
    }

    /// Returns this process's runtime, if the address is of its session.
    ///
    /// # Errors
    /// As [`Runtime::of_session`].
    pub(crate) fn runtime(&self) -> Result<&'static Runtime> {
        Runtime::of_session(self.target.session, &self.target.name)
    }

    fn route(&self, runtime: &'static Runtime) -> &Arc<Route> {
        self.route.get_or_init(|| {
            runtime.mesh().route(&self.target.home, self.target.actor, &self.target.name)
        })
    }

    /// Returns whether this process owns or has exported the actor.
    fn is_of_this_process(&self) -> bool {
        self.runtime().is_ok_and(|runtime| runtime.id() == self.target.home.id)
    }

    pub(crate) fn connected(&self) -> bool {
        let Ok(runtime) = self.runtime() else { return false };
        let target = &*self.target;
        let is_here = target.home.id == runtime.id();
        if target.owned && is_here {
            return runtime.registry().owned(target.actor).is_some_and(|owned| !owned.is_gone());
        }
        if target.owned {
            return self.route(runtime).is_open();
        }
        if is_here {
            return runtime.registry().inbox(target.actor).is_some_and(|inbox| inbox.is_open());
        }
        !runtime.mesh().channel(&target.home).is_closed()
    }

    /// Sends a message. `load` counts it until it is answered.
    pub(crate) fn call<M: RemoteMessage>(
        &self,
        method: EntryRef,
        message: Outgoing<'_, M>,
        load: Option<Load>,
    ) -> Reply<M::Result> {
        self.call_named(std::any::type_name::<M>(), method, message, load)
    }

    /// Works as [`call`](Self::call), for a message that errors call `name`.
    pub(crate) fn call_named<M: RemoteMessage>(
        &self,
        name: &'static str,
        method: EntryRef,
        message: Outgoing<'_, M>,
        load: Option<Load>,
    ) -> Reply<M::Result> {
        let (sender, answer) = oneshot::channel();
        match self.send(name, method, message, Some((sender, load))) {
            Ok(()) => {
                let target = &*self.target;
                let call = PendingCall::new(answer, &target.name, name, current_actor());
                let is_here = !target.owned && self.is_of_this_process();
                Reply::call(call.by(&target.home, self.callee(), is_here))
            }
            Err(error) => Reply::failed(error),
        }
    }

    /// Sends a message without an answer. Counts one that is not sent as a dead letter.
    pub(crate) fn do_send<M: RemoteMessage>(&self, method: EntryRef, message: Outgoing<'_, M>) {
        let Err(error) = self.try_send(method, message) else { return };
        match self.runtime() {
            Ok(runtime) => {
                let problem = match error {
                    Error::ActorStopped { reason, .. } => reason.to_string(),
                    error => error.to_string(),
                };
                runtime.dead_letters().note(&self.target.name, 1, problem);
            }
            Err(_) => tracing::debug!("a message without an answer was not sent: {error}"),
        }
    }

    /// Sends a message without an answer.
    pub(crate) fn try_send<M: RemoteMessage>(
        &self,
        method: EntryRef,
        message: Outgoing<'_, M>,
    ) -> Result<()> {
        self.send(std::any::type_name::<M>(), method, message, None)
    }

    fn send<M: RemoteMessage>(
        &self,
        name: &'static str,
        method: EntryRef,
        message: Outgoing<'_, M>,
        answer: Option<(oneshot::Sender<Answer>, Option<Load>)>,
    ) -> Result<()> {
        let runtime = self.runtime()?;
        let time_left = if answer.is_some() { self.time_left() } else { None };
        let terms = Terms { urgent: self.urgent, time_left };
        let callee = self.callee();
        let encode = || match message {
            Outgoing::Value(message) => Payload::call(callee, method, terms, message),
            Outgoing::Shared(message, fan_out) => {
                Ok(Payload::call_encoded(callee, method, terms, message, Some(fan_out)))
            }
        };
        let (payload, keep_alive) = if answer.is_some() {
            transfer::repeatable(encode)
        } else {
            (transfer::once(encode), KeepAlive::default())
        };
        let payload = payload?;
        let limit = runtime.config().max_message.as_u64();
        codec::check_size(payload.size(), limit, || format!("a message of type `{name}`"))?;
        self.send_payload(runtime, payload, answer, time_left, keep_alive)
    }

    /// Returns how long a call may take that is sent now: what the address says, and no longer than
    /// the request that this thread handles.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let deadline = [self.deadline, current_deadline()].into_iter().flatten().min();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        [self.timeout, left].into_iter().flatten().min()
    }

    /// Returns the number of the actor in the process to which messages go.
    fn callee(&self) -> ActorId {
        if self.target.owned { self.target.actor.hosted() } else { self.target.actor }
    }

    fn send_payload(
        &self,
        runtime: &'static Runtime,
        payload: Payload,
        answer: Option<(oneshot::Sender<Answer>, Option<Load>)>,
        time_left: Option<Duration>,
        keep_alive: KeepAlive,
    ) -> Result<()> {
        let target = &*self.target;
        let pending = answer.map(|(sender, load)| Pending {
            waiter: match time_left {
                Some(limit) => runtime.mesh().deadlines().within(limit, sender),
                None => Waiter::Sender(sender),
            },
            route: None,
            resend: (self.resend && target.owned).then(|| payload.clone()),
            load,
            place: None,
            _keep_alive: keep_alive,
        });
        if target.owned {
            let route = self.route(runtime);
            match target.places.filter(|_| !self.urgent) {
                Some(places) => {
                    let letter = || Pending::new(unheard(runtime, Arc::clone(&target.name)));
                    let pending = pending.unwrap_or_else(letter);
                    runtime.mesh().send_within(places, route, payload, pending);
                }
                None => runtime.mesh().send(route, payload, pending),
            }
            return Ok(());
        }
        let Err(refused) = runtime.mesh().channel(&target.home).send(payload, pending) else {
            return Ok(());
        };
        match refused.pending {
            Some(pending) => {
                pending.complete(Err(Unanswered::Lost(refused.reason)));
                Ok(())
            }
            None => Err(self.stopped(refused.reason)),
        }
    }

    /// Sends a message that is encoded already. The caller keeps the handles in it alive.
    pub(crate) fn call_payload(
        &self,
        runtime: &'static Runtime,
        mut payload: Payload,
        waiter: Waiter,
    ) {
        payload.set_actor(self.callee());
        let resend = self.resend.then(|| payload.clone());
        let pending = Pending { resend, ..Pending::new(waiter) };
        runtime.mesh().send(self.route(runtime), payload, Some(pending));
    }

    /// Sends a message that is encoded already. The receiver gets the answer.
    ///
    /// # Errors
    /// As [`Runtime::of_session`].
    pub(crate) fn call_encoded(
        &self,
        method: EntryRef,
        message: &Received,
    ) -> Result<oneshot::Receiver<Answer>> {
        let runtime = self.runtime()?;
        let (sender, answer) = oneshot::channel();
        let payload = Payload::call_encoded(self.callee(), method, Terms::default(), message, None);
        let answer_to = Some((sender, None));
        self.send_payload(runtime, payload, answer_to, self.timeout, KeepAlive::default())?;
        Ok(answer)
    }

    /// Returns whether an actor that has ended may be there again.
    pub(crate) fn may_restart(&self) -> bool {
        self.target.owned && self.connected()
    }

    pub(crate) fn stopped(&self, reason: ExitReason) -> Error {
        Error::ActorStopped { name: self.target.name.to_string(), reason }
    }
}

/// Returns the receiver of an answer that nobody waits for. It counts a message that has reached no
/// actor as a dead letter of this name.
pub(crate) fn unheard(runtime: &'static Runtime, name: Arc<str>) -> Waiter {
    Waiter::Callback(Box::new(move |answer| {
        if let Err(Unanswered::Lost(reason) | Unanswered::Failed(CallFailure::Stopped(reason))) =
            answer
        {
            runtime.dead_letters().note(&name, 1, reason);
        }
    }))
}

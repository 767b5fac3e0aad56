//! Addresses without the type of their actor.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fiber_core::{Error, ExitReason, Result};
use fiber_values::codec;
use fiber_values::entry::EntryRef;
use fiber_values::transfer::{self, KeepAlive};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::message::RemoteMessage;
use fiber_runtime::mesh::{
    ActorId, Answer, Load, Payload, Pending, ProcessRef, Route, Unanswered, Waiter,
};
use fiber_runtime::reply::{PendingCall, Reply};
use fiber_runtime::runtime::Runtime;
use fiber_supervisor::current_actor;

/// An address of an actor of any type.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct UntypedAddr {
    pub(super) target: Arc<Target>,
    /// The route to an owned actor, from the first use of the address.
    #[serde(skip)]
    route: Arc<OnceLock<Arc<Route>>>,
    pub(super) timeout: Option<Duration>,
    pub(super) resend: bool,
}

#[derive(PartialEq, Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) session: u64,
    pub(super) name: Arc<str>,
    /// The actor's process. For an owned actor, its owner.
    pub(super) home: ProcessRef,
    pub(super) actor: ActorId,
    pub(super) owned: bool,
}

impl UntypedAddr {
    pub(super) fn new(target: Target) -> UntypedAddr {
        UntypedAddr {
            target: Arc::new(target),
            route: Arc::default(),
            timeout: None,
            resend: false,
        }
    }

    /// Returns this process's runtime, if the address is of its session.
    ///
    /// # Errors
    /// As [`Runtime::of_session`].
    pub(super) fn runtime(&self) -> Result<&'static Runtime> {
        Runtime::of_session(self.target.session, &self.target.name)
    }

    fn route(&self, runtime: &'static Runtime) -> &Arc<Route> {
        self.route.get_or_init(|| runtime.mesh().route(&self.target.home, self.target.actor))
    }

    pub(super) fn connected(&self) -> bool {
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
    pub(super) fn call<M: RemoteMessage>(
        &self,
        method: EntryRef,
        message: &M,
        load: Option<Load>,
    ) -> Reply<M::Result> {
        let (sender, answer) = oneshot::channel();
        match self.send(method, message, Some((sender, load))) {
            Ok(()) => Reply::call(PendingCall::new(
                answer,
                &self.target.name,
                std::any::type_name::<M>(),
                current_actor(),
            )),
            Err(error) => Reply::failed(error),
        }
    }

    /// Sends a message without an answer. Logs the error.
    pub(super) fn do_send<M: RemoteMessage>(&self, method: EntryRef, message: &M) {
        if let Err(error) = self.try_send(method, message) {
            tracing::debug!("a message without an answer was not sent: {error}");
        }
    }

    /// Sends a message without an answer.
    pub(super) fn try_send<M: RemoteMessage>(&self, method: EntryRef, message: &M) -> Result<()> {
        self.send(method, message, None)
    }

    fn send<M: RemoteMessage>(
        &self,
        method: EntryRef,
        message: &M,
        answer: Option<(oneshot::Sender<Answer>, Option<Load>)>,
    ) -> Result<()> {
        let runtime = self.runtime()?;
        let target = &*self.target;
        let actor = if target.owned { ActorId::HOSTED } else { target.actor };
        let encode = || Payload::call(actor, method, message);
        let (payload, keep_alive) = if answer.is_some() {
            transfer::repeatable(encode)
        } else {
            (transfer::once(encode), KeepAlive::default())
        };
        let payload = payload?;
        let limit = runtime.config().max_message.as_u64();
        codec::check_size(payload.size(), limit, || {
            format!("a message of type `{}`", std::any::type_name::<M>())
        })?;
        let pending = answer.map(|(sender, load)| Pending {
            waiter: match self.timeout {
                Some(limit) => runtime.mesh().deadlines().within(limit, sender),
                None => Waiter::Sender(sender),
            },
            route: None,
            resend: (self.resend && target.owned).then(|| payload.clone()),
            load,
            _keep_alive: keep_alive,
        });
        if target.owned {
            runtime.mesh().send(self.route(runtime), payload, pending);
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

    fn stopped(&self, reason: ExitReason) -> Error {
        Error::ActorStopped { name: self.target.name.to_string(), reason }
    }
}

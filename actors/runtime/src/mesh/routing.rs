//! Calls to managed actors, which restart in other processes.

use std::sync::Arc;
use std::time::Instant;

use fiber_core::{Error, ExitReason, ProcessId, random_fraction};
use fiber_values::codec;
use serde::de::DeserializeOwned;

use super::Mesh;
use super::channel::Channel;
use super::deadlines::{Unanswered, Waiter};
use super::pending::Pending;
use super::registry::transit_time;
use super::route::{Lookup, LostCalls, Route};
use super::wire::{ActorLocation, IncarnationEnd, Payload, ProcessRef, Query};

impl Mesh {
    /// Sends a call to an owned actor, when the actor is found.
    pub fn send(&'static self, route: &Arc<Route>, payload: Payload, pending: Option<Pending>) {
        if let Some(lookup) = route.send(payload, pending) {
            self.locate(route, lookup);
        }
    }

    /// Asks the owner where an actor is.
    fn locate(&'static self, route: &Arc<Route>, Lookup { after }: Lookup) {
        let route = Arc::clone(route);
        self.endpoint.spawn(move || async move {
            let query = Query::Locate { actor: route.actor(), after };
            let location =
                self.query(route.owner(), query).await.unwrap_or_else(ActorLocation::Gone);
            let lookup = match location {
                ActorLocation::At { process, incarnation } => {
                    route.found(self.channel(&process), incarnation)
                }
                ActorLocation::Gone(reason) => return route.gone(&reason),
            };
            if let Some(lookup) = lookup {
                self.locate(&route, lookup);
            }
        });
    }

    /// Handles the loss of a process, or a failure to connect to it. Calls that may be sent again
    /// are, the others fail.
    pub(super) fn close(&'static self, channel: &Arc<Channel>, reason: &ExitReason) {
        let was_connected = channel.is_connected();
        let Some(pending) = channel.close(reason) else { return };
        self.channels.remove_if(&channel.to(), |_, current| Arc::ptr_eq(current, channel));
        let mut routed: Vec<(Arc<Route>, Vec<Pending>)> = Vec::new();
        for pending in pending {
            let Some(route) = pending.route.clone() else {
                pending.complete(Err(Unanswered::Lost(reason.clone())));
                continue;
            };
            match routed.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &route)) {
                Some((_, calls)) => calls.push(pending),
                None => routed.push((route, vec![pending])),
            }
        }
        for (route, calls) in routed {
            self.reroute(&route, channel, calls, reason);
        }
        let (process, now) = (channel.to(), Instant::now());
        if was_connected {
            return self.reconnect(process, now);
        }
        let mut reconnecting = self.reconnecting.lock();
        let next = reconnecting.failed(process, transit_time(), now, &mut random_fraction);
        drop(reconnecting);
        if let Some((lost_at, pause)) = next {
            self.endpoint.spawn(move || async move {
                tokio::time::sleep(pause).await;
                self.reconnect(process, lost_at);
            });
        }
    }

    /// Has lost messages sent again to a process that may still be alive.
    fn reconnect(&'static self, process: ProcessId, lost_at: Instant) {
        let Some(after_loss) = self.after_loss.get() else { return };
        // Noted first, because the attempt may fail at once.
        self.reconnecting.lock().begin(process, lost_at);
        if !after_loss(process) {
            self.reconnecting.lock().end(process);
        }
    }

    /// Handles the calls of a route that were pending when its channel closed.
    fn reroute(
        &'static self,
        route: &Arc<Route>,
        channel: &Arc<Channel>,
        calls: Vec<Pending>,
        reason: &ExitReason,
    ) {
        let LostCalls { incarnation, lookup, resend, failed } = route.lost(channel, calls);
        if let Some(lookup) = lookup {
            self.locate(route, lookup);
        }
        resend.into_iter().for_each(|(payload, call)| self.send(route, payload, Some(call)));
        if failed.is_empty() {
            return;
        }
        let (route, reason) = (Arc::clone(route), reason.clone());
        self.endpoint.spawn(move || async move {
            // This process knows only that a link broke. The owner knows how the actor ended.
            let query = Query::IncarnationEnd { actor: route.actor(), incarnation };
            let reason = match self.query::<IncarnationEnd>(route.owner(), query).await {
                Ok(end) => end.reason,
                Err(_) => reason,
            };
            failed
                .into_iter()
                .for_each(|call| call.complete(Err(Unanswered::Lost(reason.clone()))));
        });
    }

    /// Sends a query to a process, and waits for the answer.
    ///
    /// # Errors
    /// The reason why the process does not answer.
    pub async fn query<T: DeserializeOwned>(
        &'static self,
        process: &ProcessRef,
        query: Query,
    ) -> Result<T, ExitReason> {
        let (sender, answer) = tokio::sync::oneshot::channel();
        let pending = Pending::new(Waiter::Sender(sender));
        if let Err(refused) = self.channel(process).send(Payload::query(&query), Some(pending)) {
            return Err(refused.reason);
        }
        let broken = |problem: String| ExitReason::LinkLost(problem);
        match answer.await {
            Ok(Ok(value)) => {
                codec::decode(&value).map_err(|error: Error| broken(error.to_string()))
            }
            Ok(Err(Unanswered::Lost(reason))) => Err(reason),
            Ok(Err(other)) => Err(broken(format!("its owner did not answer: {other:?}"))),
            Err(_) => Err(broken("its owner did not answer".into())),
        }
    }
}

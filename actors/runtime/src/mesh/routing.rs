//! Calls to managed actors, which restart in other processes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fiber_core::{Error, ExitReason, ProcessId, random_fraction};
use fiber_values::codec;
use serde::de::DeserializeOwned;

use super::Mesh;
use super::channel::Channel;
use super::deadlines::{Unanswered, Waiter};
use super::pending::Pending;
use super::registry::transit_time;
use super::route::{Lookup, LostCalls, Route};
use super::wire::{ActorLocation, Payload, ProcessRef, Query};

/// The pause between two attempts to connect to a process again whose owner takes it for alive.
const RETRY: Duration = Duration::from_millis(250);

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
            let mut found = self.location(&route, after).await;
            if found.is_err() {
                // The link to the owner may have broken together with the one to the actor. The
                // second question goes over a new one.
                found = self.location(&route, after).await;
            }
            let location = match found {
                Ok(location) => location,
                Err(reason) => return route.unreachable(&reason),
            };
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

    /// Asks the owner for the incarnation after this one, or for this one if it lives.
    ///
    /// # Errors
    /// The reason why the owner does not answer.
    async fn location(
        &'static self,
        route: &Route,
        after: u64,
    ) -> Result<ActorLocation, ExitReason> {
        match self.survivor(route, after).await? {
            Some(process) => Ok(ActorLocation::At { process, incarnation: after }),
            None => {
                let query = Query::Locate { actor: route.actor, after };
                self.query(&route.owner, query).await
            }
        }
    }

    /// Returns the process of an incarnation to which the link was lost, once there is another;
    /// `None` if it has ended. What this process has sent over the lost link is not handled later.
    ///
    /// # Errors
    /// The reason why the owner, which knows that, does not answer.
    async fn survivor(
        &'static self,
        route: &Route,
        lost: u64,
    ) -> Result<Option<ProcessRef>, ExitReason> {
        // A child that has lost its parent ends.
        if lost == 0 || route.owner.id == self.endpoint.id {
            return Ok(None);
        }
        let query = Query::Locate { actor: route.actor, after: lost - 1 };
        loop {
            match self.query(&route.owner, query.clone()).await? {
                ActorLocation::At { process, incarnation } if incarnation == lost => {
                    if self.query::<()>(&process, Query::Resume).await.is_ok() {
                        return Ok(Some(process));
                    }
                }
                _ => return Ok(None),
            }
            // It may be dead, and its owner will learn that.
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Handles the loss of a process, or a failure to connect to it. Calls that may be sent again
    /// are, the others fail.
    pub(super) fn close(&'static self, channel: &Arc<Channel>, reason: &ExitReason) {
        let was_connected = channel.is_connected();
        let letters = channel.waiting_letters();
        let Some(pending) = channel.close(reason) else { return };
        let name = format!("actors of process {}", channel.to);
        self.registry.dead_letters().note(&name, letters, reason);
        self.channels.remove_if(&channel.to, |_, current| Arc::ptr_eq(current, channel));
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
        let (process, now) = (channel.to, Instant::now());
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
        // Noted first, because the attempt may fail at once.
        self.reconnecting.lock().begin(process, lost_at);
        let sent = self.after_loss.read().iter().filter(|send_again| send_again(process)).count();
        if sent == 0 {
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
            // If more than the link has ended, the owner knows why.
            let reason = match self.survivor(&route, incarnation).await {
                Ok(Some(_)) | Err(_) => reason,
                Ok(None) => {
                    let query = Query::IncarnationEnd { actor: route.actor, incarnation };
                    self.query::<ExitReason>(&route.owner, query).await.unwrap_or(reason)
                }
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

//! The processes of entities, in the process that owns them.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use actix::{Actor, Addr, Context};
use fiber_core::{ExitReason, Result, deadline_after};
use fiber_runtime::mesh::Alarm;
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::{Runtime, Spread};
use futures_util::future::{Either, join, join_all, select, try_join_all};
use tokio::sync::{Mutex, RwLock, mpsc, watch};

use super::coordinator::{Coordination, Coordinator, Member, Process, Stop, With};
use super::inspection::Owned;
use super::keeper::Keeper;
use super::wire::KeeperId;
use crate::manager::AsyncManager;
use crate::names;
use crate::remote::RemoteAddr;

/// How long a process without keys lives on, for messages of those who have sent them before they
/// knew.
const LINGER: Duration = Duration::from_millis(500);

/// The pause before another start is tried in place of one that has failed.
const RETRY: Duration = Duration::from_secs(1);

/// Starts a process of entities.
pub(super) type Starter<A> =
    Box<dyn Fn(RemoteAddr<Coordinator>, KeeperId) -> Reply<AsyncManager<Keeper<A>>> + Send + Sync>;

/// See the module's documentation.
pub(super) struct Owner<A: Actor<Context = Context<A>>> {
    pub(super) runtime: &'static Runtime,
    pub(super) name: Arc<str>,
    pub(super) local: Addr<Coordinator>,
    pub(super) coordinator: RemoteAddr<Coordinator>,
    pub(super) start: Starter<A>,
    pub(super) spread: Option<Arc<Spread>>,
    pub(super) members: Mutex<Members<A>>,
    /// Whether the entities have been stopped.
    pub(super) is_over: watch::Sender<bool>,
    /// Held to read while processes that have got SIGTERM end.
    pub(super) ending: RwLock<()>,
    pub(super) stats: Arc<Owned>,
    /// The time that busy entities get to end when their process stops.
    pub(super) patience: Duration,
}

/// A process, and what controls it.
type Managed<A> = (KeeperId, AsyncManager<Keeper<A>>);

/// The processes that there are.
pub(super) struct Members<A: Actor<Context = Context<A>>> {
    managers: BTreeMap<KeeperId, AsyncManager<Keeper<A>>>,
    /// How many there are to be. Fewer run while one is replaced.
    wanted: usize,
    /// The processes whose successors start.
    replaced: BTreeSet<KeeperId>,
    last: u32,
}

impl<A: Actor<Context = Context<A>>> Default for Members<A> {
    fn default() -> Members<A> {
        Members { managers: BTreeMap::new(), wanted: 0, replaced: BTreeSet::new(), last: 0 }
    }
}

impl<A: Actor<Context = Context<A>>> Members<A> {
    /// Removes these processes, and returns the ones that it had.
    fn take(&mut self, ids: &[KeeperId]) -> Vec<Managed<A>> {
        ids.iter().filter_map(|id| self.managers.remove_entry(id)).collect()
    }

    /// Returns how many processes there are beside these.
    fn beside(&self, ids: &[KeeperId]) -> usize {
        self.managers.keys().filter(|id| !ids.contains(id)).count()
    }
}

impl<A: Actor<Context = Context<A>>> Owner<A> {
    /// Starts or stops processes until there are so many. Their keys move.
    ///
    /// # Errors
    /// A process can't be started. Those that were there go on.
    pub(super) async fn scale(self: &Arc<Self>, count: usize) -> Result<()> {
        let mut members = self.members.lock().await;
        if *self.is_over.borrow() {
            return Ok(());
        }
        if let Some(spread) = &self.spread {
            spread.resize(count);
        }
        let missing = count.saturating_sub(members.managers.len());
        let started = self.start_more(&mut members, missing).await?;
        self.add(&mut members, started);
        members.wanted = count;
        let leaving: Vec<_> = members.managers.keys().skip(count).copied().collect();
        let leaving = members.take(&leaving);
        self.announce(&members, None).await;
        self.dismiss(leaving, deadline_after(self.patience), LINGER).await;
        Ok(())
    }

    /// Starts so many processes. They have no keys yet.
    fn start_more(
        &self,
        members: &mut Members<A>,
        count: usize,
    ) -> impl Future<Output = Result<Vec<Managed<A>>>> + use<A> {
        let ids: Vec<_> = (1..=count as u32).map(|more| KeeperId(members.last + more)).collect();
        members.last += count as u32;
        let starting = ids.iter().map(|id| (self.start)(self.coordinator.clone(), *id));
        let starting = try_join_all(starting);
        async move { Ok(ids.into_iter().zip(starting.await?).collect()) }
    }

    fn add(self: &Arc<Self>, members: &mut Members<A>, started: Vec<Managed<A>>) {
        for (id, manager) in started {
            self.watch(id, &manager);
            members.managers.insert(id, manager);
        }
    }

    /// Replaces processes that have got SIGTERM. Their keys move to the others at once, or to the
    /// new ones if there are no others. New ones may take longer to start than these live, and
    /// these longer to end than the new ones to start: neither waits for the other.
    async fn replace(self: &Arc<Self>, ids: &[KeeperId]) {
        let mut members = self.members.lock().await;
        let missing = members.managers.len() - members.beside(ids);
        if missing == 0 {
            return;
        }
        members.replaced.extend(ids);
        let starting = self.start_more(&mut members, missing);
        drop(members);
        let replaced = async {
            let started = self.started(starting, missing).await;
            self.move_off(ids, started).await;
        };
        join(self.move_off(ids, Vec::new()), replaced).await;
        self.members.lock().await.replaced.retain(|id| !ids.contains(id));
    }

    /// Returns the processes that start, as soon as all have; none once the entities have ended.
    async fn started(
        &self,
        starting: impl Future<Output = Result<Vec<Managed<A>>>>,
        count: usize,
    ) -> Vec<Managed<A>> {
        let trying = async {
            let mut outcome = starting.await;
            loop {
                match outcome {
                    Ok(started) => return started,
                    Err(_) if self.runtime.is_exiting() => return Vec::new(),
                    Err(error) => tracing::error!(
                        "nothing replaces a process that has got SIGTERM, for now: {error}"
                    ),
                }
                let _ = Alarm::after(self.runtime.mesh(), RETRY).await;
                let again = self.start_more(&mut *self.members.lock().await, count);
                outcome = again.await;
            }
        };
        let mut is_over = self.is_over.subscribe();
        // Processes that are dropped while they start end.
        match select(pin!(trying), pin!(is_over.wait_for(|is_over| *is_over))).await {
            Either::Left((started, _)) => started,
            Either::Right(_) => Vec::new(),
        }
    }

    /// Adds the processes that have started, as far as they are wanted. Moves the keys of those
    /// that leave to all others, and ends these. They stay as long as there are no others.
    async fn move_off(self: &Arc<Self>, ids: &[KeeperId], mut started: Vec<Managed<A>>) {
        let mut members = self.members.lock().await;
        if *self.is_over.borrow() {
            return;
        }
        // The number may have changed meanwhile.
        started.truncate(members.wanted.saturating_sub(members.beside(ids)));
        let has_more = !started.is_empty();
        self.add(&mut members, started);
        if members.beside(ids) == 0 {
            return;
        }
        let leaving = members.take(ids);
        if leaving.is_empty() && !has_more {
            return;
        }
        let limit = deadline_after(self.runtime.config().grace);
        self.hand_over(&members, &leaving, limit).await;
        let _ending = self.ending.read().await;
        drop(members);
        self.dismiss(leaving, limit, LINGER).await;
    }

    /// Saves all entities, and ends their processes and the coordinator.
    pub(super) async fn stop(self: &Arc<Self>) {
        let mut members = self.members.lock().await;
        if self.is_over.send_replace(true) {
            return;
        }
        members.wanted = 0;
        let leaving: Vec<_> = std::mem::take(&mut members.managers).into_iter().collect();
        self.announce(&members, Some(ExitReason::Shutdown)).await;
        self.dismiss(leaving, deadline_after(self.patience), Duration::ZERO).await;
        drop(self.ending.write().await);
        // The name is free before the caller learns of the end.
        let coordinator = &self.coordinator.untyped;
        let _ = names::leave(coordinator, names::key(&self.name)).await;
        let _ = self.local.send(Stop).await;
        // Nothing of an exported actor is left once its inbox is closed.
        if let Some(inbox) = self.runtime.registry().inbox(coordinator.target.actor) {
            inbox.close(&ExitReason::Shutdown);
        }
    }

    /// Kills the processes.
    pub(super) async fn kill(&self) {
        self.members.lock().await.managers.values().for_each(AsyncManager::kill_process);
    }

    /// Returns how many processes there are, or are about to be in place of others.
    pub(super) async fn count(&self) -> usize {
        self.members.lock().await.wanted
    }

    /// Moves the keys of the processes that leave to the members. A leaving process that still has
    /// keys at the limit is stopped, which frees them: an entity may block its thread.
    async fn hand_over(&self, members: &Members<A>, leaving: &[Managed<A>], limit: Instant) {
        let announced = pin!(self.announce(members, None));
        if let Either::Right((_, announced)) = select(announced, self.until(limit)).await {
            // It has ended for good, so that nothing waits for its next start.
            let stopped = join_all(leaving.iter().map(|(_, manager)| manager.stop()));
            let _ = join(stopped, announced).await;
        }
    }

    fn until(&self, limit: Instant) -> Alarm {
        Alarm::after(self.runtime.mesh(), limit.saturating_duration_since(Instant::now()))
    }

    /// Lets these processes keep the keys.
    async fn announce(&self, members: &Members<A>, end: Option<ExitReason>) {
        let member = |(id, manager): (&KeeperId, &AsyncManager<Keeper<A>>)| {
            let addr = manager.addr();
            let change = addr.clone().resend().recipient();
            let process = Process { change, lives: addr.recipient() };
            Member { id: *id, addr: addr.untyped, process }
        };
        let members: Vec<_> = members.managers.iter().map(member).collect();
        self.stats.set_processes(members.len());
        // It is there until `stop`.
        let change = move |state: Rc<Coordination>| async move { state.change(members, end).await };
        let _ = self.local.send(With(change)).await;
    }

    /// Lets the coordinator know that a process has ended for good.
    async fn gone(&self, id: KeeperId) {
        let gone = move |state: Rc<Coordination>| async move { state.gone(id).await };
        let _ = self.local.send(With(gone)).await;
    }

    /// Ends processes that have no keys any more, when their last entities have ended, or at the
    /// limit. Each process lives on for `linger`.
    async fn dismiss(&self, leaving: Vec<Managed<A>>, limit: Instant, linger: Duration) {
        let ends = leaving.into_iter().map(|(id, manager)| async move {
            let vacated = move |state: Rc<Coordination>| async move { state.vacated(id).await };
            let vacated = self.local.send(With(vacated));
            let _ = select(pin!(vacated), self.until(limit)).await;
            if !linger.is_zero() {
                // It refuses the messages that are on their way to it.
                let _ = Alarm::after(self.runtime.mesh(), linger).await;
            }
            let _ = manager.stop().await;
            self.gone(id).await;
        });
        join_all(ends).await;
    }

    /// Takes the keys from a process that has ended for good.
    fn watch(self: &Arc<Self>, id: KeeperId, manager: &AsyncManager<Keeper<A>>) {
        let (owner, end) = (Arc::downgrade(self), manager.join());
        drop(fiber_core::spawn_local(async move {
            let reason = end.await;
            let Some(owner) = Weak::upgrade(&owner) else { return };
            let mut members = owner.members.lock().await;
            if members.managers.remove(&id).is_some() {
                if !members.replaced.contains(&id) {
                    members.wanted = members.wanted.saturating_sub(1);
                }
                let reason = reason.unwrap_or(ExitReason::Shutdown);
                tracing::error!("process `{}-{}` has ended for good: {reason}", owner.name, id.0);
                owner.announce(&members, Some(reason)).await;
                owner.gone(id).await;
            }
        }));
    }
}

/// Replaces processes that have got SIGTERM, as long as there are entities.
pub(super) async fn replace_leaving<A: Actor<Context = Context<A>>>(
    owner: Weak<Owner<A>>,
    mut leaving: mpsc::UnboundedReceiver<KeeperId>,
) {
    let mut ids = Vec::new();
    // The processes of one machine get the signal together.
    while leaving.recv_many(&mut ids, usize::MAX).await > 0 {
        let Some(owner) = owner.upgrade() else { return };
        let ids = std::mem::take(&mut ids);
        drop(fiber_core::spawn_local(async move { owner.replace(&ids).await }));
    }
}

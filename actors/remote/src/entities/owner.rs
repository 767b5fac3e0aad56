//! The processes of entities, in the process that owns them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix::{Actor, Addr, Context};
use fiber_core::{ExitReason, Result};
use fiber_runtime::mesh::Alarm;
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::{Runtime, Spread};
use futures_util::future::{join_all, select, try_join_all};
use tokio::sync::{Mutex, RwLock, mpsc};

use super::coordinator::{Coordinator, Gone, Member, Process, SetMembers, Stop, Vacated};
use super::inspection::Owned;
use super::keeper::Keeper;
use super::wire::KeeperId;
use crate::manager::AsyncManager;
use crate::names;
use crate::remote::RemoteAddr;

/// How long a process without keys lives on, for messages of those who have sent them before they
/// knew.
const LINGER: Duration = Duration::from_millis(500);

/// The pause before another process is tried to be started in place of the last one.
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
    /// Held to read while processes that have got SIGTERM end.
    pub(super) ending: RwLock<()>,
    pub(super) stats: Arc<Owned>,
    /// The time that busy entities get to end when their process stops.
    pub(super) patience: Duration,
}

/// The processes that there are.
pub(super) struct Members<A: Actor<Context = Context<A>>> {
    managers: BTreeMap<KeeperId, AsyncManager<Keeper<A>>>,
    last: u32,
    is_over: bool,
}

impl<A: Actor<Context = Context<A>>> Default for Members<A> {
    fn default() -> Members<A> {
        Members { managers: BTreeMap::new(), last: 0, is_over: false }
    }
}

impl<A: Actor<Context = Context<A>>> Owner<A> {
    /// Starts or stops processes until there are so many. Their keys move.
    ///
    /// # Errors
    /// A process can't be started. Those that were there go on.
    pub(super) async fn scale(self: &Arc<Self>, count: usize) -> Result<()> {
        let mut members = self.members.lock().await;
        if members.is_over {
            return Ok(());
        }
        if let Some(spread) = &self.spread {
            spread.resize(count);
        }
        self.fill(&mut members, count).await?;
        let leaving: Vec<_> = members.managers.keys().skip(count).copied().collect();
        let leaving: Vec<_> =
            leaving.into_iter().filter_map(|id| members.managers.remove_entry(&id)).collect();
        self.announce(&members, None).await;
        self.dismiss(leaving, self.patience, LINGER).await;
        Ok(())
    }

    /// Starts processes until there are so many.
    async fn fill(self: &Arc<Self>, members: &mut Members<A>, count: usize) -> Result<()> {
        let missing = count.saturating_sub(members.managers.len());
        let ids: Vec<_> = (1..=missing as u32).map(|more| KeeperId(members.last + more)).collect();
        members.last += missing as u32;
        let starting = ids.iter().map(|id| (self.start)(self.coordinator.clone(), *id));
        let started = try_join_all(starting).await?;
        for (id, manager) in ids.into_iter().zip(started) {
            self.watch(id, &manager);
            members.managers.insert(id, manager);
        }
        Ok(())
    }

    /// Replaces processes that have got SIGTERM: their keys move to the others, and then to new ones.
    /// Returns whether it is done: the last process waits for a new one.
    async fn replace(self: &Arc<Self>, ids: &[KeeperId]) -> bool {
        let mut members = self.members.lock().await;
        let count = members.managers.len();
        let leaving: Vec<_> =
            ids.iter().filter_map(|id| members.managers.remove_entry(id)).collect();
        if leaving.is_empty() {
            return true;
        }
        if !members.managers.is_empty() {
            // New ones may take longer to start than these live.
            self.announce(&members, None).await;
        }
        if let Err(error) = self.fill(&mut members, count).await
            && !self.runtime.is_exiting()
        {
            tracing::error!("nothing replaces a process that has got SIGTERM: {error}");
        }
        if members.managers.is_empty() {
            members.managers.extend(leaving);
            return self.runtime.is_exiting();
        }
        self.announce(&members, None).await;
        let _ending = self.ending.read().await;
        drop(members);
        self.dismiss(leaving, self.runtime.config().grace, LINGER).await;
        true
    }

    /// Saves all entities, and ends their processes and the coordinator.
    pub(super) async fn stop(self: &Arc<Self>) {
        let mut members = self.members.lock().await;
        if std::mem::replace(&mut members.is_over, true) {
            return;
        }
        let leaving: Vec<_> = std::mem::take(&mut members.managers).into_iter().collect();
        self.announce(&members, Some(ExitReason::Shutdown)).await;
        self.dismiss(leaving, self.patience, Duration::ZERO).await;
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

    pub(super) async fn count(&self) -> usize {
        self.members.lock().await.managers.len()
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
        let _ = self.local.send(SetMembers { members, end }).await;
    }

    /// Ends processes that have no keys any more, when their last entities have ended.
    /// Busy ones get `patience`, and each process lives on for `linger`.
    async fn dismiss(
        &self,
        leaving: Vec<(KeeperId, AsyncManager<Keeper<A>>)>,
        patience: Duration,
        linger: Duration,
    ) {
        let ends = leaving.into_iter().map(|(id, manager)| async move {
            let vacated = self.local.send(Vacated(id));
            let limit = pin!(Alarm::after(self.runtime.mesh(), patience));
            let _ = select(pin!(vacated), limit).await;
            if !linger.is_zero() {
                // It refuses the messages that are on their way to it.
                let _ = Alarm::after(self.runtime.mesh(), linger).await;
            }
            let _ = manager.stop().await;
            let _ = self.local.send(Gone(id)).await;
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
                let reason = reason.unwrap_or(ExitReason::Shutdown);
                tracing::error!("process `{}-{}` has ended for good: {reason}", owner.name, id.0);
                owner.announce(&members, Some(reason)).await;
                let _ = owner.local.send(Gone(id)).await;
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
        drop(fiber_core::spawn_local(async move {
            while !owner.replace(&ids).await {
                let _ = Alarm::after(owner.runtime.mesh(), RETRY).await;
            }
        }));
    }
}

//! The number of workers: by request, or with the number of tasks.

use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use fiber_core::Result;

use super::worker_start::WorkerStart;
use super::{Controller, WorkerNumber, worker_name};
use fiber_supervisor::supervisor::{ChildSpec, Shutdown};

/// How often a scaling pool looks at its tasks, and after how many looks in a row at which fewer
/// workers were enough it removes workers.
pub(super) const SCALE_INTERVAL: Duration = Duration::from_millis(100);
const LOOKS_BEFORE_SHRINKING: u32 = 20;

impl Controller {
    /// Publishes the number of workers that callers wait for.
    pub(super) fn publish_wanted(&self) {
        if let Some(pool) = self.pool.upgrade() {
            // At least one: a pool without workers is not ready.
            let wanted = self.wanted.saturating_sub(self.missing.excused()).max(1);
            pool.readiness.send_modify(|readiness| readiness.wanted = wanted);
        }
    }

    /// Adds or removes workers until there are as many as wanted.
    pub(super) fn adjust(&mut self, context: &mut Context<Controller>) {
        let (Some(supervisor), Some(pool)) = (self.supervisor(), self.pool.upgrade()) else {
            return;
        };
        let mut added = Vec::new();
        while self.children.len() < self.wanted {
            let number = self.next;
            self.next += 1;
            self.children.insert(number, ());
            let start = WorkerStart::new(self.runtime, number, &pool, self.spec.clone());
            let spec = ChildSpec::new(worker_name(number), start)
                .shutdown(Shutdown::After(self.runtime.config().shutdown_timeout));
            added.push(supervisor.add_child_in_background(spec));
        }
        if !added.is_empty() {
            // One future for all: an event polls each future of an actor.
            let all = async move {
                for added in added {
                    added.await?;
                }
                Ok(())
            };
            context.spawn(all.into_actor(self).map(|all, controller, context| {
                controller.children_added(all, context);
            }));
        }
        // Missing workers go first.
        while self.children.len() > self.wanted
            && let Some(number) = self.missing.pop()
        {
            self.children.remove(&number);
            self.stop_worker(number);
        }
        let superfluous = self.children.len().saturating_sub(self.wanted);
        if superfluous > 0 {
            let drained = pool
                .with_scheduler(|scheduler, effects| scheduler.retire_some(superfluous, effects));
            for worker in &drained {
                self.children.remove(&worker.number);
            }
            pool.readiness.send_modify(|readiness| {
                readiness.ready = readiness.ready.saturating_sub(drained.len());
            });
        }
    }

    fn children_added(&mut self, added: Result<()>, context: &mut Context<Controller>) {
        if let (Err(error), Some(_)) = (added, self.supervisor()) {
            self.fail(error.to_string(), context);
        }
    }

    /// Stops a worker, which may take as long as its tasks.
    pub(super) fn stop_worker(&self, number: WorkerNumber) {
        if let Some(supervisor) = self.supervisor() {
            let child = worker_name(number);
            // Not a future of this actor: there may be many, and an event polls each of those.
            fiber_core::spawn_local(async move { drop(supervisor.stop_child(&child).await) });
        }
    }

    /// Sets the number of workers that the open tasks need.
    pub(super) fn scale_with_tasks(&mut self, context: &mut Context<Controller>) {
        let (Some(_), Some(pool)) = (self.supervisor(), self.pool.upgrade()) else {
            return;
        };
        let open = pool.scheduler.lock().open();
        let needed =
            usize::try_from(open.div_ceil(self.spec.worker_main.threads)).unwrap_or(usize::MAX);
        let needed = needed.clamp(*self.spec.bounds.start(), *self.spec.bounds.end());
        self.looks_below = if needed < self.wanted { self.looks_below + 1 } else { 0 };
        if needed > self.wanted || self.looks_below > LOOKS_BEFORE_SHRINKING {
            self.looks_below = 0;
            self.scale(needed, context);
        }
    }

    pub(super) fn scale(&mut self, wanted: usize, context: &mut Context<Controller>) {
        self.wanted = wanted;
        self.publish_wanted();
        self.adjust(context);
    }
}

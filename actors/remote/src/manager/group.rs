//! Groups of managed actors that share a process.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use actix::{Actor, Context};
use fiber_core::Result;
use parking_lot::Mutex;

use super::ManagerInner;
use super::builder::ManagerBuilder;
use super::process::ActorMain;
use super::start::ManagerSpec;
use fiber_runtime::runtime::Runtime;
use fiber_supervisor::supervisor::Restart;

/// The groups of this process, by their names.
#[derive(Default)]
struct Groups(Mutex<HashMap<String, Slot>>);

/// The manager of a group's process. It is locked while that starts.
type Slot = Arc<tokio::sync::Mutex<Weak<ManagerInner>>>;

/// The actor for which the process of a group is started. It has no messages.
struct Room;

impl Actor for Room {
    type Context = Context<Room>;
}

/// Returns the manager of a group's process, which starts with the options of `first` if there is
/// none.
///
/// # Errors
/// It can't be started.
pub(super) async fn process_of(
    runtime: &'static Runtime,
    group: &str,
    first: &ManagerSpec,
) -> Result<Arc<ManagerInner>> {
    let slot = {
        let mut groups = runtime.part::<Groups>().0.lock();
        if !groups.contains_key(group) {
            let is_used = |slot: &Slot| {
                let manager = slot.try_lock();
                Arc::strong_count(slot) > 1
                    || manager.is_ok_and(|manager| manager.strong_count() > 0)
            };
            groups.retain(|_, slot| is_used(slot));
        }
        Arc::clone(groups.entry(group.into()).or_default())
    };
    let mut manager = slot.lock().await;
    if let Some(manager) = manager.upgrade().filter(|manager| !manager.actor.owned.is_gone()) {
        return Ok(manager);
    }
    let room = ManagerBuilder::new().name(group).prepare(|| Room, &())?.1;
    let main = ActorMain { limits: first.main.limits.clone(), ..room.main };
    let room = ManagerSpec {
        main,
        meta: first.meta,
        output: first.output.clone(),
        host: first.host.clone(),
        restart: Restart::Permanent,
        ..room
    };
    let (_, started) = room.start_process(runtime).await?;
    *manager = Arc::downgrade(&started);
    Ok(started)
}

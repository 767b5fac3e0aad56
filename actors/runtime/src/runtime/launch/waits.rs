//! A word for a person about children that wait for room.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use crate::runtime::Runtime;

/// How long some wait before that is said.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// The children that wait for room now.
#[derive(Default)]
struct Waits(Mutex<Count>);

#[derive(Default)]
struct Count {
    waiting: usize,
    /// How often some have begun to wait when none did.
    turn: u64,
    /// The last reason that was said. A machine that is tried in vain does not repeat it.
    said: String,
}

/// A child that waits for room, until this is dropped.
pub(super) struct WaitsForRoom(&'static Waits);

impl WaitsForRoom {
    pub(super) fn new(runtime: &'static Runtime) -> WaitsForRoom {
        let waits = runtime.part::<Waits>();
        let mut count = waits.0.lock();
        count.waiting += 1;
        if count.waiting == 1 {
            count.turn += 1;
            let turn = count.turn;
            runtime.spawn(move || async move {
                sleep(SAID_AFTER).await;
                let mut count = waits.0.lock();
                if count.waiting > 0
                    && count.turn == turn
                    && let Some((who, reason)) = runtime.children.waiting()
                    && count.said != reason
                {
                    fiber_backends::warn(&format!("{who}: {reason}"));
                    count.said = reason;
                }
            });
        }
        WaitsForRoom(waits)
    }
}

impl Drop for WaitsForRoom {
    fn drop(&mut self) {
        self.0.0.lock().waiting -= 1;
    }
}

//! The queue of a batch system, asked for all pilots of this process at once.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, broadcast};
use tokio::time::sleep;

use super::{PilotJob, PilotSystem};
use crate::outage::Outage;

/// The pause between two questions after a change; it doubles while nothing changes. Many users ask
/// the same daemon.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));

/// The jobs of this user. It is asked for while somebody is interested.
#[derive(Debug)]
pub(super) struct Queue<S> {
    answers: broadcast::Sender<Arc<Vec<PilotJob>>>,
    look: Notify,
    is_asked: AtomicBool,
    system: PhantomData<fn() -> S>,
}

impl<S: PilotSystem> Queue<S> {
    pub(super) fn new() -> Arc<Queue<S>> {
        let (answers, _) = broadcast::channel(1);
        Arc::new(Queue {
            answers,
            look: Notify::new(),
            is_asked: AtomicBool::new(false),
            system: PhantomData,
        })
    }

    /// Returns a receiver of all answers from now on.
    pub(super) fn subscribe(self: &Arc<Self>) -> broadcast::Receiver<Arc<Vec<PilotJob>>> {
        let receiver = self.answers.subscribe();
        self.look_soon();
        if !self.is_asked.swap(true, Ordering::AcqRel) {
            fiber_core::spawn_local(Arc::clone(self).ask());
        }
        receiver
    }

    /// Shortens the pause: something has changed.
    pub(super) fn look_soon(&self) {
        self.look.notify_one();
    }

    async fn ask(self: Arc<Self>) {
        let mut last = Arc::new(Vec::new());
        let mut pause = PAUSES.0;
        let mut outage = Outage::default();
        while self.answers.receiver_count() > 0 {
            match S::jobs().await {
                Ok(jobs) => {
                    outage.end();
                    pause = if jobs == *last { (pause * 2).min(PAUSES.1) } else { PAUSES.0 };
                    last = Arc::new(jobs);
                    // Without receivers the loop ends.
                    let _ = self.answers.send(Arc::clone(&last));
                }
                // An unknown state is no new state.
                Err(error) => {
                    let title = S::WORDS.title;
                    outage.log(&format!("the states of {title}'s jobs are not known: {error}"));
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = self.look.notified() => {
                    pause = PAUSES.0;
                    // The change may take effect in a moment.
                    sleep(PAUSES.0 / 4).await;
                }
            }
        }
        self.is_asked.store(false, Ordering::Release);
    }
}

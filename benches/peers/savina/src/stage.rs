//! The actors of a program in one process, as all frameworks have them.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::programs::{Behaviour, Id, Leaf, Note, Out, Program};

/// The addresses of all actors, and the end of the program.
pub(crate) struct Stage<R> {
    pub(crate) addresses: OnceLock<Vec<R>>,
    end: Notify,
}

impl<R> Stage<R> {
    pub(crate) fn new() -> Arc<Stage<R>> {
        Arc::new(Stage { addresses: OnceLock::new(), end: Notify::new() })
    }

    /// Returns the actor of a number.
    pub(crate) fn host(self: &Arc<Self>, program: &Program, id: Id) -> Host<R> {
        Host { behaviour: program.actor(id), stage: Arc::clone(self), is_leaf: false }
    }

    /// Runs the program of which the first actor is here.
    pub(crate) async fn run(&self, start: impl FnOnce(&R)) -> Duration {
        let begun = Instant::now();
        start(&self.addresses.get().expect("all actors have started")[0]);
        self.end.notified().await;
        begun.elapsed()
    }
}

/// An actor of a program.
pub(crate) struct Host<R> {
    pub(crate) behaviour: Box<dyn Behaviour>,
    pub(crate) stage: Arc<Stage<R>>,
    /// Whether it ends after its first message.
    pub(crate) is_leaf: bool,
}

/// An address of a framework.
pub(crate) trait Address: Sized + 'static {
    fn tell(&self, note: Note);
    /// Starts an actor.
    fn start(host: Host<Self>) -> Self;
}

impl<R: Address> Host<R> {
    pub(crate) fn receive(&mut self, note: Note) {
        self.behaviour.receive(note, &mut Outgoing(&self.stage));
    }
}

struct Outgoing<'a, R>(&'a Arc<Stage<R>>);

impl<R: Address> Out for Outgoing<'_, R> {
    fn tell(&mut self, to: Id, note: Note) {
        self.0.addresses.get().expect("all actors have started")[to as usize].tell(note);
    }

    fn create(&mut self, note: Note) {
        let behaviour = Box::new(Leaf);
        R::start(Host { behaviour, stage: Arc::clone(self.0), is_leaf: true }).tell(note);
    }

    fn end(&mut self) {
        self.0.end.notify_one();
    }
}

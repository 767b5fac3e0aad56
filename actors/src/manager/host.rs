//! The process that hosts a managed actor.

use std::any::{Any, type_name};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Arbiter, AsyncContext, Context};
use bytes::{Buf, Bytes};
use fiber_core::entry::{Entry, EntryRef, MethodFn};
use fiber_core::{Error, ExitReason, Function, codec, invoke, shortage};
use fiber_transport::{Link, Message};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::snapshot::{Every, SnapshotPolicy};
use crate::endpoint::{MAIN, message_limit};
use crate::mesh::Inbox;
use crate::remote::Host;
use crate::runtime::{ChildMain, ControlMessage, ParentMessage, Runtime, StartedMain};
use crate::supervisor::{ChildSpec, Lifecycle, Restart, Supervisor};
use crate::tokio_runtime::new_runtime;

/// The exit code of a process whose actor was given up.
const EXIT_GIVEN_UP: i32 = 1;
/// What the actor is called under its supervisor.
const ACTOR: &str = "actor";

/// What a process is to host.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct HostMain {
    pub(super) entry: EntryRef,
    pub(super) name: String,
    pub(super) arguments: Vec<u8>,
    pub(super) snapshot: Option<Vec<u8>>,
    pub(super) every: Every,
    pub(super) mailbox: u64,
    pub(super) intensity: (u32, Duration),
}

/// What a host tells its owner: the byte that comes first.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Note {
    /// The state follows.
    Snapshot = 0,
    /// The actor is gone; the reason follows.
    Ended = 1,
}

impl Note {
    pub(super) fn take(message: &mut Bytes) -> Option<Note> {
        match (!message.is_empty()).then(|| message.get_u8())? {
            0 => Some(Note::Snapshot),
            1 => Some(Note::Ended),
            _ => None,
        }
    }

    fn message(self, body: Vec<u8>) -> Message {
        Message { head: vec![MAIN, self as u8], body: body.into() }
    }
}

impl ChildMain for HostMain {
    fn start(self, runtime: &'static Runtime, link: Arc<dyn Link>) -> StartedMain {
        let (told, shutdown) = watch::channel(false);
        let capacity = usize::try_from(self.mailbox).unwrap_or(usize::MAX);
        let inbox = Arc::new(Inbox::new(capacity));
        runtime.registry().host(Arc::clone(&inbox));
        let receive = move |inbound| {
            if let ParentMessage::Shutdown = inbound {
                told.send_replace(true);
            }
        };
        let main = move || {
            let entry = match self.entry.resolve::<MethodFn>() {
                Ok(entry) => entry,
                Err(error) => {
                    let _ = link.send(ControlMessage::Failed(error.to_string()).message());
                    // The parent ends this process when it has read that.
                    loop {
                        std::thread::park();
                    }
                }
            };
            let mut job = HostJob { runtime, link, host_main: self, inbox, shutdown, code: 0 };
            entry.call()(&mut job, &mut (), &mut ());
            job.code
        };
        StartedMain { receive: Box::new(receive), run: Box::new(main) }
    }
}

/// The entry through which other nodes start a process for an actor.
pub(super) fn host_entry<F, Args, M, K>() -> &'static Entry<MethodFn>
where
    F: Function<Args, M>,
    F::Output: Actor<Context = Context<F::Output>>,
    Args: DeserializeOwned + 'static,
    M: 'static,
    K: SnapshotPolicy<F::Output>,
{
    Maker::<F, Args, M, K>::ENTRY
}

struct Maker<F, Args, M, K>(PhantomData<(F, Args, M, K)>);

impl<F, Args, M, K> Maker<F, Args, M, K>
where
    F: Function<Args, M>,
    F::Output: Actor<Context = Context<F::Output>>,
    Args: DeserializeOwned + 'static,
    M: 'static,
    K: SnapshotPolicy<F::Output>,
{
    const ENTRY: &'static Entry<MethodFn> = &Entry::new(type_name::<F>, Self::run);

    fn run(job: &mut dyn Any, _: &mut dyn Any, _: &mut dyn Any) {
        let job = job.downcast_mut::<HostJob>().expect("this entry is called with nothing else");
        let latest = Arc::new(Mutex::new(job.host_main.snapshot.take()));
        let (stops, stopped) = watch::channel(false);
        let hosting = Arc::new(Hosting::<K> {
            stops,
            host: Host::new(Arc::clone(&job.inbox), message_limit(job.runtime.config())),
            link: Arc::clone(&job.link),
            latest: Arc::clone(&latest),
            every: job.host_main.every,
            keep: PhantomData,
        });
        let arguments = std::mem::take(&mut job.host_main.arguments);
        let factory = move || {
            let args = codec::decode(&arguments)
                .unwrap_or_else(|error: Error| panic!("its arguments: {error}"));
            let mut actor = invoke::<F, Args, M>(args);
            if let Some(state) = &*latest.lock()
                && let Err(error) = K::restore(&mut actor, state)
            {
                panic!("its last snapshot: {error}");
            }
            actor
        };
        let spec = |home| {
            ChildSpec::actor_with(ACTOR, factory, hosting).restart(Restart::Transient).on(home)
        };
        job.run(spec, stopped);
    }
}

/// A process's main thread at work.
struct HostJob {
    runtime: &'static Runtime,
    link: Arc<dyn Link>,
    host_main: HostMain,
    inbox: Arc<Inbox>,
    shutdown: watch::Receiver<bool>,
    code: i32,
}

impl HostJob {
    fn run(
        &mut self,
        spec: impl FnOnce(actix::ArbiterHandle) -> ChildSpec,
        mut stopped: watch::Receiver<bool>,
    ) {
        let runtime = match new_runtime() {
            Ok(runtime) => runtime,
            Err(error) => {
                let problem = format!("there is no runtime for it: {}", shortage::explain(&error));
                let _ = self.link.send(ControlMessage::Failed(problem).message());
                // The parent ends this process when it has read that.
                loop {
                    std::thread::park();
                }
            }
        };
        actix_rt::System::with_tokio_rt(|| runtime).block_on(async {
            let address = self.runtime.address_now().map(ToString::to_string);
            let (restarts, period) = self.host_main.intensity;
            let home = Arbiter::current();
            let supervisor = Supervisor::builder(&*self.host_main.name)
                .intensity(restarts, period)
                .child(spec(home.clone()));
            let supervisor = match address {
                Ok(address) => {
                    supervisor.start_on(&home).await.map(|supervisor| (supervisor, address))
                }
                Err(error) => Err(error),
            };
            let (supervisor, address) = match supervisor {
                Ok(started) => started,
                Err(error) => {
                    let problem = if let Error::Start { problem, .. } = error {
                        problem
                    } else {
                        error.to_string()
                    };
                    let _ = self.link.send(ControlMessage::Failed(problem).message());
                    // The parent ends this process when it has read that.
                    return std::future::pending().await;
                }
            };
            let _ = self.link.send(ControlMessage::Ready { address: Some(address) }.message());
            let reason = tokio::select! {
                reason = supervisor.join() => reason.unwrap_or(ExitReason::Shutdown),
                // Its supervisor would wait for more children.
                Ok(_) = stopped.wait_for(|stopped| *stopped) => ExitReason::Normal,
                _ = self.shutdown.wait_for(|told| *told) => {
                    let _ = supervisor.stop().await;
                    ExitReason::Shutdown
                }
            };
            self.inbox.close(&reason);
            self.code = if matches!(reason, ExitReason::Normal | ExitReason::Shutdown) {
                0
            } else {
                EXIT_GIVEN_UP
            };
            let reason = codec::encode(&reason).expect("reasons are made of what serialises");
            let _ = self.link.send(Note::Ended.message(reason));
            let _ = self.shutdown.wait_for(|told| *told).await;
        });
    }
}

/// Takes part in the life of a hosted actor: brings it its messages, and keeps its state.
struct Hosting<K> {
    /// Told when the actor has stopped by itself.
    stops: watch::Sender<bool>,
    host: Host,
    link: Arc<dyn Link>,
    latest: Arc<Mutex<Option<Vec<u8>>>>,
    every: Every,
    keep: PhantomData<fn() -> K>,
}

impl<A, K> Lifecycle<A> for Hosting<K>
where
    A: Actor<Context = Context<A>>,
    K: SnapshotPolicy<A>,
{
    fn starting(&self, context: &mut Context<A>) {
        let (link, latest) = (Arc::clone(&self.link), Arc::clone(&self.latest));
        let keep = move |actor: &A| match K::take(actor) {
            Ok(Some(state)) => {
                *latest.lock() = Some(state.clone());
                let _ = link.send(Note::Snapshot.message(state));
            }
            Ok(None) => {}
            Err(error) => tracing::error!("a snapshot could not be taken: {error}"),
        };
        if let Some(time) = self.every.time {
            let keep = keep.clone();
            context.run_interval(time, move |actor, _| keep(actor));
        }
        let (messages, mut handled) = (self.every.messages, 0);
        context.spawn(self.host.inbox_pump(move |actor: &mut A| {
            handled += 1;
            if messages == Some(handled) {
                handled = 0;
                keep(actor);
            }
        }));
    }

    fn ended(&self, reason: &ExitReason) {
        self.host.ended(reason);
        if *reason == ExitReason::Normal {
            self.stops.send_replace(true);
        }
    }
}

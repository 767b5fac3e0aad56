//! The process of a managed actor.
//!
//! Its main thread runs an actix system with a supervisor, whose only child is the actor.

use std::any::{Any, type_name};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::{Actor, Arbiter, ArbiterHandle, Context};
use fiber_core::{Error, ExitReason, shortage, wait_for_kill};
use fiber_transport::Link;
use fiber_values::codec::EncodedValue;
use fiber_values::entry::{Entry, EntryRef, MethodFn};
use fiber_values::{Function, invoke};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::lifecycle::ManagedLifecycle;
use super::snapshot::{SnapshotInterval, SnapshotPolicy};
use super::wire::ActorMessage;
use crate::remote::{Holding, Host, Hosted, Target, UntypedAddr};
use fiber_runtime::mesh::{ActorId, Full, Inbox, ProcessRef};
use fiber_runtime::runtime::{ChildMain, ControlMessage, ParentMessage, Runtime, StartedMain};
use fiber_runtime::tokio_runtime::new_runtime;
use fiber_supervisor::supervisor::{
    Backoff, ChildSpec, Restart, Shutdown, Supervisor, SupervisorRef,
};

/// The exit code of a process whose actor needed more restarts than are allowed.
const EXIT_GIVEN_UP: i32 = 1;
/// The actor's name under its supervisor.
const ACTOR: &str = "actor";

/// The main function of a managed actor's process, with its arguments.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ActorMain {
    pub(super) entry: EntryRef,
    pub(super) name: String,
    /// The process that owns the actor, and its number there. Its owner sets it.
    pub(super) owned: Option<(ProcessRef, ActorId)>,
    pub(super) arguments: EncodedValue,
    /// The state from which the actor continues after a restart of the process.
    pub(super) snapshot: Option<EncodedValue>,
    /// The folder of the journal that has the snapshots of a durable actor.
    pub(super) journal: Option<PathBuf>,
    pub(super) interval: SnapshotInterval,
    pub(super) mailbox: u64,
    pub(super) full: Full,
    /// Whether the actor is restarted in its process after a failure.
    pub(super) restarts: bool,
    pub(super) intensity: (u32, Duration),
    pub(super) backoff: Backoff,
}

impl ActorMain {
    /// Returns how many places the mailbox has for the messages of each process, if these wait for
    /// one.
    pub(super) fn places(&self) -> Option<NonZeroU32> {
        let places = NonZeroU32::new(u32::try_from(self.mailbox).ok()?);
        places.filter(|_| self.full == Full::Wait)
    }
}

impl ChildMain for ActorMain {
    fn start(self, runtime: &'static Runtime, link: Arc<dyn Link>) -> StartedMain {
        let (request_stop, stop_request) = watch::channel(false);
        let capacity = usize::try_from(self.mailbox).unwrap_or(usize::MAX);
        let inbox = Arc::new(Inbox::new(capacity, self.full));
        if let Some((home, actor)) = self.owned.clone() {
            runtime.registry().host(Arc::clone(&inbox), (home.id, actor));
            let target = Target {
                session: runtime.session(),
                name: self.name.as_str().into(),
                home,
                actor,
                owned: true,
                places: self.places(),
            };
            let path = format!("{}/{ACTOR}", self.name);
            runtime.part::<Hosted>().set(path.into(), UntypedAddr::new(target));
        }
        let held: Holding = self.interval.before_answers.then(Arc::default);
        let holding = held.clone();
        let receive = move |message| match message {
            ParentMessage::Shutdown => drop(request_stop.send_replace(true)),
            // The owner keeps the snapshot that it was sent.
            ParentMessage::Data(_) => holding.iter().for_each(|held| held.kept()),
        };
        let run = move || {
            let mut process = ActorProcess {
                runtime,
                link,
                main: self,
                inbox,
                stop_request,
                held,
                is_ready: Arc::default(),
                exit_code: 0,
            };
            match process.main.entry.resolve::<MethodFn>() {
                Ok(entry) => entry.call()(&mut process, &mut (), &mut ()),
                Err(error) => {
                    process.report_failure(error.to_string());
                    wait_for_kill();
                }
            }
            process.exit_code
        };
        StartedMain { receive: Box::new(receive), run: Box::new(run) }
    }
}

/// Returns the entry through which a process starts the actor that `F` makes.
pub(super) fn actor_entry<F, Args, M, P>() -> &'static Entry<MethodFn>
where
    F: Function<Args, M>,
    F::Output: Actor<Context = Context<F::Output>>,
    Args: DeserializeOwned + 'static,
    M: 'static,
    P: SnapshotPolicy<F::Output>,
{
    ActorEntry::<F, Args, M, P>::ENTRY
}

struct ActorEntry<F, Args, M, P>(PhantomData<(F, Args, M, P)>);

impl<F, Args, M, P> ActorEntry<F, Args, M, P>
where
    F: Function<Args, M>,
    F::Output: Actor<Context = Context<F::Output>>,
    Args: DeserializeOwned + 'static,
    M: 'static,
    P: SnapshotPolicy<F::Output>,
{
    const ENTRY: &'static Entry<MethodFn> = &Entry::new(type_name::<F>, Self::run);

    #[allow(unsafe_code)]
    fn run(process: &mut dyn Any, _: &mut dyn Any, _: &mut dyn Any) {
        let process = process
            .downcast_mut::<ActorProcess>()
            .expect("a managed actor's entry gets its process");
        let snapshot = Arc::new(Mutex::new(process.main.snapshot.take()));
        let (set_ended, ended) = watch::channel(None);
        let lifecycle = Arc::new(ManagedLifecycle::<P> {
            host: Host::new(process.runtime, Arc::clone(&process.inbox), process.held.clone()),
            held: process.held.clone(),
            link: Arc::clone(&process.link),
            snapshot: Arc::clone(&snapshot),
            interval: process.main.interval,
            restarts: process.main.restarts,
            has_failed: AtomicBool::new(false),
            is_ready: Arc::clone(&process.is_ready),
            ended: set_ended,
            policy: PhantomData,
        });
        let arguments = std::mem::take(&mut process.main.arguments);
        let journal = process.main.journal.take();
        let factory = move || {
            let args =
                arguments.decode().unwrap_or_else(|error: Error| panic!("its arguments: {error}"));
            // SAFETY: the entry is made from a value of F.
            let mut actor = unsafe { invoke::<F, Args, M>(args) };
            if let Some(state) = &*snapshot.lock()
                && let Err(error) = P::restore(&mut actor, state)
            {
                panic!("its last snapshot: {}", error.recorded_at(journal.as_deref()));
            }
            actor
        };
        let restart = if process.main.restarts { Restart::Transient } else { Restart::Temporary };
        let child = |arbiter| {
            // The owner kills this process at the deadline that its builder sets.
            ChildSpec::actor_with(ACTOR, factory, lifecycle)
                .restart(restart)
                .shutdown(Shutdown::Wait)
                .on(arbiter)
        };
        process.run(child, ended);
    }
}

/// The main thread of the process.
struct ActorProcess {
    runtime: &'static Runtime,
    link: Arc<dyn Link>,
    main: ActorMain,
    inbox: Arc<Inbox>,
    /// Set when the parent asks the process to stop.
    stop_request: watch::Receiver<bool>,
    /// The answers that wait for snapshots.
    held: Holding,
    /// Whether the parent knows that the actor has started.
    is_ready: Arc<AtomicBool>,
    exit_code: i32,
}

impl ActorProcess {
    /// Runs the actor, which `child` specifies, until it has ended and the parent has received the
    /// reason. `ended` is set when the actor has ended for good by itself.
    fn run(
        &mut self,
        child: impl FnOnce(ArbiterHandle) -> ChildSpec,
        ended: watch::Receiver<Option<ExitReason>>,
    ) {
        let tokio = match new_runtime() {
            Ok(tokio) => tokio,
            Err(error) => {
                let problem = shortage::explain(&error);
                self.report_failure(format!("creating its tokio runtime failed: {problem}"));
                wait_for_kill();
            }
        };
        actix_rt::System::with_tokio_rt(|| tokio).block_on(async {
            let (supervisor, address) = match self.start(child).await {
                Ok(started) => started,
                Err(error) => {
                    // The parent kills this process when it knows of the failure.
                    self.runtime.backtraces_printed().await;
                    self.report_failure(match error {
                        Error::Start { reason, .. } => reason.start_problem(),
                        error => error.to_string(),
                    });
                    // As `wait_for_kill`, while the actix system runs on.
                    return std::future::pending().await;
                }
            };
            let _ = self.link.send(ControlMessage::Ready { address: Some(address) }.message());
            self.is_ready.store(true, Ordering::Relaxed);
            let reason = self.until_ended(&supervisor, ended).await;
            self.inbox.close(&reason);
            self.exit_code = match reason {
                ExitReason::Normal | ExitReason::Shutdown => 0,
                _ => EXIT_GIVEN_UP,
            };
            let _ = self.link.send(ActorMessage::Ended(reason).encode());
            // The parent answers with a shutdown when it has received the reason.
            let _ = self.stop_request.wait_for(|requested| *requested).await;
        });
    }

    async fn start(
        &self,
        child: impl FnOnce(ArbiterHandle) -> ChildSpec,
    ) -> Result<(SupervisorRef, String), Error> {
        let address = self.runtime.address_now()?.to_string();
        let (restarts, period) = self.main.intensity;
        let arbiter = Arbiter::current();
        let supervisor = Supervisor::builder(&*self.main.name)
            .intensity(restarts, period)
            .backoff(self.main.backoff.clone())
            // The owner announces restarts.
            .quiet()
            .child(child(arbiter.clone()))
            .start_on(&arbiter)
            .await?;
        Ok((supervisor, address))
    }

    async fn until_ended(
        &mut self,
        supervisor: &SupervisorRef,
        mut ended: watch::Receiver<Option<ExitReason>>,
    ) -> ExitReason {
        tokio::select! {
            reason = supervisor.join() => reason.unwrap_or(ExitReason::Shutdown),
            // A supervisor does not end with its last child.
            Ok(reason) = ended.wait_for(Option::is_some) => {
                reason.clone().unwrap_or(ExitReason::Normal)
            }
            _ = self.stop_request.wait_for(|requested| *requested) => {
                let _ = supervisor.stop().await;
                ExitReason::Shutdown
            }
        }
    }

    /// Reports to the parent that the process cannot start. The parent then kills it.
    fn report_failure(&self, problem: String) {
        let _ = self.link.send(ControlMessage::Failed(problem).message());
    }
}

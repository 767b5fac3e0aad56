//! How supervisors are made.

use std::sync::Arc;
use std::time::Duration;

use actix::ArbiterHandle;
use fiber_core::{Error, ExitReason, Result};
use tokio::sync::oneshot;

use super::backoff::Backoff;
use super::identity::{Identity, Life};
use super::intensity::Intensity;
use super::machine::{Options, Supervisor};
use super::nested::SupervisorStart;
use super::spec::{ChildSpec, Shutdown, check_name, check_names};
use super::start::{ChildContext, Start};
use super::strategy::Strategy;
use super::supervisor_ref::SupervisorRef;
use super::tree::{Entry, State};
use crate::reply::Reply;
use crate::runtime::Runtime;

/// Makes a [`Supervisor`].
#[derive(Debug)]
#[must_use]
pub struct SupervisorBuilder {
    name: String,
    options: Options,
    specs: Vec<ChildSpec>,
}

impl Supervisor {
    /// A supervisor of this name, one-for-one and without children unless told otherwise.
    pub fn builder(name: impl Into<String>) -> SupervisorBuilder {
        SupervisorBuilder { name: name.into(), options: Options::default(), specs: Vec::new() }
    }
}

impl ChildSpec {
    /// Another supervisor; the name counts, not the builder's. It is waited for without limit when
    /// it has to end, as it limits the time of its own children.
    ///
    /// When it is restarted, it starts with the builder's children: those that were added later are
    /// lost.
    pub fn supervisor(name: impl Into<String>, builder: SupervisorBuilder) -> ChildSpec {
        let name = name.into();
        let spec = ChildSpec::new(name, SupervisorStart::new(builder.options, builder.specs));
        spec.shutdown(Shutdown::Wait)
    }
}

impl SupervisorBuilder {
    /// Which children are restarted when one fails: [only that one](Strategy::OneForOne), by
    /// default.
    pub fn strategy(mut self, strategy: Strategy) -> SupervisorBuilder {
        self.options.strategy = strategy;
        self
    }

    /// How many restarts in which time are allowed: 3 in 5 seconds by default. One more ends the
    /// supervisor.
    ///
    /// A failure counts once, however many children are restarted for it.
    pub fn intensity(mut self, restarts: u32, period: Duration) -> SupervisorBuilder {
        self.options.intensity = Intensity { restarts, period };
        self
    }

    /// The pauses before restarts.
    pub fn backoff(mut self, backoff: Backoff) -> SupervisorBuilder {
        self.options.backoff = backoff;
        self
    }

    /// One more child, started after those before it.
    pub fn child(mut self, spec: ChildSpec) -> SupervisorBuilder {
        self.specs.push(spec);
        self
    }

    /// Starts the supervisor on fiber's own thread, and waits until all children have started.
    /// Actors among them run on another thread: see [`ChildSpec::actor`].
    ///
    /// If the reply is dropped before it is there, the supervisor ends.
    ///
    /// # Errors
    /// As [`start_on`](SupervisorBuilder::start_on), and if fiber can't work at all.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use actix::{Actor, Context, Handler, Message};
    /// use fiber::Supervisor;
    /// use fiber::supervisor::ChildSpec;
    ///
    /// struct Counter(u64);
    ///
    /// impl Actor for Counter {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// #[derive(Message)]
    /// #[rtype(result = "u64")]
    /// struct Add(u64);
    ///
    /// impl Handler<Add> for Counter {
    ///     type Result = u64;
    ///
    ///     fn handle(&mut self, Add(number): Add, _: &mut Context<Self>) -> u64 {
    ///         self.0 = self.0.checked_add(number).expect("it counts to 2^64");
    ///         self.0
    ///     }
    /// }
    ///
    /// let app = Supervisor::builder("app").child(ChildSpec::actor("counter", || Counter(0))).start().wait()?;
    /// let counter = app.child::<Counter>("counter")?;
    /// assert_eq!(counter.send(Add(7)).wait()?, 7);
    ///
    /// // The call that makes it panic fails, with the panic's message; the next one finds it made anew.
    /// let error = counter.send(Add(u64::MAX)).wait().unwrap_err();
    /// assert!(error.to_string().contains("it counts to 2^64"));
    /// assert_eq!(counter.send(Add(1)).wait()?, 1);
    /// app.stop().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn start(self) -> Reply<SupervisorRef> {
        let runtime = match Runtime::get() {
            Ok(runtime) => runtime,
            Err(error) => return Reply::new(async { Err(error) }),
        };
        let name = self.name.clone();
        let (started, answer) = oneshot::channel();
        runtime.spawn(move || async move {
            // Nobody may wait for it any more.
            let _ = started.send(self.start_on(runtime.arbiter()).await.map(Unclaimed::new));
        });
        Reply::new(async move {
            let ended = |_| Error::Start { name, problem: "fiber's thread has ended".into() };
            answer.await.map_err(ended)?.map(Unclaimed::claim)
        })
    }

    /// Starts the supervisor on the thread of `arbiter`, and waits until all children have started.
    ///
    /// If this future is dropped before it is done, the supervisor ends.
    ///
    /// # Errors
    /// [`Error::Start`] if a child could not be started (those before it have been ended by then),
    /// or if the arbiter has ended; [`Error::Invalid`] if names are wrong.
    pub async fn start_on(self, arbiter: &ArbiterHandle) -> Result<SupervisorRef> {
        check_name("Supervisor::builder", &self.name)?;
        check_names(&self.specs)?;
        let identity = Arc::new(Identity::new(self.name));
        let start = SupervisorStart::new(self.options, self.specs);
        let supervisor = SupervisorRef::root(identity.clone(), start.handle.clone());
        let name = identity.name().to_string();
        let (started, done) = oneshot::channel();
        let root = Root::new(start, identity);
        arbiter.spawn_fn(move || {
            actix::spawn(root.run(started));
        });
        let problem = match done.await {
            Ok(Ok(())) => return Ok(supervisor),
            Ok(Err(reason)) => reason.start_problem(),
            Err(_) => "its arbiter has ended".into(),
        };
        Err(Error::Start { name, problem })
    }
}

/// A supervisor on its way to whoever started it. Dropped, it ends: nobody else could ever end it.
struct Unclaimed(Option<SupervisorRef>);

impl Unclaimed {
    fn new(supervisor: SupervisorRef) -> Unclaimed {
        Unclaimed(Some(supervisor))
    }

    fn claim(mut self) -> SupervisorRef {
        self.0.take().expect("it is claimed once")
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(supervisor) = &self.0 {
            drop(supervisor.stop());
        }
    }
}

/// What stands above a supervisor that has none.
struct Root {
    start: SupervisorStart,
    identity: Arc<Identity>,
    stays: Option<(Entry, Life)>,
    reason: ExitReason,
}

impl Root {
    fn new(start: SupervisorStart, identity: Arc<Identity>) -> Root {
        let entry = Entry::new(None, identity.name(), start.kind());
        let life = Life::new(identity.clone());
        Root { start, identity, stays: Some((entry, life)), reason: ExitReason::Shutdown }
    }

    async fn run(mut self, started: oneshot::Sender<Result<(), ExitReason>>) {
        let Some((entry, _)) = &self.stays else { return };
        let id = entry.id();
        id.update(|facts| facts.incarnation = 1);
        let child = ChildContext {
            identity: self.identity.clone(),
            incarnation: 1,
            entry: id,
            arbiter: None,
        };
        match self.start.start(child).await {
            Ok(mut running) => {
                id.update(|facts| facts.enter(State::Running));
                if started.send(Ok(())).is_err() {
                    running.control.shutdown();
                }
                self.reason = running.exited.await;
            }
            Err(reason) => {
                self.reason = reason.clone();
                drop(self);
                let _ = started.send(Err(reason));
            }
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if let Some((entry, life)) = self.stays.take() {
            drop(entry);
            life.end(&self.reason);
        }
        self.identity.gone(&self.reason);
        // Last, as it wakes those that wait for the end.
        self.start.forgotten(&self.reason);
    }
}

//! Actors and task functions on supervised processes, started from one binary.
//!
//! A program written for one machine defines plain functions and [actix](https://docs.rs/actix)
//! actors; fiber runs them in worker processes that it supervises. A worker that dies is replaced,
//! and only its unfinished tasks run again.
//!
//! ```
//! use fiber::prelude::*;
//!
//! fn square(x: u64) -> u64 {
//!     x * x
//! }
//!
//! #[fiber::main]
//! async fn main() -> fiber::Result<()> {
//!     let pool = Pool::builder().processes(2).start().await?;
//!     assert_eq!(pool.map(square, 0..5).await?, [0, 1, 4, 9, 16]);
//!     Ok(())
//! }
//! ```
//!
//! A task function is any `fn`, or any closure that captures nothing. Fiber sends its offset in the
//! binary, so all processes run the same build. [`init`] must be the first call in `main`;
//! [`macro@main`] inserts it.
//!
//! # Contents
//!
//! | to | use |
//! |---|---|
//! | run a function for many items | [`Pool`]: `map`, `imap`, `imap_unordered`, `apply` |
//! | retry, limit time, stop early | [`Pool::retries`], [`Pool::timeout`], [`pool`]'s handles |
//! | go on after the program was killed | [`Pool::durable`], [`Journal`] |
//! | answer with many values | [`Pool::stream`], [`Stream`], [`Sender`] |
//! | run one function in a process | [`Process`] |
//! | give an actor a process of its own | [`AsyncManager`], [`ActorPool`], [`RemoteAddr`] |
//! | have an actor for each user, room or device | [`Entities`] |
//! | write messages and handlers, also async ones | [`macro@message`], [`macro@handlers`] |
//! | restart what fails, as in Erlang/OTP | [`Supervisor`]; [`tree`] shows all |
//! | share data between processes | [`Queue`], [`Pipe`], [`sync`]: values, maps, locks, events |
//! | publish messages to many | [`Topic`] |
//! | move large arrays without copies | [`Array`], [`Broadcast`] |
//! | reduce arrays over ranked processes | [`Ring`], [`RingNode`] |
//! | ask for cores, memory and GPUs | [`macro@meta`], [`Meta`] |
//! | configure | [`Config`], [`init_with`], `fiber.toml` |
//! | see what runs | [`stats`](mod@stats), the command `fiber top` |
//! | test | [`test_harness!`]; `fiber::test` and `fiber::sim`, which are features |
//! | run elsewhere | the features below; [`backend`] for a backend of your own |
//!
//! The [guide] leads through them in complete programs, and the [cookbook] has short answers.
//!
#![doc = concat!("[guide]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/guide.md")]
#![doc = concat!("[cookbook]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/cookbook.md")]
//!
//! # Features
//!
//! By default a program starts processes on its own host, and shows where they spend time. The rest
//! is opt-in:
//!
//! | feature | adds |
//! |---|---|
//! | `docker` | processes as Docker containers; includes `nng` |
//! | `kubernetes` | processes as Kubernetes pods; includes `docker` |
//! | `slurm` | processes as steps of Slurm jobs; includes `nng` |
//! | `gridengine` | processes as tasks of Grid Engine jobs; includes `nng` |
//! | `ssh` | processes on machines with sshd; includes `nng` |
//! | `all-backends` | all of these |
//! | `backend-parts` | parts for backends outside of fiber: [`backend`] |
//! | `nng` | links over TCP, also on one host (`FIBER_LINK=nng`); takes cmake to build |
//! | `progress` | progress bars: `progress` of `map` and `imap` |
//! | `metrics` | metrics for Prometheus: `FIBER_METRICS` |
//! | `ndarray` | conversions between [`Array`] and ndarray's arrays |
//! | `stacks` | stacks and profiles of running processes, and where a task hung; on by default |
//! | `opentelemetry` | spans of calls and tasks, exported by OTLP: `fiber::opentelemetry` |
//! | `conformance` | tests for backends outside of fiber: `fiber::backend::conformance` |
//! | `sim` | simulated worlds for the tests of programs: `fiber::sim` |
//! | `test` | probes, paused time and sessions of threads for the tests of programs: `fiber::test` |
//! | `full` | all features but `conformance`, `sim` and `test` |
//!
//! Each of them builds alone, also without default features. `kubernetes` enables the latest
//! version of Kubernetes' API that k8s-openapi knows. A program that needs another one, because it
//! uses k8s-openapi itself, takes `kubernetes-own-version` in its place, and enables one of
//! k8s-openapi's version features.
//!
//! # Stability
//!
//! Fiber is at 0.1: a new minor version may change its API, a patch may only add to it. Public is
//! what this crate shows; the crates `fiber-core`, `fiber-pool` and so on are parts of it. The
//! oldest supported Rust is 1.89, the only system Linux. [Stability] says what else is public, and
//! how each may change: the command line, its JSON, the configuration, journals, metrics.
//!
#![doc = concat!("[Stability]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/stability.md")]
// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use actix;
pub use fiber_core::Meta;
/// The journal of a program: where it records the outcomes of tasks and the states of actors.
///
/// # Examples
/// ```
/// # fiber::init();
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().join("squares");
/// use fiber::{Journal, Pool};
///
/// let pool = Pool::new(2)?.durable(Journal::at(folder).version("1"));
/// assert_eq!(pool.map(|x: u64| x * x, 0..4).wait()?, [0, 1, 4, 9]);
/// // A program that is started again takes the recorded results.
/// # Ok::<(), fiber::Error>(())
/// ```
#[doc(inline)]
pub use fiber_journal::Journal;
pub use fiber_runtime::init;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use fiber_runtime::runtime::simulation;
pub use fiber_runtime::runtime::stats;
pub use fiber_runtime::stats;
pub use fiber_supervisor::supervisor;
pub use fiber_sync::sync;

#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "test")]
pub mod test;

/// Export of spans by OpenTelemetry's protocol OTLP.
///
/// See [`init`](opentelemetry::init).
#[cfg(feature = "opentelemetry")]
pub use fiber_runtime::opentelemetry;

/// Makes an `async fn main`, or a plain one, the entry of a program that uses fiber.
///
/// ```
/// use fiber::prelude::*;
///
/// #[fiber::main]
/// async fn main() -> fiber::Result<()> {
///     let pool = Pool::new(2)?;
///     assert_eq!(pool.map(|x: u64| x * x, 0..3).await?, [0, 1, 4]);
///     Ok(())
/// }
/// ```
pub use fiber_macros::main;

/// Requests resources for the processes that run a task function.
///
/// ```
/// # fiber::init();
/// #[fiber::meta(cpu = 1)]
/// fn render(frame: u64) -> String {
///     format!("frame {frame}")
/// }
///
/// // The first call starts the workers, each with one processor core.
/// let pool = fiber::Pool::new(1)?;
/// assert_eq!(pool.apply(render, 7).wait()?, "frame 7");
/// # Ok::<(), fiber::Error>(())
/// ```
pub use fiber_macros::meta;

/// Makes a type a message of actors, which travels between processes.
///
/// [`handlers`](macro@handlers) has an actor that handles this one:
///
/// ```
/// #[fiber::message(u64)]
/// struct Add(u64);
/// ```
pub use fiber_macros::message;

/// Makes the methods of an `impl` handlers of messages, also `async fn`s.
///
/// ```
/// # fiber::init();
/// use std::time::Duration;
///
/// use fiber::actix::clock::sleep;
/// use fiber::prelude::*;
///
/// struct Counter(u64);
///
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::message(u64)]
/// struct Add(u64);
///
/// #[fiber::message(u64)]
/// struct AddLater(u64);
///
/// #[fiber::handlers]
/// impl Counter {
///     fn add(&mut self, Add(number): Add) -> u64 {
///         self.0 += number;
///         self.0
///     }
///
///     async fn add_later(this: Access<Self>, AddLater(number): AddLater) -> u64 {
///         sleep(Duration::from_millis(10)).await; // the counter handles other messages
///         this.with(move |counter| counter.add(Add(number))).await
///     }
/// }
///
/// let counter = AsyncManager::start(Counter, 10).wait()?;
/// let later = counter.send(AddLater(5));
/// counter.send(Add(1)).wait()?;
/// later.wait()?;
/// assert_eq!(counter.send(Add(0)).wait()?, 16);
/// # Ok::<(), fiber::Error>(())
/// ```
pub use fiber_macros::handlers;

#[doc(no_inline)]
pub use self::{
    actor_pool::ActorPool,
    array::Array,
    config::{Config, value_memory},
    entities::Entities,
    error::{Error, Result},
    group::Group,
    manager::AsyncManager,
    names::{find, find_recipient, names, wait_for},
    pipe::Pipe,
    pool::{Broadcast, Output, Pool, as_completed, first},
    process::Process,
    queue::Queue,
    remote::{RemoteAddr, this},
    reply::Reply,
    ring::{Reduction, Ring, RingNode},
    stream::{Sender, Stream},
    supervisor::{Supervisor, tree},
    topic::Topic,
};
#[doc(inline)]
pub use fiber_remote::Access;

/// Pools of worker processes, and handles of the calls that they run.
///
/// A call returns its handle at once. Await it, block on it with `wait`, or take the results one by
/// one as they arrive.
///
/// # Examples
/// ```
/// # fiber::init();
/// let pool = fiber::Pool::builder().processes(2).start().wait()?;
/// let sum = pool.apply(|a: u64, b: u64| a + b, (1, 2));
/// let squares = pool.map(|x: u64| x * x, 0..4);
/// assert_eq!(sum.wait()?, 3);
/// assert_eq!(squares.wait()?, [0, 1, 4, 9]);
/// for cube in pool.imap(|x: u64| x * x * x, 0..4).wait() {
///     println!("{}", cube?);
/// }
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod pool {
    #[cfg(feature = "progress")]
    pub use fiber_pool::suspend_progress;
    pub use fiber_pool::{
        ApplyCall, Broadcast, FunctionWith, ImapCall, ImapUnorderedCall, MapCall, OutputStream,
        Pool, PoolBuilder, PoolWith, ReduceCall, StreamFunction,
    };
    pub use fiber_runtime::blocking::Blocking;
    pub use fiber_runtime::reply::{AsCompleted, CompletedIter, First, as_completed, first};
    pub use fiber_values::{Fetch, Output};
}

/// Single functions in processes of their own.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Process;
///
/// let child = Process::spawn(std::process::id, ());
/// assert_ne!(child.wait()?, std::process::id());
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod process {
    pub use fiber_supervisor::process::{Process, ProcessBuilder, ProcessHandle, active_children};
}

/// Rings: ranked processes that work together, with collectives.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Reduction, Ring, RingNode};
///
/// fn sum_of_ranks(mut node: RingNode) -> fiber::Result<f64> {
///     let mut sum = [node.rank() as f64];
///     node.all_reduce(&mut sum, Reduction::Sum)?;
///     Ok(sum[0])
/// }
///
/// assert_eq!(Ring::builder().size(3).try_run(sum_of_ranks, ()).wait()?, [3.0; 3]);
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod ring {
    pub use fiber_ring::{
        Number, Reduction, Rendezvous, Ring, RingBuilder, RingFunction, RingNode, RingRun,
    };
}

/// Actors in processes of their own, which fiber restarts when they fail.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::prelude::*;
///
/// struct Counter(u64);
///
/// #[fiber::message(u64)]
/// struct Add(u64);
///
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::handlers]
/// impl Counter {
///     fn add(&mut self, add: Add) -> u64 {
///         self.0 += add.0;
///         self.0
///     }
/// }
///
/// let counter = AsyncManager::start(Counter, 10).wait()?;
/// assert_eq!(counter.send(Add(5)).wait()?, 15);
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod manager {
    pub use fiber_remote::manager::{
        AsyncManager, Full, ManagerBuilder, NoSnapshots, Snapshot, SnapshotPolicy, Snapshots,
    };
}

/// Several managed actors behind one handle, which routes messages to them.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::prelude::*;
///
/// struct Squarer;
///
/// #[fiber::message(u64)]
/// struct Square(u64);
///
/// impl Actor for Squarer {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::handlers]
/// impl Squarer {
///     fn square(&mut self, square: Square) -> u64 {
///         square.0 * square.0
///     }
/// }
///
/// // One actor for each argument.
/// let pool = ActorPool::builder().start(|_: u32| Squarer, 0..2).wait()?;
/// assert_eq!(pool.send(Square(3)).wait()?, 9);
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod actor_pool {
    pub use fiber_remote::actor_pool::{ActorPool, ActorPoolAddr, ActorPoolBuilder, Routing};
}

/// Queues between processes.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Process, Queue};
///
/// let queue = Queue::<String>::new()?;
/// let greet = |queue: Queue<String>| queue.put("hello".to_string()).wait();
/// let child = Process::builder().try_spawn(greet, queue.clone());
/// assert_eq!(queue.get().wait()?, "hello");
/// child.wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod queue {
    pub use fiber_sync::queue::{Delivery, Get, Put, Queue, QueueBuilder, QueueStream};
}

/// Pipes between two processes, in one direction or in both.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Pipe, Process};
///
/// let (here, there) = Pipe::<u32, String>::new()?;
/// let child = Process::spawn(
///     |pipe: Pipe<String, u32>| {
///         let number = pipe.recv().wait().unwrap();
///         pipe.send(format!("{number:b}")).wait().unwrap();
///     },
///     there,
/// );
/// here.send(5).wait()?;
/// assert_eq!(here.recv().wait()?, "101");
/// child.wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod pipe {
    pub use fiber_sync::pipe::{Pipe, PipeReceiver, PipeSender};
}

/// Streams: many values as the answer of a task or of an actor's handler.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Pool, Sender};
///
/// fn count(to: u64, out: Sender<u64>) -> fiber::Result<()> {
///     (1..=to).try_for_each(|n| out.send(n).wait())
/// }
///
/// let pool = Pool::new(1)?;
/// for (expected, n) in (1..).zip(pool.stream(count, 3)) {
///     assert_eq!(n?, expected);
/// }
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod stream {
    pub use fiber_sync::stream::{Sender, Stream};
}

/// Addresses of actors, which work in every process of the program.
///
/// [`RemoteAddr`] is for a known actor, [`RemoteRecipient`](remote::RemoteRecipient) for any actor
/// that handles one kind of message.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::prelude::*;
///
/// struct Printer;
///
/// #[fiber::message(usize)]
/// struct Print(String);
///
/// impl Actor for Printer {
///     type Context = Context<Self>;
/// }
///
/// #[fiber::handlers]
/// impl Printer {
///     fn print(&mut self, print: Print) -> usize {
///         println!("{}", print.0);
///         print.0.len()
///     }
/// }
///
/// System::new().block_on(async {
///     let printer = RemoteAddr::export(Printer.start())?;
///     let print = |printer: RemoteAddr<Printer>| {
///         printer.send(Print("hello".into())).wait().unwrap()
///     };
///     assert_eq!(Process::spawn(print, printer.clone()).await?, 5);
///     fiber::Result::<()>::Ok(())
/// })?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod remote {
    pub use fiber_remote::remote::{
        LocalActor, RemoteAddr, RemoteMessage, RemoteRecipient, SendError, deadline, this,
    };
}

/// Names of actors, by which any process finds them.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../actors/remote/src/doc/counter.md")]
/// let counter = fiber::AsyncManager::builder().registered("hits").start(Counter, 0).wait()?;
/// let hit = |_: u32| fiber::find::<Counter>("hits").wait().unwrap().send(Add(1)).wait().unwrap();
/// fiber::Pool::new(2)?.map(hit, 0..10).wait()?;
/// assert_eq!(counter.send(Add(0)).wait()?, 10);
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod names {
    pub use fiber_remote::names::{Named, find, find_recipient, names, wait_for};
}

/// Actors by key, which are there when they get a message.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../actors/remote/src/doc/account.md")]
/// let accounts = fiber::Entities::builder("accounts").processes(2).events();
/// let accounts = accounts.start(|_: String, ()| Account::default(), ()).wait()?;
/// assert_eq!(accounts.of("anna").send(Deposit(5)).wait()?, 5);
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod entities {
    pub use fiber_remote::entities::{
        Entities, EntitiesAddr, EntitiesBuilder, Entity, EntityState, EventSourced, Events,
        EventsAndSnapshots, KeepsState, NoReminders, RecordedEvent, Reminder, ReminderPolicy,
        WithReminders, find_entities, this,
    };
}

/// Groups of actors, to which any process sends messages.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../actors/remote/src/doc/counter.md")]
/// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
/// let counters = fiber::Group::named("counters")?;
/// counters.join(&counter.recipient::<Add>()).wait()?;
/// assert_eq!(counters.send(Add(1)).wait()?, 1);
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod group {
    pub use fiber_remote::group::Group;
}

/// Topics: messages that go to all subscribers, in any process.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::topic::{Slow, Topic};
///
/// let news = Topic::<String>::named("news")?;
/// let subscription = news.subscribe(Slow::Wait).wait()?;
/// let publish = |news: Topic<String>| news.publish("hello".to_string()).wait();
/// fiber::Process::builder().try_spawn(publish, news.clone()).wait()?;
/// assert_eq!(subscription.wait().next().unwrap()?, "hello");
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod topic {
    pub use fiber_remote::topic::{Delivery, Slow, Subscription, Topic};
}

/// The future of an answer, and the answers of several actors.
///
/// # Examples
/// ```
/// # fiber::init();
/// let pool = fiber::Pool::new(1)?;
/// let ready: fiber::Reply<()> = pool.wait_until_ready();
/// ready.wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod reply {
    pub use fiber_runtime::reply::{Replies, Reply};
}

/// Errors, and the reasons for which processes end.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::error::{Error, FailureKind};
///
/// let pool = fiber::Pool::new(1)?;
/// let parse = |text: String| text.parse::<u32>();
/// let Err(Error::Task { failure, .. }) = pool.try_apply(parse, "seven".to_string()).wait() else {
///     panic!("`seven` is not a number in digits");
/// };
/// assert_eq!(failure.kind, FailureKind::Returned);
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod error {
    pub use fiber_core::stacks::{Frame, ThreadStack, ThreadState};
    pub use fiber_core::{
        Cause, CloseReason, ConfigProblem, Error, Exit, ExitReason, Failure, FailureKind,
        PoolEndReason, RankActivity, Result, RingEndReason, RingProblem,
    };
}

/// The configuration of a program: from code, else from the environment, else from `fiber.toml`.
///
/// # Examples
/// ```
/// use fiber::config::OutputMode;
///
/// fiber::init_with(|config| config.output = OutputMode::Prefix);
/// ```
///
/// The options of a backend are in its section, `[slurm]` in the file:
///
/// ```
/// use fiber::config::SlurmSection;
///
/// fiber::init_with(|config| config.edit(|slurm: &mut SlurmSection| slurm.pilots = 4));
/// ```
pub mod config {
    pub use fiber_backends::{DockerSection, KubernetesSection, SlurmSection, SshSection};
    pub use fiber_core::{
        Config, ConfigSource, LinkKind, OutputMode, Section, SectionKey, ValueMemory, section,
        value_memory, values,
    };
    #[cfg(feature = "gridengine")]
    pub use fiber_gridengine::GridEngineSection;
}

/// Backends: how processes are started. For programs that bring their own.
///
/// The guide [Write a backend] has the contract and a longer example.
///
#[doc = concat!("[Write a backend]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/backend.md")]
///
/// # Examples
/// A backend that starts processes of this host with a low priority:
///
/// ```
/// use std::process::Command;
/// use std::sync::Arc;
///
/// use fiber::backend::{
///     Backend, BackendEntry, Job, JobSpec, ListenAddress, Local, LocalBoxFuture,
/// };
///
/// #[derive(Debug)]
/// struct Nice(Local);
///
/// impl Backend for Nice {
///     fn name(&self) -> &'static str {
///         "nice"
///     }
///
///     fn listen_address(&self) -> LocalBoxFuture<'_, fiber::Result<ListenAddress>> {
///         self.0.listen_address()
///     }
///
///     fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, fiber::Result<Arc<dyn Job>>> {
///         let mut command = Command::new("nice");
///         command.arg(Local::program());
///         Box::pin(async move { self.0.launch(&spec, command) })
///     }
///
///     fn sweep(&self) -> LocalBoxFuture<'_, fiber::Result<Vec<String>>> {
///         self.0.sweep()
///     }
/// }
///
/// fiber::backend::register!(BackendEntry::new("nice", |config| {
///     Ok(Arc::new(Nice(Local::new(config))))
/// }));
///
/// #[fiber::main]
/// fn main() -> fiber::Result<()> {
///     fiber::init_with(|config| config.backend = "nice".into());
///     assert_eq!(fiber::Pool::new(1)?.apply(|x: u64| x + 1, 1).wait()?, 2);
///     Ok(())
/// }
/// ```
pub mod backend {
    pub use fiber_backends::{
        Backend, BackendEntry, BackendError, ChildOutput, Job, JobPlace, JobSpec, JobState,
        ListenAddress, Local, LocalBoxFuture, Locality, Machine, Parent, Room, WaitReason,
        configured_environment,
    };
    #[cfg(feature = "backend-parts")]
    pub use fiber_backends::{batch, cluster as sessions, shell};
    #[cfg(feature = "conformance")]
    pub use fiber_conformance as conformance;
    pub use fiber_core::{Address, Exit, ExitReason, LinkKind, Meta, SectionEntry};

    /// Adds a backend to those that the configuration of this program can name.
    ///
    /// It stands beside functions, and takes a [`BackendEntry`].
    #[doc(inline)]
    pub use crate::__register_backend as register;
}

/// Adds a backend: see `fiber::backend::register!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __register_backend {
    ($entry:expr) => {
        const _: () = {
            // Before the constructor of `test_harness!`, in which a child of a test lives.
            $crate::__private::ctor::declarative::ctor! {
                #[ctor(link_section = ".init_array.00200")]
                fn fiber_register_backend() {
                    $crate::__private::register_backend($entry);
                }
            }
        };
    };
}

#[cfg(feature = "gridengine")]
__register_backend!(fiber_gridengine::ENTRY);

/// Arrays of numbers, which processes of one host share.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Array, Pool};
///
/// let pool = Pool::new(2)?;
/// let doubled = |array: Array<f64>| array.iter().map(|x| 2.0 * x).collect::<Array<f64>>();
/// let array = pool.apply(doubled, Array::from(vec![1.0; 100_000])).wait()?;
/// assert!(array.iter().all(|x| *x == 2.0));
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod array {
    pub use fiber_values::{Array, Element};
}

/// Task functions: the traits that bound their arguments and results.
///
/// A task function is any `fn`, or any closure that captures nothing. It can be async.
///
/// # Examples
/// ```
/// # fiber::init();
/// async fn double(x: u32) -> u32 {
///     2 * x
/// }
///
/// let pool = fiber::Pool::new(1)?;
/// assert_eq!(pool.apply(double, 4).wait()?, 8);
/// assert_eq!(pool.apply(|x: u32| 2 * x, 4).wait()?, 8);
/// # Ok::<(), fiber::Error>(())
/// ```
///
/// Type parameters named `M` and `N` in this crate are *markers*: the compiler infers them from the
/// function, and no program names them.
pub mod task {
    #[doc(hidden)]
    pub use fiber_ring::NoArguments;
    pub use fiber_values::{
        Argument, Arguments, Function, Inputs, Portable, TaskOutput, Termination,
    };
    #[doc(hidden)]
    pub use fiber_values::{
        AsResult, AsTermination, AsValue, Diverging, Fallible, FutureOf, OneArgument, OutputKind,
        OwnedLikeStringNotStr, Plain, TryOutput, TupleArguments,
    };
}

/// The names that most programs use, with those of actix that actors need.
///
/// It replaces `actix::prelude`. In a file that imports both, `Supervisor` is ambiguous:
/// `use fiber::Supervisor;` decides.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::prelude::*;
///
/// let pool = Pool::new(2)?;
/// assert_eq!(pool.map(|x: u32| x + 1, [1, 2, 3]).wait()?, [2, 3, 4]);
/// # Ok::<(), fiber::Error>(())
/// ```
pub mod prelude {
    // Not by a glob, which has names of other things, such as `Request`, `Response` and `io`.
    #[doc(no_inline)]
    pub use actix::prelude::{
        Actor, ActorContext, ActorFutureExt, ActorState, ActorStreamExt, Addr, Arbiter,
        ArbiterHandle, AsyncContext, AtomicResponse, Context, ContextFutureSpawner, Handler,
        MailboxError, Message, MessageResult, Recipient, ResponseActFuture, ResponseFuture,
        Running, SpawnHandle, StreamHandler, System, WrapFuture, WrapStream,
    };

    pub use crate::pipe::{Pipe, PipeReceiver, PipeSender};
    pub use crate::{
        Access, ActorPool, Array, AsyncManager, Broadcast, Entities, Error, Group, Journal, Meta,
        Pool, Process, Queue, Reduction, RemoteAddr, Ring, RingNode, Supervisor, Topic,
    };
}

/// Calls [`init`], and registers changes to the configuration, which count over environment and
/// file. Several calls apply in their order.
///
/// # Panics
/// If fiber has read the configuration already, which it does for the first pool, process or other
/// object of fiber.
///
/// # Examples
/// ```
/// fiber::init_with(|config| config.processes = 2);
/// assert_eq!(fiber::Pool::builder().build()?.apply(|| 7, ()).wait()?, 7);
/// # Ok::<(), fiber::Error>(())
/// ```
#[track_caller]
pub fn init_with(changes: impl Fn(&mut Config) + Send + Sync + 'static) {
    init();
    Config::set(changes);
}

/// Lets a test binary start fiber's processes. Write it once, at the top of a file under `tests/`
/// or of a crate's unit tests.
///
/// A test harness has a `main` of its own. The macro calls [`init`] before that `main`. Output of
/// processes that a test starts belongs to the test: `cargo test` shows it if the test fails.
///
/// # Examples
/// ```
/// fiber::test_harness!();
///
/// # fn main() -> fiber::Result<()> {
/// // In a test of that file:
/// let pool = fiber::Pool::new(2)?;
/// assert_eq!(pool.map(|x: u64| x * x, 0..3).wait()?, [0, 1, 4]);
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! test_harness {
    () => {
        $crate::__private::ctor::declarative::ctor! {
            #[ctor]
            fn fiber_test_harness() {
                $crate::init();
                $crate::__private::capture_in_tests();
            }
        }
    };
}

/// For the macros.
#[doc(hidden)]
pub mod __private {
    pub use ctor;
    pub use fiber_backends::register as register_backend;
    pub use fiber_core::{Meta, MetaOf, inventory};
    pub use fiber_remote::handle;
    pub use fiber_runtime::blocking::block_on_main;
    pub use fiber_runtime::capture_in_tests;
    pub use fiber_runtime::mesh::set_transit_time;
    pub use serde;
}

/// The programs of README and documents run with the other tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/guide.md")]
    struct Guide;
    #[doc = include_str!("../docs/actors.md")]
    struct Actors;
    #[doc = include_str!("../docs/arrays.md")]
    struct Arrays;
    #[doc = include_str!("../docs/durable.md")]
    struct Durable;
    #[doc = include_str!("../docs/graphs.md")]
    struct Graphs;
    #[doc = include_str!("../docs/observability.md")]
    struct Observability;
    #[doc = include_str!("../docs/ring.md")]
    struct Rings;
    #[doc = include_str!("../docs/simulation.md")]
    #[cfg(feature = "sim")]
    struct Simulation;
    #[doc = include_str!("../docs/hosts.md")]
    struct Hosts;
    #[doc = include_str!("../docs/docker.md")]
    struct Docker;
    #[doc = include_str!("../docs/backend.md")]
    struct Backends;
}

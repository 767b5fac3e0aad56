//! The process of a rank.

use std::any::{Any, type_name};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::entry::{Entry, EntryRef, MethodFn};
use fiber_core::process::flush_output;
use fiber_core::{
    Error, Failure, FailureKind, LinkKind, OutputKind, Result, codec, panics, travel,
};
use fiber_transport::shared::StreamListener;
use fiber_transport::{Link, Peer, Role, link_kind};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::function::RingFunction;
use super::line::Source;
use super::lines::{Here, Lines};
use super::linked::{Bell, LinkReader};
use super::node::RingNode;
use super::rendezvous::Reserved;
use super::wire::{Doing, Member, News, Order};
use crate::blocking::BlockingRuntime;
use crate::mesh::ProcessRef;
use crate::process::Initializer;
use crate::runtime::{ChildMain, ControlMessage, ParentMessage, Runtime, StartedMain};

/// The exit code of a process whose function failed.
const EXIT_FAILED: i32 = 1;

static HERE: OnceLock<Arc<Here>> = OnceLock::new();

/// What a rank is to run. Its arguments and its state in the last checkpoint come by themselves:
/// they may be large.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct RingMain {
    pub(super) entry: EntryRef,
    pub(super) ring: String,
    pub(super) rank: u64,
    pub(super) initializer: Option<Initializer>,
    pub(super) timeout: Duration,
}

/// Another rank has connected, to send over this link.
fn welcome(peer: Peer) {
    let here = HERE.get().expect("nodes of a ring are admitted when this process is one");
    let arrived = |rank, reader| here.arrivals.lock().push((rank, Source::Link(reader)));
    tokio::task::spawn_local(LinkReader::attend(peer, Arc::clone(&here.bell), arrived));
}

/// What the main thread is told.
enum Told {
    Order(Order),
    Shutdown,
}

impl ChildMain for RingMain {
    fn start(self, runtime: &'static Runtime, link: Arc<dyn Link>) -> StartedMain {
        let (sender, told) = mpsc::channel();
        let reporting = Arc::clone(&link);
        let inbox = move |inbound| {
            let told = match inbound {
                ParentMessage::Shutdown => Told::Shutdown,
                ParentMessage::Data(message) => match Order::read(message) {
                    Some(Order::Report) => {
                        let doing =
                            HERE.get().map(|here| here.doing.lock().clone()).unwrap_or_default();
                        let _ = reporting.send(News::Doing(doing).message());
                        return;
                    }
                    Some(order) => Told::Order(order),
                    None => return tracing::error!("a message of the ring's owner was ignored"),
                },
            };
            let _ = sender.send(told);
        };
        let main = move || match Job::prepare(runtime, &link, self) {
            Ok(job) => job.run(&link, &told),
            Err(problem) => {
                let _ = link.send(ControlMessage::Failed(problem).message());
                // The parent ends this process when it has read that.
                loop {
                    std::thread::park();
                }
            }
        };
        StartedMain { receive: Box::new(inbox), run: Box::new(main) }
    }
}

/// A rank that can be reached.
struct Job {
    runtime: &'static Runtime,
    ring_main: RingMain,
    entry: &'static Entry<MethodFn>,
    here: Arc<Here>,
    member: Member,
    address: String,
    _reserved: Option<Reserved>,
}

impl Job {
    fn prepare(
        runtime: &'static Runtime,
        link: &Arc<dyn Link>,
        mut ring_main: RingMain,
    ) -> Result<Job, String> {
        let text = |error: Error| error.to_string();
        let entry = ring_main.entry.resolve::<MethodFn>().map_err(text)?;
        ring_main.initializer.take().map_or(Ok(()), Initializer::run)?;
        let address = runtime.address_now().map_err(text)?.to_string();
        let bell = Bell::new().map_err(|error| format!("it can't be woken: {error}"))?;
        let here = Arc::new(Here {
            bell: Arc::new(bell),
            arrivals: Mutex::default(),
            doing: Mutex::default(),
        });
        let _ = HERE.set(Arc::clone(&here));
        runtime.on_peer(Role::Ring, welcome);
        // Who is not on this host can share no memory with it.
        let streams = match link_kind(&address) {
            Some(LinkKind::Unix) => {
                Some(receive_streams(runtime, &here).map_err(|error| error.to_string())?)
            }
            _ => None,
        };
        let reserved = (ring_main.rank == 0).then(Reserved::new).transpose().map_err(text)?;
        let port = reserved.as_ref().map(|reserved| reserved.port);
        let place = ProcessRef { id: runtime.id(), address: address.as_str().into() };
        let member = Member { process: place, streams, port };
        let _ = link;
        Ok(Job { runtime, ring_main, entry, here, member, address, _reserved: reserved })
    }

    fn run(self, link: &Arc<dyn Link>, told: &mpsc::Receiver<Told>) -> i32 {
        let _ = link.send(ControlMessage::Ready { address: Some(self.address.clone()) }.message());
        let _ = link.send(News::Joined(self.member.clone()).message());
        let (mut arguments, mut restored) = (Bytes::new(), None);
        let members = loop {
            match told.recv() {
                Ok(Told::Order(Order::Arguments(given))) => arguments = given,
                Ok(Told::Order(Order::Restored(number, state))) => restored = Some((number, state)),
                Ok(Told::Order(Order::Members(members))) => break members,
                Ok(Told::Order(Order::Report)) => {}
                Ok(Told::Shutdown) | Err(_) => return 0,
            }
        };
        let rank = self.ring_main.rank as usize;
        let lines =
            Lines::new(self.runtime, rank, members, Arc::clone(&self.here), self.ring_main.timeout);
        let limit = self.runtime.config().max_message.as_u64();
        let name = self.ring_main.ring.clone();
        let node =
            RingNode::new(lines, Arc::clone(link), name, limit, restored, Arc::clone(&self.here));
        let mut task = Task { node: Some(node), arguments, limit, outcome: None };
        self.entry.call()(&mut task, &mut (), &mut ());
        // Its owner may kill this process as soon as it has the outcome.
        flush_output();
        // A node that was never taken says goodbye too.
        drop(task.node.take());
        *self.here.doing.lock() = Doing::Finished;
        let (news, code) = match task.outcome.expect("an entry gives an outcome") {
            Ok(value) => (News::Value(value.into()), 0),
            Err(failure) => {
                let failure =
                    codec::encode(&failure).expect("a failure is made of text, which serialises");
                (News::Failure(failure.into()), EXIT_FAILED)
            }
        };
        let _ = link.send(news.message());
        // Until all ranks are done, for what this one has sent may still be on its way.
        while !matches!(told.recv(), Ok(Told::Shutdown) | Err(_)) {}
        code
    }
}

/// Takes in the streams that other ranks open, on a thread of its own.
fn receive_streams(runtime: &'static Runtime, here: &Arc<Here>) -> std::io::Result<String> {
    let listener = StreamListener::bind()?;
    let address = listener.address().to_string();
    let here = Arc::clone(here);
    let receive = move || loop {
        match listener.accept(runtime.key()) {
            Ok((greeting, reader)) => {
                let Ok(rank) = greeting.try_into().map(u64::from_le_bytes) else { continue };
                here.arrivals.lock().push((rank as usize, Source::Shared(reader, false)));
                here.bell.ring();
            }
            Err(error) => {
                tracing::error!("no stream of another rank can be taken in for now: {error}");
                // Most likely too many files are open: what ends meanwhile makes room.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    };
    std::thread::Builder::new().name("fiber-ring".into()).spawn(receive)?;
    Ok(address)
}

/// The function of a rank, once.
struct Task {
    node: Option<RingNode>,
    arguments: Bytes,
    limit: u64,
    outcome: Option<Result<Vec<u8>, Failure>>,
}

/// The entry through which the ranks run `F`.
pub(super) fn ring_entry<F, A, M, K>() -> &'static Entry<MethodFn>
where
    F: RingFunction<A, M>,
    A: DeserializeOwned,
    K: OutputKind<F::Output>,
{
    Maker::<F, A, M, K>::ENTRY
}

struct Maker<F, A, M, K>(PhantomData<(F, A, M, K)>);

impl<F, A, M, K> Maker<F, A, M, K>
where
    F: RingFunction<A, M>,
    A: DeserializeOwned,
    K: OutputKind<F::Output>,
{
    const ENTRY: &'static Entry<MethodFn> = &Entry::new(type_name::<F>, Self::run);

    fn run(task: &mut dyn Any, _: &mut dyn Any, _: &mut dyn Any) {
        let task = task.downcast_mut::<Task>().expect("this entry is called with nothing else");
        let node = task.node.take().expect("a rank runs its function once");
        let arguments = std::mem::take(&mut task.arguments);
        let limit = task.limit;
        let work = AssertUnwindSafe(move || {
            let failed = |kind| move |error: Error| Failure::new(kind, error);
            let arguments: A = codec::decode(&arguments).map_err(failed(FailureKind::Arguments))?;
            let output = fiber_core::instance::<F>().call(node, arguments);
            let output = K::settle(output, &BlockingRuntime::default())
                .map_err(|message| Failure::new(FailureKind::Returned, message))?;
            let value =
                travel::once(|| codec::encode(&output)).map_err(failed(FailureKind::Result))?;
            codec::check_size(value.len(), limit, || {
                format!("the result of `{}`", type_name::<F>())
            })
            .map_err(failed(FailureKind::Result))?;
            Ok(value)
        });
        let outcome = panics::catch(|| catch_unwind(work));
        task.outcome = Some(outcome.unwrap_or_else(|panic| Err(panic.into())));
    }
}

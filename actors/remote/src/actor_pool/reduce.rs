//! Messages to all actors of a pool whose answers are merged to one, at each host first.
//!
//! An actor in a host keeps a large answer, and gives the caller a handle of it. When all have
//! answered, the first actor of each host gets the handles of those beside it, and merges what they
//! stand for. Messages go to each actor as [`broadcast`](ActorPoolAddr::broadcast) sends them, so
//! they keep their order. Whatever a host can't merge, the caller merges.

use std::any::{Any, type_name};
use std::marker::PhantomData;
use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Handler, Message};
use fiber_core::{Error, Failure, FailureKind, ProcessId, Result, panics};
use fiber_values::codec::{self, EncodedValue};
use fiber_values::entry::{Entry, MethodFn};
use fiber_values::{Output, OutputCell, assert_captures_nothing, instance, transfer};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ActorPoolAddr;
use super::addr::Chosen;
use crate::remote::{
    CallOutcome, Carrier, ForAll, MethodCall, Outgoing, RemoteMessage, UntypedAddr, encode,
};
use fiber_runtime::mesh::CallFailure;
use fiber_runtime::reply::{AsCompleted, Reply, as_completed};
use fiber_runtime::runtime::Runtime;

/// Shorter answers go to the caller at once: a handle is hardly shorter, and costs more.
const MIN_KEPT: usize = 4 << 10;

impl<A: Actor> ActorPoolAddr<A> {
    /// Sends a message to each actor, as [`broadcast`](ActorPoolAddr::broadcast), and merges the
    /// answers to one. Those of a [host](crate::manager::ManagerBuilder::on_host) are merged there,
    /// so that one crosses the link to it. The value is `None` if there are no actors.
    ///
    /// `merge` has to be associative and commutative. It merges the answers of each host in the
    /// order of the actors, and then the hosts in the order of their first actors. It captures no
    /// variables, as a function of a task. `broadcast(message).reduce(merge)` takes any function,
    /// keeps the order of all actors, and merges in this process.
    ///
    /// The first actor of a host merges between two messages, with two answers in memory. The
    /// caller merges answers below 4 KiB or with handles of shared objects, the answers of a host
    /// that can't merge them, and all if the calls have a
    /// [time limit](crate::remote::RemoteAddr::timeout).
    ///
    /// # Errors
    /// The first failure, as [`Replies::all`](fiber_runtime::reply::Replies::all): also of an actor
    /// whose process ends before its answer is merged.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [10, 20, 30]).wait()?;
    /// assert_eq!(pool.reduce(Add(1), |a, b| a + b).wait()?, Some(63));
    /// assert_eq!(pool.reduce(Add(0), u64::max).wait()?, Some(31));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn reduce<M, F>(&self, message: M, merge: F) -> Reply<Option<M::Result>>
    where
        M: RemoteMessage,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M> + 'static,
        F: Fn(M::Result, M::Result) -> M::Result + Copy + Send + 'static,
    {
        const { assert_captures_nothing::<F>() };
        if self.addrs().any(|addr| addr.untyped.time_left().is_some()) {
            return self.broadcast(message).reduce(merge);
        }
        let near = Runtime::get().ok().and_then(Runtime::host);
        let message = ForAll::new(Kept { near, message });
        let send = |to: Chosen<A>| {
            let member = to.addr.untyped.clone();
            (member, to.send::<M, _>(message.for_one()))
        };
        let (members, replies): (Vec<_>, Vec<_>) = self.choose_all().into_iter().map(send).unzip();
        let answers = Answers(Some(as_completed(replies)));
        Reply::named("all answers to a message", async move {
            let places = Place::of_all(members, answers).await?;
            let values = try_join_all(places.into_iter().map(|place| place.merged(merge))).await?;
            Ok(values.into_iter().flatten().reduce(merge))
        })
    }
}

/// A message whose answer may be kept where it is.
#[derive(Serialize, Deserialize)]
struct Kept<M> {
    /// The host of the caller, if it is in one.
    near: Option<ProcessId>,
    message: M,
}

impl<M: RemoteMessage> Message for Kept<M> {
    type Result = Answer<M::Result>;
}

impl<M: RemoteMessage> Carrier<M> for Kept<M> {
    type Terms = Option<ProcessId>;

    fn unpack(self) -> (M, Option<ProcessId>) {
        (self.message, self.near)
    }

    fn result(near: Option<ProcessId>, value: M::Result) -> Answer<M::Result> {
        Answer::new(near, value)
    }
}

#[derive(Serialize, Deserialize)]
enum Answer<R> {
    Here(R),
    /// It is in its process, in this host.
    Kept(ProcessId, Output<R>),
}

impl<R: Serialize> Answer<R> {
    /// Keeps an answer, if it is large and the caller is outside of this host.
    fn new(near: Option<ProcessId>, value: R) -> Answer<R> {
        let Some(runtime) = Runtime::current() else { return Answer::Here(value) };
        let Some(host) = runtime.host().filter(|host| near != Some(*host)) else {
            return Answer::Here(value);
        };
        // Handles are for one taker. The caller gets an error of the encoding from the answer.
        let (encoded, handles) = transfer::repeatable(|| EncodedValue::new(&value));
        let sizes = MIN_KEPT..=runtime.config().max_message.as_u64() as usize;
        match encoded {
            Ok(encoded) if handles.is_empty() && sizes.contains(&encoded.size()) => {
                Answer::Kept(host, Output::of(OutputCell::filled(Ok(encoded))))
            }
            _ => Answer::Here(value),
        }
    }
}

/// The answers that are on their way. All are read, also for a caller that has given up: an answer
/// is kept until its handle is read and dropped.
struct Answers<R: DeserializeOwned + Send + 'static>(Option<AsCompleted<Reply<Answer<R>>>>);

impl<R: DeserializeOwned + Send + 'static> Answers<R> {
    /// Returns the next answer and the place of its actor.
    async fn next(&mut self) -> Option<(usize, Result<Answer<R>>)> {
        let next = self.0.as_mut()?.next().await;
        if next.is_none() {
            self.0 = None;
        }
        next
    }
}

impl<R: DeserializeOwned + Send + 'static> Drop for Answers<R> {
    fn drop(&mut self) {
        if let (Some(mut answers), Some(runtime)) = (self.0.take(), Runtime::current()) {
            runtime.spawn(move || async move { while answers.next().await.is_some() {} });
        }
    }
}

/// The answers that are merged in one place.
enum Place<R> {
    Here(R),
    Host { host: ProcessId, answers: Vec<KeptAnswer<R>> },
}

struct KeptAnswer<R> {
    index: usize,
    member: UntypedAddr,
    value: Output<R>,
}

impl<R: Serialize + DeserializeOwned + Send + 'static> Place<R> {
    /// Waits for all answers. Returns them by their places, in the order of the first actors.
    ///
    /// # Errors
    /// The first failure.
    async fn of_all(members: Vec<UntypedAddr>, mut answers: Answers<R>) -> Result<Vec<Place<R>>> {
        let mut known: Vec<_> = members.iter().map(|_| None).collect();
        while let Some((index, answer)) = answers.next().await {
            known[index] = Some(answer.map_err(|cause| failed(index, &members[index], cause))?);
        }
        let mut places: Vec<Place<R>> = Vec::new();
        for (index, (member, answer)) in members.into_iter().zip(known).enumerate() {
            let (in_host, value) = match answer {
                Some(Answer::Kept(host, value)) => (host, value),
                Some(Answer::Here(value)) => {
                    places.push(Place::Here(value));
                    continue;
                }
                None => continue,
            };
            let answer = KeptAnswer { index, member, value };
            let same = places.iter_mut().find_map(|place| match place {
                Place::Host { host, answers } if *host == in_host => Some(answers),
                _ => None,
            });
            match same {
                Some(answers) => answers.push(answer),
                None => places.push(Place::Host { host: in_host, answers: vec![answer] }),
            }
        }
        Ok(places)
    }

    /// Merges the answers, in their host if it can.
    ///
    /// # Errors
    /// An answer is gone with its process.
    async fn merged<F>(self, merge: F) -> Result<Option<R>>
    where
        F: Fn(R, R) -> R + Copy + Send + 'static,
    {
        let answers = match self {
            Place::Here(value) => return Ok(Some(value)),
            Place::Host { answers, .. } => answers,
        };
        if let [first, _, ..] = answers.as_slice() {
            let values = answers.iter().map(|answer| answer.value.clone()).collect();
            let mut member = first.member.clone();
            member.urgent = true;
            let (method, values) = (Merger::<R, F>::ENTRY.reference(), Merge(values));
            if let Ok(value) = member.call(method, Outgoing::Value(&values), None).await {
                return Ok(Some(value));
            }
        }
        let mut merged = None;
        for KeptAnswer { index, member, value } in answers {
            let value = value.get().await.map_err(|cause| failed(index, &member, cause))?;
            merged = Some(match merged {
                Some(before) => merge(before, value),
                None => value,
            });
        }
        Ok(merged)
    }
}

fn failed(index: usize, member: &UntypedAddr, cause: Error) -> Error {
    Error::Member { index, name: member.target.name.to_string(), cause: Arc::new(cause) }
}

/// Asks an actor's process to merge answers. The actor has no part in it.
#[derive(Serialize, Deserialize)]
struct Merge<R>(Vec<Output<R>>);

impl<R: 'static> Message for Merge<R> {
    type Result = R;
}

/// The entry of a function that merges two answers.
struct Merger<R, F>(PhantomData<(R, F)>);

impl<R, F> Merger<R, F>
where
    R: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(R, R) -> R + Copy + Send + 'static,
{
    const ENTRY: &'static Entry<MethodFn> = &Entry::new(type_name::<F>, Self::merge);

    #[allow(unsafe_code)]
    fn merge(_: &mut dyn Any, _: &mut dyn Any, call: &mut dyn Any) {
        let call =
            call.downcast_mut::<MethodCall>().expect("methods are called with a `MethodCall`");
        let Merge(outputs) =
            match codec::decode_with::<Merge<R>>(&call.message, &call.message.blobs) {
                Ok(outputs) => outputs,
                Err(error) => return call.fail(FailureKind::Arguments, &error),
            };
        // SAFETY: the entry is made from a value of F.
        let merge = unsafe { instance::<F>() };
        let limit = call.limit;
        call.outcome = CallOutcome::Later(Box::pin(async move {
            let value = Self::all(outputs, merge).await;
            let failed = |error| CallFailure::Failed(Failure::new(FailureKind::Result, error));
            encode(limit, &value.map_err(failed)?)
        }));
    }

    /// Merges the values in their order. Two of them are in memory at a time.
    ///
    /// # Errors
    /// A value is gone, or the function has panicked, which is not the actor's end.
    async fn all(outputs: Vec<Output<R>>, merge: F) -> Result<R, String> {
        let mut merged = None;
        for output in outputs {
            let value = output.get().await.map_err(|error| error.to_string())?;
            merged = Some(match merged.take() {
                Some(before) => {
                    panics::catch(|| merge(before, value)).map_err(|panic| panic.message)?
                }
                None => value,
            });
        }
        merged.ok_or_else(|| "there are no answers to merge".into())
    }
}

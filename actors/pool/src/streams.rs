//! Calls whose task answers with many values.

use std::any::type_name;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;

use fiber_core::stacks::user_code;
use fiber_core::{Error, Failure, FailureKind, Meta, Result};
use fiber_sync::stream::{Flushing, Sender, SenderSeed, Stream, StreamOwner, channel};
use fiber_values::{
    AsTermination, BlockOn, Function, Inputs, OneArgument, OutputKind, Portable, Termination,
    TupleArguments, TypedEntry, assert_captures_nothing,
};

use super::Pool;
use super::calls::{ActiveCall, failures};
use super::last_argument::{And, AndLast, Taking, functions_with_last};

/// A task function that takes `Args` as a [`Function`] does, and a [`Sender`] last, by which it
/// answers with any number of items.
///
/// Every `fn` and every closure that captures nothing implements it. The compiler always infers
/// `Marker`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no task function for `{Args}` and a `fiber::Sender`",
    label = "does not take `{Args}` and a `fiber::Sender`",
    note = "the function of a stream takes the argument, or the parts of a tuple, and a sender \
            last: `|site: String, out: fiber::Sender<Page>| …`; it captures nothing"
)]
pub trait StreamFunction<Args, T, Marker>: Copy + Send + 'static {
    /// The type that the function returns.
    type Output;

    /// Calls the function.
    fn call(self, args: Args, out: Sender<T>) -> Self::Output;
}

functions_with_last!(
    StreamFunction, T, Sender<T>:
    () (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G)
);

/// The output of a producer. Its items arrive before it counts.
pub(super) struct Produced<R> {
    output: R,
    items: Flushing,
}

impl<F, A, T, M> Function<(A, SenderSeed<T>), AndLast<M>> for Taking<F, SenderSeed<T>>
where
    F: StreamFunction<A, T, M>,
    T: 'static,
{
    type Output = Produced<F::Output>;

    fn call(self, (args, seed): (A, SenderSeed<T>)) -> Produced<F::Output> {
        let out = seed.start();
        // A panic drops it, too.
        let items = out.flushing();
        Produced { output: self.0.call(args, out), items }
    }

    fn name() -> &'static str {
        type_name::<F>()
    }

    fn meta() -> Meta {
        Meta::of::<F>()
    }
}

/// Outputs of producers: only success or failure counts.
struct AsProducer<N>(PhantomData<N>);

impl<R: Termination<N>, N: 'static> OutputKind<Produced<R>> for AsProducer<N> {
    type Value = ();

    fn resolve(
        Produced { output, items }: Produced<R>,
        executor: &dyn BlockOn,
    ) -> Result<(), Failure> {
        let outcome = AsTermination::<N>::resolve(output, executor);
        let arrived = items.finish();
        outcome?;
        arrived.map_err(|error| Failure::new(FailureKind::Result, error))
    }
}

/// Whether the task of a stream runs again if its worker dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamReruns {
    /// As any task. Items that were delivered are skipped.
    Always,
    /// Unless an item was delivered.
    BeforeItems,
}

/// Says whether a call's tasks may not run again.
pub(crate) type IsFinal = Arc<dyn Fn() -> bool + Send + Sync>;

impl Pool {
    /// Runs one task that answers with any number of items, and gives a stream of them.
    ///
    /// The function takes `args` as that of [`apply`](Pool::apply) does, and a [`Sender`] last. It
    /// returns nothing, or a `Result` whose error implements `Display`, or a future of either.
    /// An `Err` or a panic is the last item of the stream, behind those that were sent before.
    ///
    /// Returns at once; errors come out of the stream. The first item takes about as long as the
    /// result of an [`apply`](Pool::apply). The task runs ahead of the consumer until half of the
    /// [buffer](Pool::buffer) is full of items. It occupies its worker until it ends: a program that
    /// has more streams than threads of workers takes from all of them at once, or from one after
    /// the other in the order of the calls.
    ///
    /// - **Deaths.** If the worker dies, another runs the task again, from its start, and the
    ///   stream skips as many items as were delivered. So the items of each run have to be the same
    ///   ones in the same order. A function whose items depend on time, chance or the state of
    ///   others takes their cause as an argument, or is called with [`once`](Pool::once).
    /// - **Options.** [`timeout`](Pool::timeout) counts from the task's start to its end, also while
    ///   it waits for its consumer. [`retries`](Pool::retries) and
    ///   [`max_deaths`](Pool::max_deaths) hold as for any task.
    /// - **Drop.** Dropping the stream cancels the task if it has not started. Otherwise its next
    ///   [`send`](Sender::send) fails. The task runs until it ends by itself.
    /// - **Durable pools.** The items are not recorded, so the stream fails with
    ///   [`Error::Invalid`] on a handle with [`durable`](Pool::durable). [`imap`](Pool::imap) with a
    ///   task for each item records them.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Pool, Sender};
    ///
    /// fn words(text: String, shortest: usize, out: Sender<String>) -> fiber::Result<()> {
    ///     let words = text.split(' ').filter(|word| word.len() >= shortest);
    ///     words.map(String::from).try_for_each(|word| out.send(word).wait())
    /// }
    ///
    /// let pool = Pool::new(1)?;
    /// for word in pool.stream(words, ("to be or not".to_string(), 3)).wait() {
    ///     assert_eq!(word?, "not");
    /// }
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn stream<F, A, P, T, M, N>(&self, function: F, args: A) -> Stream<T>
    where
        F: StreamFunction<P, T, M, Output: Termination<N>>,
        A: Inputs<P, M>,
        P: Portable,
        T: Portable + 'static,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        type Arguments<A, T> = And<A, SenderSeed<T>>;
        let function = Taking::<_, SenderSeed<T>>::last(function);
        let entry = TypedEntry::of_call::<Arguments<A, T>, _, AndLast<M>, AsProducer<N>>(function);
        self.begin_stream(entry, args).unwrap_or_else(Stream::failed)
    }

    #[track_caller]
    fn begin_stream<A, P, T, M>(
        &self,
        function: TypedEntry<(P, SenderSeed<T>), ()>,
        args: A,
    ) -> Result<Stream<T>>
    where
        A: Inputs<P, M>,
    {
        if self.options.journal.is_some() {
            let problem = "the items of a stream can't be recorded: call it on a handle of the pool \
                           without `durable`, or use `imap` with a task for each item";
            return Err(Error::invalid("Pool::stream", problem));
        }
        let (seed, owner, mut stream) = channel(self.options.buffer / 2)?;
        let mut pool = self.clone();
        if self.options.stream_reruns == StreamReruns::BeforeItems {
            if self.state().is_outer() {
                let problem = "the pool of a task does not know which items were delivered: make \
                               the stream in the process that made the pool";
                return Err(Error::invalid("Pool::once", problem));
            }
            pool.options.is_final = Some(Arc::new(owner.has_items()));
        }
        let accepted = pool.submit_one(function, And(args, seed))?;
        if self.state().is_outer() {
            stream.lend_slot();
        }
        let call = ActiveCall::new(accepted);
        self.state().runtime.spawn(move || follow(call, owner));
        Ok(stream)
    }

    /// Returns a handle whose [streams](Pool::stream) don't run again once an item was delivered.
    ///
    /// If the worker dies after that, the stream ends with
    /// [`Error::WorkerDied`](fiber_core::Error::WorkerDied), and if the task fails, it ends
    /// with the failure, whatever [`retries`](Pool::retries) says. For functions that send other
    /// items each time. By default a task runs again, and the items that were delivered are
    /// skipped. Other calls are as without this option.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Pool, Sender};
    ///
    /// fn draw(out: Sender<u64>) -> fiber::Result<()> {
    ///     out.send(std::process::id().into()).wait()?; // another number in another process
    ///     out.flush().wait()?;
    ///     std::process::abort()
    /// }
    ///
    /// let pool = Pool::new(1)?;
    /// let mut draws = pool.once().stream(draw, ()).wait();
    /// assert!(draws.next().unwrap().is_ok());
    /// assert!(matches!(draws.next(), Some(Err(fiber::Error::WorkerDied { .. }))));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "this returns a handle with another option, and does not change the pool"]
    pub fn once(&self) -> Pool {
        self.with_options(|options| options.stream_reruns = StreamReruns::BeforeItems)
    }
}

/// Ends the stream with the outcome of its task, or cancels the task when the consumer is gone.
async fn follow(mut call: ActiveCall, owner: StreamOwner) {
    let batch = poll_fn(|context| {
        if owner.poll_closed(context).is_ready() {
            return Poll::Ready(None);
        }
        call.poll_batch(context).map(Some)
    });
    let outcome = match batch.await {
        // Dropping the call cancels it.
        None => return,
        Some(Some(Ok(batch))) => {
            call.consumed(&batch);
            failures(call.exchange.function, batch).into_iter().next().map_or(Ok(()), Err)
        }
        Some(Some(Err(error))) => Err(error),
        Some(None) => Ok(()),
    };
    owner.end(outcome);
}

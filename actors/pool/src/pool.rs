//! The handle of a pool.

use std::any::type_name;
use std::fmt;
use std::sync::{Arc, Weak};

use fiber_core::{PoolEndReason, Result, forks};
use fiber_values::codec::{self, EncodedValue};
use fiber_values::{
    AsResult, AsValue, Function, Inputs, Output, OutputCell, Portable, TaskOutput, TryOutput,
    TypedEntry, assert_captures_nothing, transfer,
};

use crate::batch::Order;
use crate::durable::JournalOption;
use crate::scheduler::CallOptions;
use crate::state::PoolState;
use crate::streams::{IsFinal, StreamReruns};
use crate::{ApplyCall, Broadcast, ImapCall, ImapUnorderedCall, MapCall, PoolBuilder};

/// A pool of supervised worker processes that run task functions.
///
/// A task function is any `fn`, or any closure that captures nothing. It may be async. Serde
/// carries its arguments to a worker and its result back. With the `try_` methods the function
/// returns a `Result`, whose `Err` is the task's failure.
///
/// The pool tracks each task. If a worker dies, other workers run its unfinished tasks, and each
/// result is delivered once. A task may therefore run more than once.
///
/// A call encodes its arguments in this process, sends them to workers, many tasks in one message
/// where tasks are short, and receives the encoded results the same way. It returns a handle at
/// once and waits for no worker: [`map`](Pool::map) and its relatives encode on a thread of their
/// own.
///
/// Clones are handles to the same pool. Dropping the last handle kills the workers and fails all
/// calls. [`stop`](Pool::stop) lets them finish.
///
/// The methods from [`chunk`](Pool::chunk) to [`durable`](Pool::durable) return a handle with other
/// options for its calls, and leave this one as it is.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Pool;
///
/// let pool = Pool::new(2)?;
/// let squares = pool.map(|x: u64| x * x, 0..5).wait()?;
/// assert_eq!(squares, [0, 1, 4, 9, 16]);
/// let sum = pool.apply(|a: i32, b: i32| a + b, (1, 2)).wait()?;
/// assert_eq!(sum, 3);
/// pool.stop().wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone)]
pub struct Pool {
    guard: Arc<KillOnDrop>,
    pub(crate) options: HandleOptions,
}

/// The options that a handle gives to the calls that it makes.
#[derive(Clone)]
pub(crate) struct HandleOptions {
    pub(crate) call: CallOptions,
    /// Bytes that a call may store in this process.
    pub(crate) buffer: u64,
    /// Where its calls record the outcomes of their tasks.
    pub(crate) journal: Option<Arc<JournalOption>>,
    pub(crate) stream_reruns: StreamReruns,
    /// Whether the task of the call that it makes next may not run again.
    pub(crate) is_final: Option<IsFinal>,
}

/// A handle of a pool with its options that does not keep the workers alive.
pub(crate) struct WeakPool {
    guard: Weak<KillOnDrop>,
    options: HandleOptions,
}

impl WeakPool {
    /// Returns the handle, unless the last one was dropped.
    pub(crate) fn upgrade(&self) -> Option<Pool> {
        Some(Pool { guard: self.guard.upgrade()?, options: self.options.clone() })
    }
}

/// Kills the workers when the last handle is dropped.
pub(crate) struct KillOnDrop {
    state: Arc<PoolState>,
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        kill(&self.state, PoolEndReason::Dropped);
    }
}

pub(crate) fn kill(state: &PoolState, reason: PoolEndReason) {
    if forks::is_forked() {
        return;
    }
    state.with_life(|life, effects| life.kill(reason, effects));
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.state().name)
            .field("options", &self.options.call)
            .field("journal", &self.options.journal)
            .finish()
    }
}

impl Pool {
    /// Makes a pool of `processes` worker processes. They start with the first call.
    ///
    /// Returns at once. [`wait_until_ready`](Pool::wait_until_ready) starts them before that.
    ///
    /// # Errors
    /// As [`PoolBuilder::build`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// assert_eq!(pool.ready_workers(), 0);
    /// assert_eq!(pool.map(|x: u64| x + 1, 0..3).wait()?, [1, 2, 3]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn new(processes: usize) -> Result<Pool> {
        Pool::builder().processes(processes).build()
    }

    /// Returns a builder that configures a pool.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::builder().name("adders").processes(2).build()?;
    /// assert_eq!(pool.name(), "adders");
    /// assert_eq!(pool.apply(|a: u64, b: u64| a + b, (1, 2)).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn builder() -> PoolBuilder {
        PoolBuilder::new()
    }

    pub(crate) fn of(state: Arc<PoolState>) -> Pool {
        let call = CallOptions {
            chunk: 1,
            timeout: None,
            retries: 0,
            max_deaths: 3,
            max_timeouts: 1,
            comes_first: false,
        };
        let options = HandleOptions {
            call,
            buffer: state.runtime.config().call_buffer.as_u64(),
            journal: None,
            stream_reruns: StreamReruns::Always,
            is_final: None,
        };
        Pool { guard: Arc::new(KillOnDrop { state }), options }
    }

    pub(crate) fn downgrade(&self) -> WeakPool {
        WeakPool { guard: Arc::downgrade(&self.guard), options: self.options.clone() }
    }

    pub(crate) fn state(&self) -> &Arc<PoolState> {
        &self.guard.state
    }

    /// Returns the pool's name, as in the example of [`builder`](Pool::builder).
    pub fn name(&self) -> &str {
        &self.state().name
    }

    /// Runs one task. `args` is one value, or a tuple for a function of several.
    ///
    /// Encodes the arguments on this thread, sends them if a worker has room, and returns at once.
    /// Errors come out of the handle: see [`ApplyCall::wait`]. A task that runs alone costs one
    /// message to its worker and one back. If the worker dies, another runs the task again, up to
    /// [`max_deaths`](Pool::max_deaths).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?;
    /// assert_eq!(pool.apply(|a: i32, b: i32| a + b, (1, 2)).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn apply<F, A, P, M, N>(
        &self,
        function: F,
        args: A,
    ) -> ApplyCall<<F::Output as TaskOutput<N>>::Value>
    where
        F: Function<P, M, Output: TaskOutput<N>>,
        A: Inputs<P, M>,
        P: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        ApplyCall::new(self.submit_one(TypedEntry::of_call::<A, F, M, AsValue<N>>(function), args))
    }

    /// Works as [`apply`](Pool::apply), for a function that returns a `Result` whose error
    /// implements `Display`. An `Err` is the task's failure: the caller gets its text in
    /// [`Error::Task`](fiber_core::Error::Task).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?;
    /// let parse = |text: String| text.parse::<u32>();
    /// assert_eq!(pool.try_apply(parse, "7".to_string()).wait()?, 7);
    /// let error = pool.try_apply(parse, "seven".to_string()).wait().unwrap_err();
    /// assert!(error.to_string().contains("invalid digit"));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn try_apply<F, A, P, M, N>(
        &self,
        function: F,
        args: A,
    ) -> ApplyCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<P, M, Output: TryOutput<N>>,
        A: Inputs<P, M>,
        P: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        ApplyCall::new(self.submit_one(TypedEntry::of_call::<A, F, M, AsResult<N>>(function), args))
    }

    /// Runs a task for each item, and gives all results together, in the order of the items.
    ///
    /// Returns at once: a thread of the call's own takes the items and encodes them, so the
    /// iterator may block. The first failure ends the call: see [`MapCall::wait`]. This process
    /// stores all results until the last has arrived. Where they don't fit into its memory, use
    /// [`imap`](Pool::imap). Tasks of a worker that dies run again in others.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// assert_eq!(pool.map(|x: u64| x * x, 0..5).wait()?, [0, 1, 4, 9, 16]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn map<F, I, P, M, N>(
        &self,
        function: F,
        items: I,
    ) -> MapCall<<F::Output as TaskOutput<N>>::Value>
    where
        F: Function<P, M, Output: TaskOutput<N>>,
        I: IntoIterator<Item: Inputs<P, M>, IntoIter: Send + 'static>,
        P: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let entry = TypedEntry::of_call::<I::Item, F, M, AsValue<N>>(function);
        MapCall::new(self.submit(entry, items, Order::Together), self.downgrade())
    }

    /// Works as [`map`](Pool::map), for a function that returns a `Result` whose error implements
    /// `Display`. An `Err` is the task's failure.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let items = ["1".to_string(), "2".to_string()];
    /// let numbers = pool.try_map(|text: String| text.parse::<u32>(), items).wait()?;
    /// assert_eq!(numbers, [1, 2]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn try_map<F, I, P, M, N>(
        &self,
        function: F,
        items: I,
    ) -> MapCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<P, M, Output: TryOutput<N>>,
        I: IntoIterator<Item: Inputs<P, M>, IntoIter: Send + 'static>,
        P: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let entry = TypedEntry::of_call::<I::Item, F, M, AsResult<N>>(function);
        MapCall::new(self.submit(entry, items, Order::Together), self.downgrade())
    }

    /// Runs a task for each item, and gives a stream of the results, in the order of the items.
    ///
    /// Returns at once: a thread of the call's own takes the items and encodes them. A failure
    /// takes the place of its result in the stream. The call takes items from the iterator as
    /// results are taken from the stream, so an endless iterator runs in bounded memory: see
    /// [`buffer`](Pool::buffer). Results that arrive before an earlier one wait for it, in the same
    /// buffer; [`imap_unordered`](Pool::imap_unordered) does without that wait.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let first: Result<Vec<u64>, _> = pool.imap(|x: u64| x * x, 0..).wait().take(3).collect();
    /// assert_eq!(first?, [0, 1, 4]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn imap<F, I, P, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapCall<<F::Output as TaskOutput<N>>::Value>
    where
        F: Function<P, M, Output: TaskOutput<N>>,
        I: IntoIterator<Item: Inputs<P, M>, IntoIter: Send + 'static>,
        P: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let entry = TypedEntry::of_call::<I::Item, F, M, AsValue<N>>(function);
        ImapCall::new(self.submit(entry, items, Order::Tasks))
    }

    /// Works as [`imap`](Pool::imap), for a function that returns a `Result` whose error implements
    /// `Display`. An `Err` is the task's failure.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let texts = ["1", "two", "3"].map(String::from);
    /// let mut numbers = pool.try_imap(|text: String| text.parse::<u32>(), texts).wait();
    /// assert_eq!(numbers.next().unwrap()?, 1);
    /// assert!(numbers.next().unwrap().is_err());
    /// assert_eq!(numbers.next().unwrap()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn try_imap<F, I, P, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<P, M, Output: TryOutput<N>>,
        I: IntoIterator<Item: Inputs<P, M>, IntoIter: Send + 'static>,
        P: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let entry = TypedEntry::of_call::<I::Item, F, M, AsResult<N>>(function);
        ImapCall::new(self.submit(entry, items, Order::Tasks))
    }

    /// Works as [`imap`](Pool::imap), with the results in the order of arrival: a slow task does
    /// not hold up the results of others.
    ///
    /// A result does not say which item it belongs to. If that matters, the function returns the
    /// item with it.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let mut sum = 0;
    /// for result in pool.imap_unordered(|x: u64| (x, x * x), 0..5) {
    ///     let (x, square) = result?;
    ///     assert_eq!(square, x * x);
    ///     sum += square;
    /// }
    /// assert_eq!(sum, 30);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn imap_unordered<F, I, P, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapUnorderedCall<<F::Output as TaskOutput<N>>::Value>
    where
        F: Function<P, M, Output: TaskOutput<N>>,
        I: IntoIterator<Item: Inputs<P, M>, IntoIter: Send + 'static>,
        P: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let entry = TypedEntry::of_call::<I::Item, F, M, AsValue<N>>(function);
        ImapUnorderedCall::new(self.submit(entry, items, Order::Arrival))
    }

    /// Works as [`imap_unordered`](Pool::imap_unordered), for a function that returns a `Result`
    /// whose error implements `Display`. An `Err` is the task's failure.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let texts = ["1", "two", "3"].map(String::from);
    /// let numbers = pool.try_imap_unordered(|text: String| text.parse::<u32>(), texts);
    /// assert_eq!(numbers.wait().flatten().sum::<u32>(), 4); // without the failure
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn try_imap_unordered<F, I, P, M, N>(
        &self,
        function: F,
        items: I,
    ) -> ImapUnorderedCall<<F::Output as TryOutput<N>>::Value>
    where
        F: Function<P, M, Output: TryOutput<N>>,
        I: IntoIterator<Item: Inputs<P, M>, IntoIter: Send + 'static>,
        P: Portable,
        N: 'static,
    {
        const { assert_captures_nothing::<F>() };
        let entry = TypedEntry::of_call::<I::Item, F, M, AsResult<N>>(function);
        ImapUnorderedCall::new(self.submit(entry, items, Order::Arrival))
    }

    /// Keeps a value in this process, encoded, for tasks that take it.
    ///
    /// Small values are copied for each task. Large arrays, texts and lists of numbers are read in
    /// place by the workers of this machine. A [`broadcast`](Pool::broadcast) is decoded once in
    /// each worker, and its tasks share the result.
    ///
    /// # Errors
    /// [`Error::Encode`] if the value can't be serialized; [`Error::TooLarge`] if it exceeds
    /// `max_message` of the [configuration](fiber_core::Config).
    ///
    /// [`Error::Encode`]: fiber_core::Error::Encode
    /// [`Error::TooLarge`]: fiber_core::Error::TooLarge
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let weights = pool.put(vec![2, 3])?;
    /// let weigh = |x: u32, weights: Vec<u32>| weights.iter().map(|weight| weight * x).sum::<u32>();
    /// let items = (1..4).map(move |x| (x, weights.clone()));
    /// assert_eq!(pool.map(weigh, items).wait()?, [5, 10, 15]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn put<T: Portable>(&self, value: T) -> Result<Output<T>> {
        let encode = || transfer::repeatable(|| EncodedValue::new(&value));
        let ((encoded, keep_alive), has_handles) = transfer::finding_handles(encode);
        let encoded = encoded?;
        codec::check_size(encoded.size(), self.state().max_message as u64, || {
            format!("a value of type `{}`", type_name::<T>())
        })?;
        Ok(Output::of(OutputCell::with_handles(Ok(encoded), keep_alive, has_handles)))
    }

    /// Sends a value to each worker once, and to workers that start later. Tasks receive its handle
    /// as an argument.
    ///
    /// Encodes the value once, on this thread, and sends it to the workers that are ready. It waits
    /// for none of them: calls that are made after this find the value in every worker. While a
    /// handle is left in this process, it keeps the value and its encoded form, for replacements of
    /// workers that die.
    ///
    /// # Errors
    /// [`Error::Encode`] if the value can't be serialized; [`Error::TooLarge`] if it exceeds
    /// `max_message` of the [configuration](fiber_core::Config); [`Error::PoolEnded`].
    ///
    /// [`Error::Encode`]: fiber_core::Error::Encode
    /// [`Error::TooLarge`]: fiber_core::Error::TooLarge
    /// [`Error::PoolEnded`]: fiber_core::Error::PoolEnded
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Broadcast, Pool};
    ///
    /// let pool = Pool::new(2)?;
    /// let table = pool.broadcast(vec![10, 20, 30])?;
    /// let look_up = |i: usize, table: Broadcast<Vec<u32>>| table.get().map(|table| table[i]);
    /// let items: Vec<_> = (0..3).map(|index| (index, table.clone())).collect();
    /// assert_eq!(pool.try_map(look_up, items).wait()?, [10, 20, 30]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn broadcast<T: Portable + Send + Sync + 'static>(&self, value: T) -> Result<Broadcast<T>> {
        Broadcast::new(Arc::clone(self.state()), value)
    }
}

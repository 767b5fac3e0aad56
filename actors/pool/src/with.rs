//! Calls whose function takes a value that all their tasks share.

use std::any::type_name;
use std::fmt;

use fiber_core::stacks::user_code;
use fiber_core::{Meta, Result};
use fiber_values::{
    AsResult, AsValue, Function, Inputs, OneArgument, Portable, TaskOutput, TryOutput,
    TupleArguments, TypedEntry, assert_captures_nothing,
};

use super::batch::Order;
use super::calls::Submitted;
use super::last_argument::{And, AndLast, Taking, functions_with_last};
use super::{ApplyCall, Broadcast, ImapCall, ImapUnorderedCall, MapCall, Pool};

/// A task function that takes `Args`, as a [`Function`] does, and a reference to a value of its
/// call: see [`Pool::with`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no task function for `{Args}` and a `&{V}`",
    label = "does not take `{Args}` and a `&{V}`",
    note = "the function of a call with a value takes the item, or the parts of a tuple, and a \
            reference to the value last: `|x: u64, scale: &u64| x * scale`"
)]
pub trait FunctionWith<Args, V, Marker>: Copy + Send + 'static {
    /// The type that the function returns.
    type Output;

    /// Calls the function.
    fn call(self, args: Args, value: &V) -> Self::Output;
}

functions_with_last!(FunctionWith, V, &V: () (A B) (A B C) (A B C D));

impl<F, A, V, M> Function<(A, Broadcast<V>), AndLast<M>> for Taking<F, Broadcast<V>>
where
    F: FunctionWith<A, V, M>,
    V: Portable + Send + Sync + 'static,
{
    type Output = F::Output;

    fn call(self, (args, value): (A, Broadcast<V>)) -> F::Output {
        // A task has a handle, so its worker has the value.
        let value = value.get().unwrap_or_else(|error| panic!("{error}"));
        self.0.call(args, &value)
    }

    fn name() -> &'static str {
        type_name::<F>()
    }

    fn meta() -> Meta {
        Meta::of::<F>()
    }
}

/// A pool whose calls give their functions a reference to a value: see [`Pool::with`].
///
/// It has the calls of [`Pool`], with the options of the handle that made it. Clones share the
/// value.
#[derive(Clone)]
pub struct PoolWith<V> {
    pool: Pool,
    value: Result<Broadcast<V>>,
}

impl<V> fmt::Debug for PoolWith<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolWith").field("pool", &self.pool).field("value", &self.value).finish()
    }
}

impl Pool {
    /// Returns a handle whose calls give their functions a reference to `value`, as the last
    /// parameter: what a closure would capture.
    ///
    /// Each worker gets the value once and decodes it once, and all tasks there share the result. It
    /// stays in the workers while the handle, a clone, or a task of its calls is left. A
    /// [`broadcast`](Pool::broadcast) value is the same with a name, which tasks may pass on.
    ///
    /// If the value can't be encoded, exceeds `max_message`, or the pool has ended, the calls fail
    /// with the error of [`broadcast`](Pool::broadcast). [`durable`](Pool::durable) calls fail: pass
    /// the value as an argument there.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(2)?;
    /// let scale = 3;
    /// let scaled = pool.with(scale).map(|x: u64, scale: &u64| x * scale, 0..5).wait()?;
    /// assert_eq!(scaled, [0, 3, 6, 9, 12]);
    ///
    /// let words = pool.with(vec!["zero".to_string(), "one".to_string()]);
    /// let look_up = |i: usize, suffix: String, words: &Vec<String>| words[i].clone() + &suffix;
    /// assert_eq!(words.apply(look_up, (1, "!".to_string())).wait()?, "one!");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use = "this returns a handle whose calls have the value, and does not change the pool"]
    pub fn with<V: Portable + Send + Sync + 'static>(&self, value: V) -> PoolWith<V> {
        PoolWith { pool: self.clone(), value: self.broadcast(value) }
    }
}

macro_rules! single {
    ($name:ident, $output:ident, $kind:ident) => {
        #[doc = concat!("Runs one task with the value: see [`Pool::", stringify!($name), "`].")]
        #[track_caller]
        pub fn $name<F, A, P, M, N>(
            &self,
            function: F,
            args: A,
        ) -> ApplyCall<<F::Output as $output<N>>::Value>
        where
            F: FunctionWith<P, V, M, Output: $output<N>>,
            A: Inputs<P, M>,
            P: Portable,
            N: 'static,
        {
            const { assert_captures_nothing::<F>() };
            let entry = entry::<_, _, And<A, Broadcast<V>>, _, _, $kind<N>, _>(function);
            let submit = |value| self.pool.submit_one(entry, And(args, value));
            ApplyCall::new(self.value.clone().and_then(submit))
        }
    };
}

macro_rules! many_tasks {
    ($name:ident, $output:ident, $kind:ident, $order:ident, $call:ident $(, $downgrade:ident)?) => {
        #[doc = concat!("Runs tasks with the value: see [`Pool::", stringify!($name), "`].")]
        #[track_caller]
        pub fn $name<F, I, P, M, N>(
            &self,
            function: F,
            items: I,
        ) -> $call<<F::Output as $output<N>>::Value>
        where
            F: FunctionWith<P, V, M, Output: $output<N>>,
            I: IntoIterator<Item: Inputs<P, M>, IntoIter: Send + 'static>,
            P: Portable,
            N: 'static,
        {
            const { assert_captures_nothing::<F>() };
            let entry = entry::<_, _, And<I::Item, Broadcast<V>>, _, _, $kind<N>, _>(function);
            $call::new(self.submit(entry, items, Order::$order) $(, self.pool.$downgrade())?)
        }
    };
}

/// Returns the entry of a function for these arguments with the value.
#[track_caller]
fn entry<F, V, X, P, M, K, T>(function: F) -> TypedEntry<(P, Broadcast<V>), T>
where
    F: FunctionWith<P, V, M>,
    X: Inputs<(P, Broadcast<V>), AndLast<M>>,
    V: Portable + Send + Sync + 'static,
    P: Portable,
    K: fiber_values::OutputKind<F::Output, Value = T>,
{
    TypedEntry::of_call::<X, _, AndLast<M>, K>(Taking::<_, Broadcast<V>>::last(function))
}

impl<V: Portable + Send + Sync + 'static> PoolWith<V> {
    single!(apply, TaskOutput, AsValue);
    single!(try_apply, TryOutput, AsResult);
    many_tasks!(map, TaskOutput, AsValue, Together, MapCall, downgrade);
    many_tasks!(try_map, TryOutput, AsResult, Together, MapCall, downgrade);
    many_tasks!(imap, TaskOutput, AsValue, Tasks, ImapCall);
    many_tasks!(try_imap, TryOutput, AsResult, Tasks, ImapCall);
    many_tasks!(imap_unordered, TaskOutput, AsValue, Arrival, ImapUnorderedCall);
    many_tasks!(try_imap_unordered, TryOutput, AsResult, Arrival, ImapUnorderedCall);

    fn submit<I, P, M, T>(
        &self,
        entry: TypedEntry<(P, Broadcast<V>), T>,
        items: I,
        order: Order,
    ) -> Submitted
    where
        I: IntoIterator<Item: Inputs<P, M>, IntoIter: Send + 'static>,
    {
        match self.value.clone() {
            Ok(value) => {
                let and_value = move |item| And(item, value.clone());
                self.pool.submit(entry, items.into_iter().map(and_value), order)
            }
            Err(error) => (Err(error), None),
        }
    }
}

//! The call of a rank's function.

use std::any::{Any, type_name};
use std::marker::PhantomData;

use fiber_core::{Failure, FailureKind, panics};
use fiber_values::codec::{self, EncodedValue};
use fiber_values::entry::{Entry, MethodFn};
use fiber_values::{OutputKind, call_encoded, instance};
use serde::de::DeserializeOwned;

use super::function::RingFunction;
use super::node::RingNode;
use fiber_runtime::blocking::BlockingRuntime;

/// One call of a rank's function, from its arguments to its outcome.
pub(super) struct RankTask {
    node: Option<RingNode>,
    arguments: EncodedValue,
    max_message: u64,
    outcome: Option<Result<EncodedValue, Failure>>,
}

impl RankTask {
    pub(super) fn new(node: RingNode, arguments: EncodedValue, max_message: u64) -> RankTask {
        RankTask { node: Some(node), arguments, max_message, outcome: None }
    }

    /// Calls the function behind `entry`. Returns the encoded value or the failure.
    pub(super) fn run(mut self, entry: &Entry<MethodFn>) -> Result<EncodedValue, Failure> {
        entry.call()(&mut self, &mut (), &mut ());
        self.outcome.expect("an entry sets the outcome")
    }
}

/// The function `F`, as the ranks call it.
pub(super) struct RingEntry<F, A, M, K>(PhantomData<(F, A, M, K)>);

impl<F, A, M, K> RingEntry<F, A, M, K>
where
    F: RingFunction<A, M>,
    A: DeserializeOwned,
    K: OutputKind<F::Output>,
{
    pub(super) const ENTRY: &'static Entry<MethodFn> = &Entry::new(type_name::<F>, Self::call);

    #[allow(unsafe_code)]
    fn call(task: &mut dyn Any, _: &mut dyn Any, _: &mut dyn Any) {
        let task = task.downcast_mut::<RankTask>().expect("a ring's entry gets a rank's task");
        let node = task.node.take().expect("a rank calls its function once");
        let arguments = std::mem::take(&mut task.arguments);
        let limit = task.max_message;
        let work = move || {
            let mut value = EncodedValue::default();
            // SAFETY: the entry is made from a value of F.
            let function = |arguments| unsafe { instance::<F>() }.call(node, arguments);
            let executor = BlockingRuntime::default();
            let decode = || arguments.decode();
            let encode = |output: &_| EncodedValue::new(output).map(|encoded| value = encoded);
            call_encoded::<A, _, K, _>(decode, function, &executor, encode)?;
            codec::check_size(value.size(), limit, || "its result".into())
                .map_err(|error| Failure::new(FailureKind::Result, error))?;
            Ok(value)
        };
        let outcome = panics::catch(work);
        task.outcome = Some(outcome.unwrap_or_else(|panic| Err(panic.into())));
    }
}

//! The entry through which other processes call the handler of a message in an entity.

use std::any::{Any, type_name};
use std::marker::PhantomData;

use actix::{Actor, Context, Handler};
use fiber_core::{FailureKind, panics};
use fiber_runtime::mesh::{CallFailure, current_deadline};
use fiber_runtime::runtime::report_panic;
use fiber_values::codec;
use fiber_values::entry::{Entry, MethodFn};

use super::keeper::Keeper;
use super::life::Work;
use crate::remote::{CallOutcome, MethodCall, RemoteMessage, encode, handle};

/// The handler of `M` in entities of type `A`, as other processes call it. Its message is a key and
/// the handler's message.
pub(super) struct Method<A, M>(PhantomData<(A, M)>);

impl<A, M> Method<A, M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: RemoteMessage,
{
    pub(super) const ENTRY: &'static Entry<MethodFn> = &Entry::new(type_name::<M>, Self::handle);

    fn handle(keeper: &mut dyn Any, _: &mut dyn Any, call: &mut dyn Any) {
        let call =
            call.downcast_mut::<MethodCall>().expect("methods are called with a `MethodCall`");
        let decode = || codec::decode_with::<(String, M)>(&call.message, &call.message.blobs);
        let (key, message) = match panics::catch(decode) {
            Ok(Ok(decoded)) => decoded,
            Ok(Err(error)) => return call.fail(FailureKind::Arguments, &error),
            // It would end all entities of the process.
            Err(panic) => {
                let failure = CallFailure::Failed(report_panic(panic));
                call.outcome = CallOutcome::Now(Err(failure));
                return;
            }
        };
        let Some(keeper) = keeper.downcast_mut::<Keeper<A>>() else {
            let problem = format!("the process has no entities of type `{}`", type_name::<A>());
            return call.fail(FailureKind::Unknown, &problem);
        };
        let limit = call.limit;
        let run = Box::new(move |actor: &mut A, context: &mut Context<A>| {
            handle::<A, M>(actor, context, message, move |value| encode(limit, &value))
        });
        keeper.deliver(key, Work { run, call: call.open(), deadline: current_deadline() });
    }
}

//! The functions that the nodes of a ring run.

use std::marker::PhantomData;

use fiber_core::stacks::user_code;
use fiber_values::{Arguments, OneArgument, TupleArguments};

use super::node::RingNode;

/// A function that the nodes of a ring run.
///
/// It takes its [`RingNode`] and then `Args`: one value, or a tuple of two to six that it takes as
/// separate arguments, or nothing for `()`. Every `fn` and every closure that captures nothing
/// implements it, sync or async. The compiler always infers `Marker`, which distinguishes how the
/// arguments are taken.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be run by the nodes of a ring with `{Args}`",
    label = "not a node function for `{Args}`",
    note = "a node function is an `fn` or a closure that captures nothing; it takes a `RingNode` \
            by value, and then the argument, or the parts of a tuple as two to six parameters",
    note = "for more than six parameters, take one tuple or struct"
)]
pub trait RingFunction<Args, Marker>: Copy + Send + 'static {
    /// The type that the function returns.
    type Output;

    /// Calls the function. Fiber does that in each rank; a program never has to.
    fn call(self, node: RingNode, args: Args) -> Self::Output;
}

/// Marks functions that take only the node.
#[derive(Debug)]
pub struct NoArguments(PhantomData<()>);

#[diagnostic::do_not_recommend]
impl<F, R> RingFunction<(), NoArguments> for F
where
    F: Fn(RingNode) -> R + Copy + Send + 'static,
{
    type Output = R;

    fn call(self, node: RingNode, (): ()) -> R {
        user_code(move || self(node))
    }
}

#[diagnostic::do_not_recommend]
impl<F, A, R> RingFunction<A, OneArgument<A>> for F
where
    F: Fn(RingNode, A) -> R + Copy + Send + 'static,
{
    type Output = R;

    fn call(self, node: RingNode, args: A) -> R {
        user_code(move || self(node, args))
    }
}

macro_rules! many {
    ($($name:ident)+) => {
        #[diagnostic::do_not_recommend]
        impl<F, Args, R, $($name),+> RingFunction<Args, TupleArguments<($($name,)+)>> for F
        where
            F: Fn(RingNode, $($name),+) -> R + Copy + Send + 'static,
            Args: Arguments<($($name,)+)>,
        {
            type Output = R;

            #[allow(non_snake_case)]
            fn call(self, node: RingNode, args: Args) -> R {
                let ($($name,)+) = args.spread();
                user_code(move || self(node, $($name),+))
            }
        }
    };
}

many!(A B);
many!(A B C);
many!(A B C D);
many!(A B C D E);
many!(A B C D E G);

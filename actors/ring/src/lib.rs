//! Rings: ranked processes that run one function and exchange data.
//!
//! The process that runs a ring has a `coordinator` for each run. A supervisor with the strategy
//! one-for-all has the ranks' processes as children. A rank calls its function on its main thread
//! (`rank`), which reads and writes the `streams` to the other ranks itself: through shared memory
//! where they reach each other by Unix sockets, otherwise over links. `collectives` are built on
//! these streams.

mod builder;
mod call;
mod collectives;
mod confirmed;
mod coordinator;
mod function;
mod node;
mod number;
mod rank;
mod recorded;
mod reduction;
mod rendezvous;
mod run;
mod streams;
mod task;
mod wire;

use fiber_values::{Portable, TaskOutput};

pub use self::builder::RingBuilder;
pub use self::function::{NoArguments, RingFunction};
pub use self::node::RingNode;
pub use self::number::Number;
pub use self::reduction::Reduction;
pub use self::rendezvous::Rendezvous;
pub use self::run::RingRun;

/// Processes with ranks that run one function and exchange data through their [`RingNode`].
///
/// - **Cost.** Each rank is a process of its own, and the start of the ring is their start. The
///   process that runs the ring is not a rank: data goes directly from rank to rank, through shared
///   memory on one host and over links between hosts.
/// - **Deaths.** If one rank dies, the run ends with an error. If the function takes
///   [checkpoints](RingNode::checkpoint), all ranks are restarted instead, and continue from the
///   last one. A [durable](RingBuilder::durable) ring continues from it also when the program
///   itself is started again.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Reduction, Ring, RingNode};
///
/// fn mean_of_ranks(mut node: RingNode, weight: f64) -> fiber::Result<f64> {
///     let mut value = [node.rank() as f64 * weight];
///     node.all_reduce(&mut value, Reduction::Mean)?;
///     Ok(value[0])
/// }
///
/// let means = Ring::builder().size(4).try_run(mean_of_ranks, 10.0).wait()?;
/// assert_eq!(means, [15.0; 4]);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Ring;

impl Ring {
    /// Returns a builder with the default options. [`RingBuilder`] has an example.
    pub fn builder() -> RingBuilder {
        RingBuilder::new()
    }

    /// Runs `function` on a ring of `size` nodes, each with its [`RingNode`] and `args`.
    ///
    /// It returns at once; errors come out of the handle. See [`RingBuilder::run`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Ring, RingNode};
    ///
    /// let run = Ring::run(2, |node: RingNode, factor: usize| node.rank() * factor, 10);
    /// assert_eq!(run.wait()?, [0, 10]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn run<F, A, M, N>(
        size: usize,
        function: F,
        args: A,
    ) -> RingRun<<F::Output as TaskOutput<N>>::Value>
    where
        F: RingFunction<A, M, Output: TaskOutput<N>>,
        A: Portable,
        N: 'static,
    {
        Ring::builder().size(size).run(function, args)
    }
}

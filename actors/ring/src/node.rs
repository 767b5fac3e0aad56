//! A ring node, as its function uses it.

use std::fmt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fiber_core::{Error, RankActivity, Result, forks, wait_for_kill};
use fiber_transport::Link;
use fiber_values::codec;
use fiber_values::codec::EncodedValue;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::{CollectiveCall, Operation};
use super::confirmed::ConfirmedCheckpoints;
use super::number::{Number, segment};
use super::reduction::Reduction;
use super::rendezvous::{Rendezvous, rendezvous};
use super::streams::{RankShared, RankStreams, Tag};
use super::wire::{RankMessage, StreamError};

/// A node of a [`Ring`](crate::Ring): the handle by which its function exchanges data with the
/// other ranks.
///
/// All ranks have to call the same collectives in the same order, with slices of the same length. A
/// call does not return if they don't, if a rank does not join it within the ring's
/// [timeout](crate::RingBuilder::timeout), or if a rank dies. The ring then kills all nodes. It
/// restarts them from their last [checkpoint](RingNode::checkpoint), or the run returns an error
/// that names the ranks and the operation. The methods themselves return errors only for their
/// arguments: a value that cannot be serialized, or a rank that does not exist.
///
/// Calls block this thread. That is fine in an async function, too: nothing else runs on it.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Ring, RingNode};
///
/// fn pass_to_the_right(mut node: RingNode) -> fiber::Result<usize> {
///     assert_eq!(node.left(), (node.rank() + node.size() - 1) % node.size());
///     assert_eq!(node.right(), (node.rank() + 1) % node.size());
///     node.send_right(&node.rank())?;
///     node.recv_left()
/// }
///
/// assert_eq!(Ring::builder().size(3).try_run(pass_to_the_right, ()).wait()?, [2, 0, 1]);
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct RingNode {
    streams: RankStreams,
    link: Arc<dyn Link>,
    ring: String,
    max_message: u64,
    /// Collective calls so far.
    collectives: u64,
    checkpoints: Checkpoints,
    shared: Arc<RankShared>,
}

/// The checkpoints of a rank.
pub(super) struct Checkpoints {
    /// How many there are so far, including those before a restart.
    count: u64,
    restored: Option<EncodedValue>,
    /// Where they are recorded, if they are.
    journal: Option<String>,
}

impl Checkpoints {
    /// Returns the checkpoints of a rank that starts, or continues from one.
    pub(super) fn new(
        restored: Option<(u64, EncodedValue)>,
        journal: Option<String>,
        confirmed: &ConfirmedCheckpoints,
    ) -> Checkpoints {
        let (count, restored) = restored.map_or((0, None), |(count, state)| (count, Some(state)));
        confirmed.set(count);
        Checkpoints { count, restored, journal }
    }
}

/// Which ranks get the result of a reduction.
#[derive(Clone, Copy)]
enum ReduceTo {
    Root(usize),
    All,
    Scattered,
}

impl fmt::Debug for RingNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingNode")
            .field("ring", &self.ring)
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish()
    }
}

impl RingNode {
    pub(super) fn new(
        streams: RankStreams,
        link: Arc<dyn Link>,
        ring: String,
        max_message: u64,
        checkpoints: Checkpoints,
        shared: Arc<RankShared>,
    ) -> RingNode {
        RingNode { streams, link, ring, max_message, collectives: 0, checkpoints, shared }
    }

    /// Returns this node's rank: its number in the ring, from 0. [`RingNode`] has an example.
    pub fn rank(&self) -> usize {
        self.streams.rank
    }

    /// Returns the number of nodes in the ring. [`RingNode`] has an example.
    pub fn size(&self) -> usize {
        self.streams.size
    }

    /// Returns the rank of the left neighbour, from which [`recv_left`](RingNode::recv_left)
    /// receives. [`RingNode`] has an example.
    pub fn left(&self) -> usize {
        self.streams.left()
    }

    /// Returns the rank of the right neighbour, from which [`recv_right`](RingNode::recv_right)
    /// receives. [`RingNode`] has an example.
    pub fn right(&self) -> usize {
        self.streams.right()
    }

    /// Returns the addresses of all nodes, by rank, as other processes of the session connect to
    /// them.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Ring, RingNode};
    ///
    /// let counts = Ring::run(2, |node: RingNode| node.addresses().len(), ());
    /// assert_eq!(counts.wait()?, [2, 2]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = &str> {
        self.streams.addresses().iter().map(|address| &*address.process.address)
    }

    /// Returns how long a call of this rank waits for others without progress.
    /// [`set_timeout`](RingNode::set_timeout) has an example.
    pub fn timeout(&self) -> Duration {
        self.streams.timeout
    }

    /// Sets how long a call of this rank waits for others without progress.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// use fiber::{Ring, RingNode};
    ///
    /// fn wait_longer(mut node: RingNode) -> fiber::Result<u64> {
    ///     node.set_timeout(Duration::from_secs(3600)); // the next step takes its time
    ///     node.barrier()?;
    ///     Ok(node.timeout().as_secs())
    /// }
    ///
    /// assert_eq!(Ring::builder().size(2).try_run(wait_longer, ()).wait()?, [3600; 2]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.streams.timeout = timeout;
    }

    /// Sends a value to a rank, which may be this one.
    ///
    /// It returns when the value is on its way. It blocks while the value does not fit into the
    /// stream to that rank (1 MiB in shared memory, 8 MiB over the network) and the receiver does
    /// not read. The first value to a rank opens the stream.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank; [`Error::Encode`], [`Error::TooLarge`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Ring, RingNode};
    ///
    /// fn greet(mut node: RingNode) -> fiber::Result<String> {
    ///     if node.rank() == 0 {
    ///         node.send(1, "hello")?;
    ///     }
    ///     if node.rank() == 1 { node.recv(0) } else { Ok("sent".into()) }
    /// }
    ///
    /// assert_eq!(Ring::builder().size(2).try_run(greet, ()).wait()?, ["sent", "hello"]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn send<T: Serialize + ?Sized>(&mut self, rank: usize, value: &T) -> Result<()> {
        self.send_tagged(rank, Tag::Direct, value)
    }

    /// Receives the next value that a rank has sent to this one. Values arrive in the order in
    /// which that rank sent them. [`send`](RingNode::send) has an example.
    ///
    /// It blocks until a value is there. If none comes within the [timeout](RingNode::timeout), or
    /// the sender dies or returns before it has sent one, the run ends or restarts, as [`RingNode`]
    /// says.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank; [`Error::Decode`] if the value has another
    /// type.
    pub fn recv<T: DeserializeOwned>(&mut self, rank: usize) -> Result<T> {
        self.recv_tagged(rank, Tag::Direct)
    }

    /// Sends a value to the right neighbour, for its [`recv_left`](RingNode::recv_left). It blocks
    /// as [`send`](RingNode::send) does. [`RingNode`] has an example.
    ///
    /// # Errors
    /// [`Error::Encode`], [`Error::TooLarge`].
    pub fn send_right<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.send_tagged(self.right(), Tag::Rightwards, value)
    }

    /// Receives the next value that the left neighbour has sent by
    /// [`send_right`](RingNode::send_right). It blocks as [`recv`](RingNode::recv) does.
    /// [`RingNode`] has an example.
    ///
    /// # Errors
    /// [`Error::Decode`] if the value has another type.
    pub fn recv_left<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.recv_tagged(self.left(), Tag::Rightwards)
    }

    /// Sends a value to the left neighbour, for its [`recv_right`](RingNode::recv_right). It blocks
    /// as [`send`](RingNode::send) does.
    ///
    /// # Errors
    /// [`Error::Encode`], [`Error::TooLarge`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Ring, RingNode};
    ///
    /// fn pass_to_the_left(mut node: RingNode) -> fiber::Result<usize> {
    ///     node.send_left(&node.rank())?;
    ///     node.recv_right()
    /// }
    ///
    /// assert_eq!(Ring::builder().size(3).try_run(pass_to_the_left, ()).wait()?, [1, 2, 0]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn send_left<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.send_tagged(self.left(), Tag::Leftwards, value)
    }

    /// Receives the next value that the right neighbour has sent by
    /// [`send_left`](RingNode::send_left), which has an example. It blocks as
    /// [`recv`](RingNode::recv) does.
    ///
    /// # Errors
    /// [`Error::Decode`] if the value has another type.
    pub fn recv_right<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.recv_tagged(self.right(), Tag::Leftwards)
    }

    /// Blocks until all ranks have called it. Each rank sends one short message for each doubling
    /// of the ring's size. [`set_timeout`](RingNode::set_timeout) has an example.
    ///
    /// # Errors
    /// [`Error::Forked`] in a fork of this process.
    pub fn barrier(&mut self) -> Result<()> {
        let call = CollectiveCall::barrier(self.next_collective()?);
        self.run_collective(call, |streams| streams.barrier(call));
        Ok(())
    }

    /// Copies the `root`'s data into `data` on all ranks.
    ///
    /// Up to 16 KiB go along a tree of ranks. More passes from neighbour to neighbour in chunks, so
    /// that each rank receives and sends the data at most once.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Ring, RingNode};
    ///
    /// fn copy_of_rank_0(mut node: RingNode) -> fiber::Result<[i32; 2]> {
    ///     let mut data = if node.rank() == 0 { [4, 2] } else { [0, 0] };
    ///     node.broadcast(0, &mut data)?;
    ///     Ok(data)
    /// }
    ///
    /// assert_eq!(Ring::builder().size(3).try_run(copy_of_rank_0, ()).wait()?, [[4, 2]; 3]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn broadcast<T: Number>(&mut self, root: usize, data: &mut [T]) -> Result<()> {
        self.check_rank(root)?;
        let call = self.next_call::<T>(Operation::Broadcast, data.len())?.with_root(root);
        self.run_collective(call, |streams| streams.broadcast(call, root, data));
        Ok(())
    }

    /// Reduces the data of all ranks, element by element, into that of `root`. The data of the
    /// other ranks does not change: they work on a copy.
    ///
    /// More than 16 KiB passes from neighbour to neighbour, so that each rank receives and sends
    /// the data at most once: half of an [`all_reduce`](RingNode::all_reduce).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Reduction, Ring, RingNode};
    ///
    /// fn sum_at_rank_0(mut node: RingNode) -> fiber::Result<i64> {
    ///     let mut data = [node.rank() as i64];
    ///     node.reduce(0, &mut data, Reduction::Sum)?;
    ///     Ok(data[0])
    /// }
    ///
    /// assert_eq!(Ring::builder().size(3).try_run(sum_at_rank_0, ()).wait()?, [3, 1, 2]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn reduce<T: Number>(
        &mut self,
        root: usize,
        data: &mut [T],
        reduction: Reduction,
    ) -> Result<()> {
        self.check_rank(root)?;
        let call = self.next_call::<T>(Operation::Reduce, data.len())?;
        let call = call.with_reduction(reduction).with_root(root);
        self.run_reduction(ReduceTo::Root(root), call, data, reduction);
        Ok(())
    }

    /// Reduces the data of all ranks, element by element, into `data` on all ranks.
    ///
    /// The result is equal on all ranks, bit for bit, and in all runs with rings of the same size.
    /// For more than 16 KiB, each rank sends and receives about twice its data, whatever the size
    /// of the ring. Less data takes fewer steps. The mean of `i32` and `u8` takes a copy of the
    /// data as `i64`.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Reduction, Ring, RingNode};
    ///
    /// let sums = Ring::builder().size(3).try_run(
    ///     |mut node: RingNode| {
    ///         let mut data = vec![node.rank() as f32; 4];
    ///         node.all_reduce(&mut data, Reduction::Sum).map(|()| data)
    ///     },
    ///     (),
    /// );
    /// assert_eq!(sums.wait()?, vec![vec![3.0; 4]; 3]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Forked`] in a fork of this process.
    pub fn all_reduce<T: Number>(&mut self, data: &mut [T], reduction: Reduction) -> Result<()> {
        let call = self.next_call::<T>(Operation::AllReduce, data.len())?.with_reduction(reduction);
        self.run_reduction(ReduceTo::All, call, data, reduction);
        Ok(())
    }

    /// Returns the data of all ranks, concatenated by rank. Each rank sends and receives the whole
    /// result, less its own part.
    ///
    /// # Errors
    /// [`Error::Forked`] in a fork of this process.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Ring, RingNode};
    ///
    /// fn all_ranks(mut node: RingNode) -> fiber::Result<Vec<i32>> {
    ///     let own = [node.rank() as i32];
    ///     node.all_gather(&own)
    /// }
    ///
    /// assert_eq!(Ring::builder().size(2).try_run(all_ranks, ()).wait()?, [[0, 1], [0, 1]]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn all_gather<T: Number>(&mut self, data: &[T]) -> Result<Vec<T>> {
        let call = self.next_call::<T>(Operation::AllGather, data.len())?;
        let mut all = vec![T::zeroed(); data.len() * self.size()];
        let own = self.rank() * data.len();
        all[own..own + data.len()].copy_from_slice(data);
        self.run_collective(call, |streams| streams.all_gather(call, &mut all));
        Ok(all)
    }

    /// Reduces the data of all ranks, element by element, and returns this rank's
    /// [segment](RingNode::segment) of the result. It works on a copy of `data`.
    ///
    /// # Errors
    /// [`Error::Forked`] in a fork of this process.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Reduction, Ring, RingNode};
    ///
    /// fn own_sums(mut node: RingNode) -> fiber::Result<Vec<i32>> {
    ///     node.reduce_scatter(&[1, 2, 3], Reduction::Sum)
    /// }
    ///
    /// let sums = Ring::builder().size(2).try_run(own_sums, ());
    /// assert_eq!(sums.wait()?, [vec![2, 4], vec![6]]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn reduce_scatter<T: Number>(
        &mut self,
        data: &[T],
        reduction: Reduction,
    ) -> Result<Vec<T>> {
        let call =
            self.next_call::<T>(Operation::ReduceScatter, data.len())?.with_reduction(reduction);
        let mut all = data.to_vec();
        self.run_reduction(ReduceTo::Scattered, call, &mut all, reduction);
        Ok(all[self.segment(data.len())].to_vec())
    }

    /// Returns the data of all ranks, concatenated by rank, at `root`, and an empty vector at the
    /// other ranks. These return when their data is on its way.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Ring, RingNode};
    ///
    /// fn collect_at_0(mut node: RingNode) -> fiber::Result<Vec<i32>> {
    ///     let own = [node.rank() as i32];
    ///     node.gather(0, &own)
    /// }
    ///
    /// assert_eq!(Ring::builder().size(2).try_run(collect_at_0, ()).wait()?, [vec![0, 1], vec![]]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn gather<T: Number>(&mut self, root: usize, data: &[T]) -> Result<Vec<T>> {
        self.check_rank(root)?;
        let call = self.next_call::<T>(Operation::Gather, data.len())?.with_root(root);
        Ok(self.run_collective(call, |streams| streams.gather(call, root, data)))
    }

    /// Returns this rank's [segment](RingNode::segment) of the `root`'s data. The other ranks'
    /// `data` is ignored and may have any length. The root returns when all segments are on their
    /// way.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Ring, RingNode};
    ///
    /// fn own_part(mut node: RingNode) -> fiber::Result<Vec<i32>> {
    ///     let data = if node.rank() == 0 { vec![7, 8, 9] } else { vec![] };
    ///     let own = node.scatter(0, &data)?;
    ///     assert_eq!(own.len(), node.segment(3).len());
    ///     Ok(own)
    /// }
    ///
    /// assert_eq!(Ring::builder().size(2).try_run(own_part, ()).wait()?, [vec![7, 8], vec![9]]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn scatter<T: Number>(&mut self, root: usize, data: &[T]) -> Result<Vec<T>> {
        self.check_rank(root)?;
        let call = self.next_call::<T>(Operation::Scatter, 0)?.with_root(root);
        Ok(self.run_collective(call, |streams| streams.scatter(call, root, data)))
    }

    /// Returns the range of `length` elements that belongs to this rank. The elements are divided
    /// evenly; each of the first `length % size` ranks has one more.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Ring, RingNode};
    ///
    /// let segments = Ring::run(2, |node: RingNode| node.segment(5), ());
    /// assert_eq!(segments.wait()?, [0..3, 3..5]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn segment(&self, length: usize) -> std::ops::Range<usize> {
        segment(length, self.size(), self.rank())
    }

    /// Takes a checkpoint of this rank's state, which the process that runs the ring keeps.
    ///
    /// If a node dies, all nodes are restarted, and [`restored`](RingNode::restored) returns each
    /// one's state in the last checkpoint that all ranks had taken. The n-th checkpoint of one rank
    /// belongs to the n-th of each other rank. The call encodes and sends the state; it does not
    /// wait for other ranks. The checkpoints are lost if the process that runs the ring dies,
    /// unless the ring is [durable](crate::RingBuilder::durable): then the call also waits until
    /// this rank's previous checkpoint is on the disk, and the program's next run continues from
    /// the last one that is there for all ranks.
    ///
    /// # Errors
    /// [`Error::Encode`], [`Error::TooLarge`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Reduction, Ring, RingNode};
    ///
    /// fn count(mut node: RingNode, steps: u64) -> fiber::Result<u64> {
    ///     let (first, mut total) = node.restored()?.unwrap_or((0, 0));
    ///     for step in first..steps {
    ///         let mut sum = [1];
    ///         node.all_reduce(&mut sum, Reduction::Sum)?;
    ///         total += sum[0] as u64;
    ///         node.checkpoint(&(step + 1, total))?;
    ///     }
    ///     Ok(total)
    /// }
    ///
    /// assert_eq!(Ring::builder().size(2).try_run(count, 10).wait()?, [20, 20]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn checkpoint<T: Serialize + ?Sized>(&mut self, state: &T) -> Result<()> {
        forks::check()?;
        let state = EncodedValue::new(state)?;
        self.check_size("a checkpoint", state.size())?;
        if self.checkpoints.journal.is_some() {
            // States do not collect in memory if the disk is slower than the ring.
            self.shared.confirmed.wait_for(self.checkpoints.count);
        }
        self.checkpoints.count += 1;
        // It fails only if the coordinator has ended, and then this process is about to end.
        let _ = self.link.send(RankMessage::Checkpoint(self.checkpoints.count, state).encode());
        Ok(())
    }

    /// Returns this rank's state in the checkpoint from which the ring was restarted. It is `None`
    /// in the first start, unless the ring is durable and an earlier run of the program has taken
    /// one, and after a restart without a checkpoint that all ranks had taken.
    /// [`checkpoint`](RingNode::checkpoint) has an example.
    ///
    /// # Errors
    /// [`Error::Decode`] if the state has another type.
    pub fn restored<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let Checkpoints { restored, journal, .. } = &self.checkpoints;
        let state = restored.as_ref().map(EncodedValue::decode).transpose();
        state.map_err(|error| error.recorded(journal.as_deref()))
    }

    /// Returns a host and port on rank 0's machine where the processes of another framework, one a
    /// rank, can connect to each other. It sends nothing. [`Rendezvous`] has an example.
    pub fn rendezvous(&self) -> Rendezvous {
        rendezvous(&self.streams.addresses()[0])
    }

    /// Returns the environment variables by which frameworks such as torch.distributed connect:
    /// `MASTER_ADDR`, `MASTER_PORT`, `RANK` and `WORLD_SIZE`.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Ring, RingNode};
    ///
    /// let sizes = Ring::run(2, |node: RingNode| node.environment()[3].1.clone(), ());
    /// assert_eq!(sizes.wait()?, ["2", "2"]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn environment(&self) -> [(&'static str, String); 4] {
        let Rendezvous { host, port } = self.rendezvous();
        [
            ("MASTER_ADDR", host),
            ("MASTER_PORT", port.to_string()),
            ("RANK", self.rank().to_string()),
            ("WORLD_SIZE", self.size().to_string()),
        ]
    }

    /// Returns a command for `program` with this node's [environment](RingNode::environment). It
    /// does not start it.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Ring, RingNode};
    ///
    /// fn rank_of_program(node: RingNode) -> std::io::Result<String> {
    ///     let output = node.command("printenv").arg("RANK").output()?;
    ///     Ok(String::from_utf8_lossy(&output.stdout).trim().into())
    /// }
    ///
    /// assert_eq!(Ring::builder().size(2).try_run(rank_of_program, ()).wait()?, ["0", "1"]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment());
        command
    }

    fn send_tagged<T: Serialize + ?Sized>(
        &mut self,
        rank: usize,
        tag: Tag,
        value: &T,
    ) -> Result<()> {
        self.check_rank(rank)?;
        let value = self.encode("a value", value)?;
        self.streams.set_activity(RankActivity::Operation(format!("send to rank {rank}")));
        let sent = self.streams.send_value(rank, tag, &value);
        self.complete(sent);
        Ok(())
    }

    fn recv_tagged<T: DeserializeOwned>(&mut self, rank: usize, tag: Tag) -> Result<T> {
        self.check_rank(rank)?;
        self.streams.set_activity(RankActivity::Operation(format!("recv from rank {rank}")));
        let received = self.streams.receive_value(rank, tag);
        codec::decode(&self.complete(received))
    }

    fn check_rank(&self, rank: usize) -> Result<()> {
        forks::check()?;
        if rank < self.size() {
            return Ok(());
        }
        let problem = format!(
            "there is no rank {rank} in ring `{}`: its ranks are 0 to {}",
            self.ring,
            self.size() - 1
        );
        Err(Error::invalid("RingNode::rank", problem))
    }

    fn encode<T: Serialize + ?Sized>(&self, what: &str, value: &T) -> Result<Vec<u8>> {
        let bytes = codec::encode(value)?;
        self.check_size(what, bytes.len())?;
        Ok(bytes)
    }

    fn check_size(&self, what: &str, size: usize) -> Result<()> {
        codec::check_size(size, self.max_message, || {
            format!("{what} of rank {} of ring `{}`", self.rank(), self.ring)
        })
    }

    fn next_collective(&mut self) -> Result<u64> {
        forks::check()?;
        self.collectives += 1;
        Ok(self.collectives)
    }

    fn next_call<T: Number>(
        &mut self,
        operation: Operation,
        length: usize,
    ) -> Result<CollectiveCall> {
        Ok(CollectiveCall::new::<T>(operation, self.next_collective()?, length))
    }

    fn run_collective<T>(
        &mut self,
        call: CollectiveCall,
        collective: impl FnOnce(&mut RankStreams) -> Result<T, StreamError>,
    ) -> T {
        self.streams.set_activity(RankActivity::Operation(call.describe()));
        let result = collective(&mut self.streams);
        self.complete(result)
    }

    /// Runs a reduction. A mean is a sum, in a type wide enough, divided by the size.
    fn run_reduction<T: Number>(
        &mut self,
        to: ReduceTo,
        call: CollectiveCall,
        data: &mut [T],
        reduction: Reduction,
    ) {
        if reduction == Reduction::Mean && T::WIDENS {
            let mut wide: Vec<i64> = data.iter().map(|value| value.widened()).collect();
            self.run_reduction(to, call, &mut wide, reduction);
            if self.has_result(to) {
                data.iter_mut().zip(wide).for_each(|(value, mean)| *value = T::narrowed(mean));
            }
            return;
        }
        self.run_collective(call, |streams| match to {
            ReduceTo::Root(root) => streams.reduce(call, root, data, reduction),
            ReduceTo::All => streams.all_reduce(call, data, reduction),
            ReduceTo::Scattered => streams.reduce_scatter(call, data, reduction),
        });
        if reduction == Reduction::Mean && self.has_result(to) {
            let size = self.size();
            data.iter_mut().for_each(|value| *value = value.over(size));
        }
    }

    fn has_result(&self, to: ReduceTo) -> bool {
        !matches!(to, ReduceTo::Root(root) if root != self.rank())
    }

    /// Unwraps the result of an operation. On an error it reports that to the coordinator and does
    /// not return: the coordinator kills this process.
    fn complete<T>(&mut self, result: Result<T, StreamError>) -> T {
        match result {
            Ok(value) => {
                self.streams.set_activity(RankActivity::OwnCode);
                value
            }
            Err(error) => {
                let _ = self.link.send(RankMessage::Error(error).encode());
                wait_for_kill()
            }
        }
    }
}

impl Drop for RingNode {
    fn drop(&mut self) {
        // The streams of a fork are the original's.
        if forks::is_forked() {
            return;
        }
        *self.shared.activity.lock() = RankActivity::Returned;
        self.streams.close();
    }
}

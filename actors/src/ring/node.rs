//! A rank of a ring, as its function sees it.

use std::fmt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{Error, Result, codec};
use fiber_transport::Link;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::{Call, Operation, Tag};
use super::element::{Number, Reduction, segment};
use super::lines::{Here, Lines};
use super::rendezvous::{Rendezvous, rendezvous};
use super::wire::{Doing, News, Trouble};

/// A node of a [`Ring`](crate::Ring): what its function talks to the other ranks with.
///
/// All ranks call the same collectives in the same order, with slices of the same length. If they
/// don't, if one does not come within the [timeout](crate::RingBuilder::timeout), or if one dies,
/// the call does not return: the ring ends all nodes, and starts them again or gives an error that
/// names ranks and operation to whoever runs it. The errors that the methods return are of the
/// values: what can't be serialised, ranks that there are not.
///
/// Calls block this thread. In an async function that is fine: nothing else runs in it.
pub struct RingNode {
    lines: Lines,
    link: Arc<dyn Link>,
    name: String,
    limit: u64,
    /// Collectives so far.
    calls: u64,
    /// Checkpoints so far, in earlier rounds too.
    checkpoints: u64,
    restored: Option<Bytes>,
    here: Arc<Here>,
}

/// Who gets the result of a reduction.
#[derive(Clone, Copy)]
enum Reducing {
    To(usize),
    ToAll,
    Scattered,
}

impl fmt::Debug for RingNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingNode")
            .field("ring", &self.name)
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish()
    }
}

impl RingNode {
    pub(super) fn new(
        lines: Lines,
        link: Arc<dyn Link>,
        name: String,
        limit: u64,
        restored: Option<(u64, Bytes)>,
        here: Arc<Here>,
    ) -> RingNode {
        let (checkpoints, restored) = match restored {
            Some((number, state)) => (number, Some(state)),
            None => (0, None),
        };
        RingNode { lines, link, name, limit, calls: 0, checkpoints, restored, here }
    }

    /// This node's number, from 0.
    pub fn rank(&self) -> usize {
        self.lines.rank
    }

    /// How many nodes there are.
    pub fn size(&self) -> usize {
        self.lines.size
    }

    /// The rank of the left neighbour, from which [`recv_left`](RingNode::recv_left) receives.
    pub fn left(&self) -> usize {
        self.lines.left()
    }

    /// The rank of the right neighbour.
    pub fn right(&self) -> usize {
        self.lines.right()
    }

    /// The addresses of all nodes, by rank.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = &str> {
        self.lines.members().iter().map(|member| &*member.process.address)
    }

    /// How long a call waits for other ranks while nothing moves.
    pub fn timeout(&self) -> Duration {
        self.lines.timeout
    }

    /// Changes how long a call of this rank waits for other ranks while nothing moves.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.lines.timeout = timeout;
    }

    /// Sends a value to a rank, which may be this one. It returns when the value is on its way; a
    /// large one waits for its receiver to make room.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank; [`Error::Encode`], [`Error::TooLarge`].
    pub fn send<T: Serialize + ?Sized>(&mut self, rank: usize, value: &T) -> Result<()> {
        self.send_tagged(rank, Tag::Direct, value)
    }

    /// Receives the next value that a rank has sent to this one, in the order in which it sent
    /// them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank; [`Error::Decode`] if the value is not of this
    /// type.
    pub fn recv<T: DeserializeOwned>(&mut self, rank: usize) -> Result<T> {
        self.recv_tagged(rank, Tag::Direct)
    }

    /// Sends a value to the right neighbour, for its [`recv_left`](RingNode::recv_left).
    ///
    /// # Errors
    /// [`Error::Encode`], [`Error::TooLarge`].
    pub fn send_right<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.send_tagged(self.right(), Tag::Rightwards, value)
    }

    /// Receives what the left neighbour has sent to its right.
    ///
    /// # Errors
    /// [`Error::Decode`] if the value is not of this type.
    pub fn recv_left<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.recv_tagged(self.left(), Tag::Rightwards)
    }

    /// Sends a value to the left neighbour, for its [`recv_right`](RingNode::recv_right).
    ///
    /// # Errors
    /// [`Error::Encode`], [`Error::TooLarge`].
    pub fn send_left<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.send_tagged(self.left(), Tag::Leftwards, value)
    }

    /// Receives what the right neighbour has sent to its left.
    ///
    /// # Errors
    /// [`Error::Decode`] if the value is not of this type.
    pub fn recv_right<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.recv_tagged(self.right(), Tag::Leftwards)
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// None at present.
    pub fn barrier(&mut self) -> Result<()> {
        let call = Call::barrier(self.next_call());
        self.together(call, |lines| lines.barrier(call));
        Ok(())
    }

    /// Gives all ranks what `root` has in `data`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    pub fn broadcast<T: Number>(&mut self, root: usize, data: &mut [T]) -> Result<()> {
        self.check(root)?;
        let call = Call::new::<T>(Operation::Broadcast, self.next_call(), data.len()).from(root);
        self.together(call, |lines| lines.broadcast(call, root, data));
        Ok(())
    }

    /// Joins the data of all ranks, element by element, into that of `root`. The others' data stays
    /// as it is.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    pub fn reduce<T: Number>(&mut self, root: usize, data: &mut [T], how: Reduction) -> Result<()> {
        self.check(root)?;
        let call = Call::new::<T>(Operation::Reduce, self.next_call(), data.len())
            .reducing(how)
            .from(root);
        self.reduced(Reducing::To(root), call, data, how);
        Ok(())
    }

    /// Joins the data of all ranks, element by element, and gives the result to all: the same
    /// everywhere, bit for bit, and from run to run with rings of the same size.
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
    /// None at present.
    pub fn all_reduce<T: Number>(&mut self, data: &mut [T], how: Reduction) -> Result<()> {
        let call = Call::new::<T>(Operation::AllReduce, self.next_call(), data.len()).reducing(how);
        self.reduced(Reducing::ToAll, call, data, how);
        Ok(())
    }

    /// The data of all ranks, one after the other.
    ///
    /// # Errors
    /// None at present.
    pub fn all_gather<T: Number>(&mut self, data: &[T]) -> Result<Vec<T>> {
        let call = Call::new::<T>(Operation::AllGather, self.next_call(), data.len());
        let mut all = vec![T::zeroed(); data.len() * self.size()];
        let own = self.rank() * data.len();
        all[own..own + data.len()].copy_from_slice(data);
        self.together(call, |lines| lines.all_gather(call, &mut all));
        Ok(all)
    }

    /// Joins the data of all ranks, element by element, and gives each rank its own
    /// [segment](RingNode::segment) of the result.
    ///
    /// # Errors
    /// None at present.
    pub fn reduce_scatter<T: Number>(&mut self, data: &[T], how: Reduction) -> Result<Vec<T>> {
        let call =
            Call::new::<T>(Operation::ReduceScatter, self.next_call(), data.len()).reducing(how);
        let mut all = data.to_vec();
        self.reduced(Reducing::Scattered, call, &mut all, how);
        Ok(all[self.segment(data.len())].to_vec())
    }

    /// Gives `root` the data of all ranks, one after the other; the others get nothing. All have
    /// the same length.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    pub fn gather<T: Number>(&mut self, root: usize, data: &[T]) -> Result<Vec<T>> {
        self.check(root)?;
        let call = Call::new::<T>(Operation::Gather, self.next_call(), data.len()).from(root);
        Ok(self.together(call, |lines| lines.gather(call, root, data)))
    }

    /// Gives each rank its [segment](RingNode::segment) of what `root` has in `data`. What the
    /// others have there does not matter.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    pub fn scatter<T: Number>(&mut self, root: usize, data: &[T]) -> Result<Vec<T>> {
        self.check(root)?;
        let call = Call::new::<T>(Operation::Scatter, self.next_call(), 0).from(root);
        Ok(self.together(call, |lines| lines.scatter(call, root, data)))
    }

    /// The part of `length` elements that is this rank's: they are divided evenly, and the first
    /// ranks have one more where that does not go.
    pub fn segment(&self, length: usize) -> std::ops::Range<usize> {
        segment(length, self.size(), self.rank())
    }

    /// Takes a checkpoint: if a node dies, all are started again, and each [gets
    /// back](RingNode::restored) its state in the last checkpoint that all ranks had taken. The
    /// first call of one rank belongs to the first of each other, and so on. It returns at once;
    /// the owner of the ring keeps the state.
    ///
    /// # Errors
    /// [`Error::Encode`], [`Error::TooLarge`].
    pub fn checkpoint<T: Serialize + ?Sized>(&mut self, state: &T) -> Result<()> {
        let state = self.encode("a checkpoint", state)?;
        self.checkpoints += 1;
        // If the owner is gone, so is this process soon.
        let _ = self.link.send(News::Checkpoint(self.checkpoints, state.into()).message());
        Ok(())
    }

    /// The state in the checkpoint that this node goes on from; `None` in the first round, and as
    /// long as not all ranks had taken one.
    ///
    /// # Errors
    /// [`Error::Decode`] if the state is not of this type.
    pub fn restored<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.restored.as_ref().map(|state| codec::decode(state)).transpose()
    }

    /// Where rank 0 lets the processes of another framework meet.
    pub fn rendezvous(&self) -> Rendezvous {
        rendezvous(&self.lines.members()[0])
    }

    /// The environment by which frameworks such as torch.distributed find each other:
    /// `MASTER_ADDR`, `MASTER_PORT`, `RANK` and `WORLD_SIZE`.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        let Rendezvous { host, port } = self.rendezvous();
        [
            ("MASTER_ADDR", host),
            ("MASTER_PORT", port.to_string()),
            ("RANK", self.rank().to_string()),
            ("WORLD_SIZE", self.size().to_string()),
        ]
    }

    /// A program to be started, with this [environment](RingNode::environment).
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
        self.check(rank)?;
        let value = self.encode("a value", value)?;
        self.lines.does(Doing::Together(format!("send to rank {rank}")));
        let sent = self.lines.send(rank, tag, &value);
        self.settle(sent);
        Ok(())
    }

    fn recv_tagged<T: DeserializeOwned>(&mut self, rank: usize, tag: Tag) -> Result<T> {
        self.check(rank)?;
        self.lines.does(Doing::Together(format!("recv from rank {rank}")));
        let received = self.lines.receive(rank, tag);
        codec::decode(&self.settle(received))
    }

    fn check(&self, rank: usize) -> Result<()> {
        if rank < self.size() {
            return Ok(());
        }
        let problem = format!(
            "there is no rank {rank} in ring `{}`: its ranks are 0 to {}",
            self.name,
            self.size() - 1
        );
        Err(Error::invalid("RingNode::rank", problem))
    }

    fn encode<T: Serialize + ?Sized>(&self, what: &str, value: &T) -> Result<Vec<u8>> {
        let bytes = codec::encode(value)?;
        codec::check_size(bytes.len(), self.limit, || {
            format!("{what} of rank {} of ring `{}`", self.rank(), self.name)
        })?;
        Ok(bytes)
    }

    fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    fn together<T>(
        &mut self,
        call: Call,
        collective: impl FnOnce(&mut Lines) -> Result<T, Trouble>,
    ) -> T {
        self.lines.does(Doing::Together(call.describe()));
        let done = collective(&mut self.lines);
        self.settle(done)
    }

    /// Reduces, a mean by way of a sum that is wide enough.
    fn reduced<T: Number>(&mut self, kind: Reducing, call: Call, data: &mut [T], how: Reduction) {
        if how == Reduction::Mean && T::WIDENS {
            let mut wide: Vec<i64> = data.iter().map(|value| value.widened()).collect();
            self.reduced(kind, call, &mut wide, how);
            if self.has_result(kind) {
                data.iter_mut().zip(wide).for_each(|(value, mean)| *value = T::narrowed(mean));
            }
            return;
        }
        self.together(call, |lines| match kind {
            Reducing::To(root) => lines.reduce(call, root, data, how),
            Reducing::ToAll => lines.all_reduce(call, data, how),
            Reducing::Scattered => lines.reduce_scatter(call, data, how),
        });
        if how == Reduction::Mean && self.has_result(kind) {
            let size = self.size();
            data.iter_mut().for_each(|value| *value = value.over(size));
        }
    }

    fn has_result(&self, kind: Reducing) -> bool {
        !matches!(kind, Reducing::To(root) if root != self.rank())
    }

    fn settle<T>(&mut self, done: Result<T, Trouble>) -> T {
        match done {
            Ok(value) => {
                self.lines.does(Doing::Working);
                value
            }
            Err(trouble) => {
                let _ = self.link.send(News::Trouble(trouble).message());
                // The owner ends this process when it has read that.
                loop {
                    std::thread::park();
                }
            }
        }
    }
}

impl Drop for RingNode {
    fn drop(&mut self) {
        *self.here.doing.lock() = Doing::Finished;
        self.lines.close();
    }
}

//! The answers of several actors to one message.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::vec;

use fiber_core::{Error, Result, block_on};
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::Reply;
use super::completed::{AsCompleted, as_completed};

/// The answers of the members of a pool or a group of actors to one message.
///
/// They are taken in one of these ways:
///
/// - [`all`](Replies::all): the values, or the first failure;
/// - [`try_all`](Replies::try_all): a value or a failure of each;
/// - [`as_completed`](Replies::as_completed): one after the other, as they come;
/// - [`reduce`](Replies::reduce): one value that is made of all;
/// - `for`: the [`Reply`] of each.
///
/// All are in the order of the members. The message is sent, and handled, if no answer is taken.
///
/// A process that sends to a group for the first time has to ask for the members. The replies
/// themselves, in a `for` loop, and [`len`](Replies::len) then block this thread until it knows
/// them; the other ways don't. If the members can't be known, there is one reply, which fails with
/// the reason.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("../doc/counter.md")]
/// let pool = fiber::ActorPool::builder().start(Counter, [10, 20, 30]).wait()?;
/// assert_eq!(pool.broadcast(Add(1)).all().wait()?, [11, 21, 31]);
/// assert_eq!(pool.broadcast(Add(1)).reduce(u64::max).wait()?, Some(32));
/// for reply in pool.broadcast(Add(1)) {
///     assert!(reply.wait()? > 10);
/// }
/// # Ok::<(), fiber::Error>(())
/// ```
#[must_use = "replies say whether the message was handled: use `all()`, `try_all()` or a `for` loop"]
pub struct Replies<R>(RefCell<Sent<R>>);

/// The reply of one of several actors.
#[doc(hidden)]
pub struct Member<R> {
    pub name: Arc<str>,
    pub reply: Reply<R>,
}

enum Sent<R> {
    To(Vec<Member<R>>),
    /// The members are known later.
    Later(Reply<Vec<Member<R>>>),
}

impl<R> Replies<R> {
    #[doc(hidden)]
    pub fn new(members: Vec<Member<R>>) -> Replies<R> {
        Replies(RefCell::new(Sent::To(members)))
    }
}

impl<R: Send + 'static> Replies<R> {
    /// Returns the replies of members that are known when they arrive here, perhaps at once.
    #[doc(hidden)]
    pub fn later(mut members: oneshot::Receiver<Result<Vec<Member<R>>>>) -> Replies<R> {
        let ended = || Error::system("sending to a group failed", "fiber's thread ended");
        let members = match members.try_recv() {
            Ok(Ok(members)) => return Replies::new(members),
            Ok(Err(error)) => Reply::failed(error),
            Err(TryRecvError::Closed) => Reply::failed(ended()),
            Err(TryRecvError::Empty) => Reply::named("the answer about the members", async move {
                members.await.map_err(|_| ended())?
            }),
        };
        Replies(RefCell::new(Sent::Later(members)))
    }

    /// Returns the number of replies.
    pub fn len(&self) -> usize {
        let mut sent = self.0.borrow_mut();
        if let Sent::Later(members) = &mut *sent {
            *sent = match block_on(members) {
                Ok(members) => Sent::To(members),
                Err(error) => Sent::Later(Reply::failed(error)),
            };
        }
        match &*sent {
            Sent::To(members) => members.len(),
            Sent::Later(_) => 1,
        }
    }

    /// Returns whether there are none: the pool or group has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for all answers. The reply has the values in the order of the members.
    ///
    /// # Errors
    /// The first failure, as soon as it is there: [`Error::Member`], which names the member.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().name("counters").start(Counter, [0, u64::MAX]).wait()?;
    /// let error = pool.broadcast(Add(1)).all().wait().unwrap_err();
    /// assert!(error.to_string().starts_with("member 1: actor `counters-1` panicked"));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn all(self) -> Reply<Vec<R>> {
        Reply::named("all answers to a message", async move {
            let members = self.members().await?;
            let (names, replies) = split(members);
            let mut values: Vec<_> = names.iter().map(|_| None).collect();
            let mut completed = as_completed(replies);
            while let Some((index, outcome)) = completed.next().await {
                let failed = |cause: Error| Error::Member {
                    index,
                    name: names[index].to_string(),
                    cause: Arc::new(cause),
                };
                values[index] = Some(outcome.map_err(failed)?);
            }
            Ok(values.into_iter().flatten().collect())
        })
    }

    /// Waits until each member has answered or failed. The reply has the outcomes in the order of
    /// the members.
    ///
    /// # Errors
    /// That of a group whose members can't be known.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [0, u64::MAX]).wait()?;
    /// let outcomes = pool.broadcast(Add(1)).try_all().wait()?;
    /// assert!(matches!(outcomes[..], [Ok(1), Err(fiber::Error::Call { .. })]));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn try_all(self) -> Reply<Vec<Result<R>>> {
        Reply::named("all answers to a message", async move {
            let (_, replies) = split(self.members().await?);
            Ok(join_all(replies).await)
        })
    }

    /// Gives the answers as they come, each with the place of its member: a `futures::Stream`, and
    /// after [`wait`](AsCompleted::wait) an iterator.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [10, 20, 30]).wait()?;
    /// for (place, count) in pool.broadcast(Add(0)).as_completed().wait() {
    ///     assert_eq!(count?, 10 * (place as u64 + 1));
    /// }
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn as_completed(self) -> AsCompleted<Reply<R>> {
        match self.0.into_inner() {
            Sent::To(members) => as_completed(split(members).1),
            Sent::Later(members) => AsCompleted::later(async move {
                members.await.map_or_else(|error| vec![Reply::failed(error)], |all| split(all).1)
            }),
        }
    }

    /// Waits for all answers, and merges their values to one, in the order of the members: `merge`
    /// gets what those before have given, and the next value. It runs in this process, where the
    /// reply is awaited. The value is `None` if there are no members.
    ///
    /// # Errors
    /// As [`all`](Replies::all).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// let pool = fiber::ActorPool::builder().start(Counter, [1, 2, 3]).wait()?;
    /// assert_eq!(pool.broadcast(Add(0)).reduce(|a, b| 10 * a + b).wait()?, Some(123));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn reduce(self, merge: impl FnMut(R, R) -> R + Send + 'static) -> Reply<Option<R>> {
        let all = self.all();
        Reply::named(
            "all answers to a message",
            async move { Ok(all.await?.into_iter().reduce(merge)) },
        )
    }

    async fn members(self) -> Result<Vec<Member<R>>> {
        match self.0.into_inner() {
            Sent::To(members) => Ok(members),
            Sent::Later(members) => members.await,
        }
    }
}

fn split<R>(members: Vec<Member<R>>) -> (Vec<Arc<str>>, Vec<Reply<R>>) {
    members.into_iter().map(|Member { name, reply }| (name, reply)).unzip()
}

impl<R: Send + 'static> IntoIterator for Replies<R> {
    type Item = Reply<R>;
    type IntoIter = vec::IntoIter<Reply<R>>;

    fn into_iter(self) -> vec::IntoIter<Reply<R>> {
        let members = match self.0.into_inner() {
            Sent::To(members) => Ok(members),
            Sent::Later(members) => members.wait(),
        };
        let replies = members.map(|members| split(members).1);
        replies.unwrap_or_else(|error| vec![Reply::failed(error)]).into_iter()
    }
}

impl<R> fmt::Debug for Replies<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0.borrow() {
            Sent::To(members) => write!(f, "Replies({})", members.len()),
            Sent::Later(_) => f.write_str("Replies(of members that are not known yet)"),
        }
    }
}

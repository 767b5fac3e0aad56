//! Groups of actors, to which any process of the session sends messages.

use std::any::type_name;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use fiber_core::{Error, Result, forks};
use fiber_runtime::directory::{Key, Kind, Member, Members, Refusal};
use fiber_runtime::mesh::Load;
use fiber_runtime::reply::{self, Replies, Reply};
use fiber_runtime::runtime::Runtime;
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::oneshot;

use crate::keys::{hash_of, weight};
use crate::names::{enter, error, known, leave, member};
use crate::remote::{ForAll, Outgoing, RemoteMessage, RemoteRecipient};

/// A group of actors that handle messages of type `M`, known by its name in all processes of the
/// session.
///
/// Actors of any types and processes join and leave; one that ends has left. A message goes to one
/// member, or to all. A group is there from its first use and needs no start.
///
/// - **Cost.** A process asks the session's first process for the members once, and hears of each
///   change from then on. Messages go directly to the members' processes, one for each member.
/// - **Order.** The messages of one process to one member arrive in the order in which they were
///   sent.
/// - **Changes.** A process that sends a message just after another has changed the group may not
///   know it yet: the change takes the time of a message to arrive.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("doc/counter.md")]
/// use fiber::{AsyncManager, Group, Pool};
///
/// let (one, other) = (AsyncManager::start(Counter, 10), AsyncManager::start(Counter, 20));
/// let (one, other) = (one.wait()?, other.wait()?);
/// let counters = Group::<Add>::named("counters")?;
/// counters.join(&one.recipient()).wait()?;
/// counters.join(&other.recipient()).wait()?;
///
/// let add = |(counters, x): (Group<Add>, u64)| counters.send_all(Add(x)).all().wait();
/// assert_eq!(Pool::new(2)?.try_apply(add, (counters.clone(), 5)).wait()?, [15, 25]);
/// counters.leave(&one.recipient()).wait()?;
/// assert_eq!(counters.send(Add(1)).wait()?, 26);
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct Group<M> {
    state: Arc<State>,
    message: PhantomData<fn(M)>,
}

/// A group as this process uses it.
struct State {
    runtime: &'static Runtime,
    key: Key,
    waiting: Mutex<Waiting>,
    /// Counts the messages, for members that have the same load.
    turn: AtomicUsize,
}

/// Work that waits until this process knows the members, in its order.
#[derive(Default)]
struct Waiting {
    work: Vec<Work>,
    /// Whether a future asks for the members, and does the work.
    is_asking: bool,
}

/// Is done with the members, as soon as they are known.
type Work = Box<dyn FnOnce(Result<&Members, Refusal>) + Send>;

/// The groups of a session that this process uses.
#[derive(Default)]
struct Groups(Mutex<HashMap<Key, Weak<State>>>);

impl State {
    fn of(name: &str) -> Result<Arc<State>> {
        let runtime = Runtime::get()?;
        let key = Key { kind: Kind::Group, name: name.into() };
        let mut groups = runtime.part::<Groups>().0.lock();
        if let Some(state) = groups.get(&key).and_then(Weak::upgrade) {
            return Ok(state);
        }
        groups.retain(|_, state| state.strong_count() > 0);
        runtime.directory().hold(&key);
        let (waiting, turn) = (Mutex::default(), AtomicUsize::new(0));
        let state = Arc::new(State { runtime, key: key.clone(), waiting, turn });
        groups.insert(key, Arc::downgrade(&state));
        Ok(state)
    }

    /// Does work with the members: at once if this process knows them and nothing waits, so that
    /// messages keep their order.
    fn with_members(
        self: &Arc<State>,
        work: impl FnOnce(Result<&Members, Refusal>) + Send + 'static,
    ) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_asking
            && let Some(members) = self.runtime.directory().known(&self.key)
        {
            drop(waiting);
            return work(Ok(&members));
        }
        waiting.work.push(Box::new(work));
        if !std::mem::replace(&mut waiting.is_asking, true) {
            let state = Arc::clone(self);
            self.runtime.spawn(move || async move { state.ask().await });
        }
    }

    async fn ask(&self) {
        let members = self.runtime.directory().ask(&self.key).await;
        loop {
            // Work that comes while earlier work is done is behind it.
            let mut waiting = self.waiting.lock();
            let work = std::mem::take(&mut waiting.work);
            waiting.is_asking = !work.is_empty();
            drop(waiting);
            if work.is_empty() {
                return;
            }
            let members = members.as_ref();
            work.into_iter().for_each(|work| work(members.map_err(Refusal::clone)));
        }
    }

    /// Counts a message without an answer that reaches no member.
    fn note_lost(&self, problem: Error) {
        self.runtime.dead_letters().note(&self.key.to_string(), 1, problem);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // In a fork, the lock of the directory may be held for good.
        if forks::is_forked() {
            return;
        }
        self.runtime.directory().release(&self.key);
    }
}

impl<M: RemoteMessage> Group<M> {
    /// Returns the group of this name. [`Group`] has an example.
    ///
    /// # Errors
    /// [`Error::NotInitialized`], a wrong configuration, or an error of the system.
    pub fn named(name: &str) -> Result<Group<M>> {
        Ok(Group { state: State::of(name)?, message: PhantomData })
    }

    /// Returns the group's name.
    pub fn name(&self) -> &str {
        &self.state.key.name
    }

    /// Makes an actor a member, until it leaves or ends; a managed one stays one across restarts.
    /// Nothing happens if it is one. The reply is ready when the session's first process knows it.
    /// [`Group`] has an example.
    ///
    /// # Errors
    /// [`Error::OtherType`] if the members get messages of another type; [`Error::ActorStopped`] if
    /// the actor has ended; [`Error::OwnerEnded`] if its process, or the first one, can't be
    /// reached.
    pub fn join(&self, recipient: &RemoteRecipient<M>) -> Reply<()> {
        let message = type_name::<M>();
        let member = member(&recipient.addr, None, Some((message, recipient.method)));
        enter(&recipient.addr, self.state.key.clone(), message, member)
    }

    /// Lets an actor leave. Nothing happens if it is no member. [`Group`] has an example.
    ///
    /// # Errors
    /// [`Error::OwnerEnded`] if the actor's process, or the session's first one, can't be reached.
    pub fn leave(&self, recipient: &RemoteRecipient<M>) -> Reply<()> {
        leave(&recipient.addr, self.state.key.clone())
    }

    /// Returns the members, in the order in which they joined, as the session's first process knows
    /// them.
    ///
    /// # Errors
    /// [`Error::OwnerEnded`] if the first process can't be reached; [`Error::OtherType`] if the
    /// members get messages of another type.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// let counters = fiber::Group::<Add>::named("counters")?;
    /// counters.join(&counter.recipient()).wait()?;
    /// assert_eq!(counters.members().wait()?, [counter.recipient()]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn members(&self) -> Reply<Vec<RemoteRecipient<M>>> {
        let state = Arc::clone(&self.state);
        Reply::begun(async move {
            let members = state.runtime.directory().ask(&state.key).await;
            recipients(&state.key, members.as_ref().map_err(Refusal::clone))
        })
    }

    /// Sends a message to the member with the fewest unanswered calls of this process. Members with
    /// equally few take turns. [`Group`] has an example.
    ///
    /// # Errors
    /// [`Error::NoMembers`]; otherwise as [`RemoteAddr::send`](crate::remote::RemoteAddr::send).
    pub fn send(&self, message: M) -> Reply<M::Result> {
        self.call(message, self.in_turn())
    }

    /// Sends a message without an answer to the member that [`send`](Group::send) would choose, and
    /// ignores all errors: a message that reaches no member is a dead letter.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// let counters = fiber::Group::<Add>::named("told")?;
    /// counters.join(&counter.recipient()).wait()?;
    /// counters.do_send(Add(1));
    /// counters.do_send_to("anna", Add(1));
    /// assert_eq!(counters.send(Add(1)).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn do_send(&self, message: M) {
        self.post(message, self.in_turn());
    }

    /// Sends a message to the member to which a key belongs, by rendezvous hashing: the same one
    /// for all processes, while the members stay. When a member joins, only the keys that it gets
    /// move; when one leaves, only those that it had.
    ///
    /// # Errors
    /// As [`send`](Group::send).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let counters = fiber::Group::<Add>::named("by-user")?;
    /// let start = |count: u64| fiber::AsyncManager::start(Counter, count).wait().unwrap();
    /// let managers = [0, 0].map(start);
    /// for manager in &managers {
    ///     counters.join(&manager.recipient()).wait()?;
    /// }
    /// counters.send_to("anna", Add(2)).wait()?;
    /// assert_eq!(counters.send_to("anna", Add(3)).wait()?, 5);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn send_to(&self, key: &(impl Hash + ?Sized), message: M) -> Reply<M::Result> {
        self.call(message, owner(hash_of(key)))
    }

    /// Sends a message without an answer to the member to which a key belongs, as
    /// [`do_send`](Group::do_send) does.
    pub fn do_send_to(&self, key: &(impl Hash + ?Sized), message: M) {
        self.post(message, owner(hash_of(key)));
    }

    /// Sends a message to each member, encoded once. The replies are in the order in which they
    /// joined; a member that fails does not keep the others from answering. [`Group`] has an
    /// example.
    ///
    /// # Errors
    /// [`Error::OwnerEnded`] if the session's first process can't be reached; [`Error::OtherType`]
    /// if the members get messages of another type. Otherwise each reply fails by itself.
    pub fn send_all(&self, message: M) -> Replies<M::Result> {
        let (key, (sent, replies)) = (self.state.key.clone(), oneshot::channel());
        self.state.with_members(move |members| {
            let send = || {
                let to = recipients::<M>(&key, members)?;
                let message = ForAll::new(message);
                let call = |to: RemoteRecipient<M>| reply::Member {
                    name: Arc::clone(&to.addr.target.name),
                    reply: to.addr.call(to.method, message.for_one(), None),
                };
                Ok(to.into_iter().map(call).collect())
            };
            let _ = sent.send(send());
        });
        Replies::later(replies)
    }

    /// Sends a message to each member without an answer, and ignores all errors.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// let counters = fiber::Group::<Add>::named("silent")?;
    /// counters.join(&counter.recipient()).wait()?;
    /// counters.do_send_all(Add(1));
    /// assert_eq!(counters.send(Add(2)).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn do_send_all(&self, message: M) {
        let state = Arc::clone(&self.state);
        self.state.with_members(move |members| match recipients::<M>(&state.key, members) {
            Ok(to) => {
                let message = ForAll::new(message);
                to.iter().for_each(|to| to.addr.do_send(to.method, message.for_one()));
            }
            Err(error) => state.note_lost(error),
        });
    }

    /// Returns what chooses the member with the fewest unanswered calls.
    fn in_turn(&self) -> impl FnOnce(&[Arc<Member>]) -> usize + Send + use<M> {
        let state = Arc::clone(&self.state);
        move |members| {
            let start = state.turn.fetch_add(1, Ordering::Relaxed);
            let turns = (0..members.len()).map(|at| (start + at) % members.len());
            turns.min_by_key(|at| load(&members[*at])).unwrap_or_default()
        }
    }

    /// Sends a message without an answer to the member at the place that `choose` returns.
    fn post(&self, message: M, choose: impl FnOnce(&[Arc<Member>]) -> usize + Send + 'static) {
        let state = Arc::clone(&self.state);
        self.state.with_members(move |members| match chosen::<M>(&state.key, members, choose) {
            Ok((to, _)) => to.addr.do_send(to.method, Outgoing::Value(&message)),
            Err(error) => state.note_lost(error),
        });
    }

    /// Sends a message to the member at the place that `choose` returns.
    fn call(
        &self,
        message: M,
        choose: impl FnOnce(&[Arc<Member>]) -> usize + Send + 'static,
    ) -> Reply<M::Result> {
        let (key, (sent, reply)) = (self.state.key.clone(), oneshot::channel());
        let send = move |members: Result<&Members, Refusal>| {
            let (to, member) = chosen::<M>(&key, members, choose)?;
            let load = Load::new(&known(member)?.load);
            Ok(to.addr.call(to.method, Outgoing::Value(&message), Some(load)))
        };
        self.state.with_members(move |members| {
            let _ = sent.send(send(members).unwrap_or_else(Reply::failed));
        });
        let ended = |_| Error::system("sending to a group failed", "fiber's thread ended");
        Reply::new(async move { reply.await.map_err(ended)?.await })
    }
}

/// Returns what chooses the member to which the key of a hash belongs.
fn owner(hash: u64) -> impl FnOnce(&[Arc<Member>]) -> usize + Send {
    move |members| {
        let of = |at: &usize| {
            let id = members[*at].id;
            weight(hash, id.home.0 ^ id.actor.0.rotate_left(32))
        };
        (0..members.len()).max_by_key(of).unwrap_or_default()
    }
}

/// Returns the member at the place that `choose` returns, also as a recipient.
fn chosen<'members, M: RemoteMessage>(
    key: &Key,
    members: Result<&'members Members, Refusal>,
    choose: impl FnOnce(&[Arc<Member>]) -> usize,
) -> Result<(RemoteRecipient<M>, &'members Member)> {
    let members = members.map_err(|refusal| error(refusal, key, type_name::<M>()))?;
    if members.is_empty() {
        return Err(Error::NoMembers { group: key.name.to_string() });
    }
    let member: &Member = &members[choose(members)];
    Ok((recipient(key, member)?, member))
}

/// Returns the members as recipients.
fn recipients<M: RemoteMessage>(
    key: &Key,
    members: Result<&Members, Refusal>,
) -> Result<Vec<RemoteRecipient<M>>> {
    let members = members.map_err(|refusal| error(refusal, key, type_name::<M>()))?;
    members.iter().map(|member| recipient(key, member)).collect()
}

fn recipient<M: RemoteMessage>(key: &Key, member: &Member) -> Result<RemoteRecipient<M>> {
    let handler = member.handler(type_name::<M>()).ok_or_else(|| Error::OtherType {
        what: key.to_string(),
        found: member.description(),
        asked: type_name::<M>(),
    })?;
    Ok(RemoteRecipient::new(known(member)?.addr.clone(), handler))
}

/// Returns how many calls of this process a member has not answered.
fn load(member: &Member) -> usize {
    known(member).map_or(0, |known| known.load.load(Ordering::Relaxed))
}

clone_handle!(Group<M> { state, message });

/// Two groups are equal if they have the same name.
impl<M> PartialEq for Group<M> {
    fn eq(&self, other: &Group<M>) -> bool {
        self.state.key == other.state.key
    }
}

impl<M> Eq for Group<M> {}

impl<M> fmt::Debug for Group<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({})", self.state.key.name)
    }
}

impl<M> Serialize for Group<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.state.key.name.serialize(serializer)
    }
}

impl<'de, M> Deserialize<'de> for Group<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Group<M>, D::Error> {
        let name = String::deserialize(deserializer)?;
        let state = State::of(&name).map_err(serde::de::Error::custom)?;
        Ok(Group { state, message: PhantomData })
    }
}

//! Names of actors, by which any process of the session finds them.
//!
//! The head of the session decides who has which name (`fiber_runtime::directory`). An actor is
//! registered by its home: the process that owns it, or has exported it.

use std::any::type_name;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use actix::Actor;
use fiber_core::{Error, ExitReason, ProcessId, Result};
use fiber_runtime::directory::{Decoded, Key, Kind, Member, MemberId, Refusal};
use fiber_runtime::mesh::{OwnedActor, ProcessRef};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;
use fiber_values::codec;
use fiber_values::entry::EntryRef;

use crate::remote::{RemoteAddr, RemoteMessage, RemoteRecipient, Target, UntypedAddr};

/// A name, and the actor that has it. [`names`] returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Named {
    /// The name.
    pub name: String,
    /// The type of the actor; for one that was registered as a recipient, those of its messages.
    pub actor: String,
    /// The process of the actor; of a managed actor, the process of its manager.
    pub process: ProcessId,
}

/// Returns the address of the actor that has a name, in any process of the session.
///
/// A process asks the session's first process for a name once, which costs a message there and
/// back, and hears of each change from then on: later look-ups take less than a microsecond. A
/// change, as the end of an actor, takes the time of a message to arrive.
///
/// # Errors
/// [`Error::NoSuchName`] if no actor has the name: [`wait_for`] waits for one;
/// [`Error::OtherType`] if the actor is of another type than `A`; [`Error::OwnerEnded`] if the
/// first process can't be reached.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("doc/counter.md")]
/// use fiber::{AsyncManager, Pool};
///
/// let _visitors = AsyncManager::builder().registered("visitors").start(Counter, 0).wait()?;
/// let visit = |guests: u64| fiber::find::<Counter>("visitors").wait()?.send(Add(guests)).wait();
/// Pool::new(2)?.map(move |guests: u64| visit(guests).is_ok(), [2, 3]).wait()?;
/// assert_eq!(visit(0)?, 5);
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn find<A: Actor>(name: &str) -> Reply<RemoteAddr<A>> {
    look_up(name, Wanted::Now, address)
}

/// Returns the recipient of messages of type `M` that has a name. [`RemoteRecipient::register`] has
/// an example.
///
/// # Errors
/// As [`find`]; [`Error::OtherType`] if the actor was not registered for messages of type `M`.
pub fn find_recipient<M: RemoteMessage>(name: &str) -> Reply<RemoteRecipient<M>> {
    look_up(name, Wanted::Now, recipient)
}

/// Waits until an actor has a name, and returns its address. [`Reply::timeout`] sets a limit.
///
/// # Errors
/// As [`find`], but for [`Error::NoSuchName`].
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("doc/counter.md")]
/// use std::time::Duration;
///
/// let waiting = fiber::wait_for::<Counter>("clicks").timeout(Duration::from_secs(20));
/// let builder = fiber::AsyncManager::builder().registered("clicks");
/// let _clicks = builder.start(Counter, 7).wait()?;
/// assert_eq!(waiting.wait()?.send(Add(1)).wait()?, 8);
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn wait_for<A: Actor>(name: &str) -> Reply<RemoteAddr<A>> {
    look_up(name, Wanted::Ever, address)
}

/// Returns all names, with the actors that have them, in alphabetical order.
///
/// # Errors
/// [`Error::OwnerEnded`] if the session's first process can't be reached.
///
/// # Examples
/// ```
/// # fiber::init();
#[doc = include_str!("doc/counter.md")]
/// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
/// counter.register("a").wait()?;
/// counter.register("b").wait()?;
/// let names: Vec<_> = fiber::names().wait()?.into_iter().map(|named| named.name).collect();
/// assert_eq!(names, ["a", "b"]);
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn names() -> Reply<Vec<Named>> {
    let runtime = Runtime::get();
    Reply::begun(async move {
        let listed = runtime?.directory().list(Kind::Name).await;
        let listed = listed.map_err(|refusal| error(refusal, &key(""), ""))?;
        let named = listed.iter().filter_map(|(key, members)| {
            let member = members.first()?;
            let (name, actor) = (key.name.to_string(), member.description());
            Some(Named { name, actor, process: member.id.home })
        });
        Ok(named.collect())
    })
}

/// Until when a look-up waits.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    Now,
    Ever,
}

/// Makes an address of a member, if it is of the right type.
pub(crate) type Make<T> = fn(&Member, UntypedAddr) -> Option<T>;

pub(crate) fn look_up<T: Send + 'static>(name: &str, wanted: Wanted, make: Make<T>) -> Reply<T> {
    let key = key(name);
    Reply::begun(async move {
        let runtime = Runtime::get()?;
        let directory = runtime.directory();
        let watched = directory.known(&key).filter(|members| !members.is_empty());
        let members = match (watched, wanted) {
            (Some(members), _) => Ok(members),
            (None, Wanted::Now) => directory.ask(&key).await,
            (None, Wanted::Ever) => directory.when_some(&key).await,
        };
        let members = members.map_err(|refusal| error(refusal, &key, type_name::<T>()))?;
        let Some(member) = members.first() else {
            return Err(Error::NoSuchName { name: key.name.to_string() });
        };
        make(member, known(member)?.addr.clone()).ok_or_else(|| Error::OtherType {
            what: key.to_string(),
            found: member.description(),
            asked: type_name::<T>(),
        })
    })
}

fn address<A: Actor>(member: &Member, addr: UntypedAddr) -> Option<RemoteAddr<A>> {
    (member.actor_type.as_deref() == Some(type_name::<A>())).then(|| RemoteAddr::of(addr))
}

fn recipient<M: RemoteMessage>(member: &Member, addr: UntypedAddr) -> Option<RemoteRecipient<M>> {
    Some(RemoteRecipient::new(addr, member.handler(type_name::<M>())?))
}

/// A member as this process uses it.
pub(crate) struct Known {
    pub(crate) addr: UntypedAddr,
    /// The number of unanswered calls of this process that a group has sent.
    pub(crate) load: Arc<AtomicUsize>,
}

/// Returns what this process has made of a member, whose address it decodes once.
///
/// # Errors
/// It can't be decoded.
pub(crate) fn known(member: &Member) -> Result<&Known> {
    member.decoded.get_or_try_init(|| {
        Ok(Known { addr: codec::decode(&member.address)?, load: Arc::default() })
    })
}

/// Returns an actor as a member.
pub(crate) fn member(
    addr: &UntypedAddr,
    actor_type: Option<&str>,
    message: Option<(&str, EntryRef)>,
) -> Result<Member> {
    let id = MemberId { home: addr.target.home.id, actor: addr.target.actor };
    Ok(Member {
        id,
        address: codec::encode(addr)?,
        actor_type: actor_type.map(Arc::from),
        messages: message.into_iter().map(|(message, entry)| (message.into(), entry)).collect(),
        decoded: Decoded::default(),
    })
}

/// Returns the key of a name.
pub(crate) fn key(name: &str) -> Key {
    Key { kind: Kind::Name, name: name.into() }
}

/// Returns the error of a refusal. `asked` is the type that did not fit.
pub(crate) fn error(refusal: Refusal, key: &Key, asked: &'static str) -> Error {
    match refusal {
        Refusal::Taken { holder, process } => {
            Error::NameTaken { name: key.name.to_string(), holder, process }
        }
        Refusal::OtherMessage(found) => Error::OtherType { what: key.to_string(), found, asked },
        Refusal::Ended => {
            let reason = ExitReason::Normal;
            Error::ActorStopped { name: format!("for {key}"), reason }
        }
        Refusal::Full(_) => unreachable!("an actor takes no seat"),
        Refusal::Unreachable(problem) => Error::OwnerEnded {
            what: "the directory of names and groups".into(),
            reason: ExitReason::LinkLost(problem),
        },
    }
}

/// Gives an actor a name, or makes it a member of a group.
pub(crate) fn enter(
    addr: &UntypedAddr,
    key: Key,
    asked: &'static str,
    member: Result<Member>,
) -> Reply<()> {
    let (addr, runtime) = (addr.clone(), addr.runtime());
    Reply::begun(async move {
        let entered = runtime?.directory().enter(&addr.target.home, key.clone(), member?).await;
        entered.map_err(|refusal| match refusal {
            Refusal::Ended => addr.stopped(ExitReason::Normal),
            refusal => error(refusal, &key, asked),
        })
    })
}

/// Takes a name from an actor, or lets it leave a group.
pub(crate) fn leave(addr: &UntypedAddr, key: Key) -> Reply<()> {
    let (addr, runtime) = (addr.clone(), addr.runtime());
    Reply::begun(async move {
        let id = MemberId { home: addr.target.home.id, actor: addr.target.actor };
        let left = runtime?.directory().leave(&addr.target.home, key.clone(), id).await;
        left.map_err(|refusal| error(refusal, &key, ""))
    })
}

/// A name that a managed actor gets when it starts.
#[derive(Clone, Debug)]
pub(crate) struct Registered {
    key: Key,
    actor_type: &'static str,
}

impl Registered {
    /// Returns the name of an actor of type `A`.
    pub(crate) fn new<A: Actor>(name: &str) -> Registered {
        Registered { key: key(name), actor_type: type_name::<A>() }
    }

    /// Gives the name to an actor that this process owns.
    ///
    /// # Errors
    /// As [`RemoteAddr::register`].
    pub(crate) async fn enter(self, runtime: &'static Runtime, owned: &OwnedActor) -> Result<()> {
        let home = ProcessRef { id: runtime.id(), address: runtime.address().await?.into() };
        let addr = UntypedAddr::new(Target::owned(runtime, home, owned));
        let member = member(&addr, Some(self.actor_type), None);
        enter(&addr, self.key, self.actor_type, member).await
    }
}

impl<A: Actor> RemoteAddr<A> {
    /// Gives the actor a name, by which [`find`] finds it in any process of the session.
    ///
    /// One actor can have several names. It keeps them until it ends, across restarts, and loses
    /// them with the process that owns or has exported it. The reply is ready when other processes
    /// find the actor.
    ///
    /// # Errors
    /// [`Error::NameTaken`] if another actor has the name; [`Error::ActorStopped`] if the actor has
    /// ended; [`Error::OwnerEnded`] if its process, or the session's first one, can't be reached.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// counter.register("visits").wait()?;
    /// let other = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// let error = other.register("visits").wait().unwrap_err();
    /// assert!(error.to_string().contains("`visits` is taken"));
    /// counter.unregister("visits").wait()?;
    /// other.register("visits").wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn register(&self, name: &str) -> Reply<()> {
        let member = member(&self.untyped, Some(type_name::<A>()), None);
        enter(&self.untyped, key(name), type_name::<A>(), member)
    }

    /// Takes a name from the actor. Nothing happens if it does not have it.
    /// [`register`](RemoteAddr::register) has an example.
    ///
    /// # Errors
    /// [`Error::OwnerEnded`] if the actor's process, or the session's first one, can't be reached.
    pub fn unregister(&self, name: &str) -> Reply<()> {
        leave(&self.untyped, key(name))
    }
}

impl<M: RemoteMessage> RemoteRecipient<M> {
    /// Gives the actor a name, by which [`find_recipient`] finds it for messages of type `M`. One
    /// name can stand for several types of messages of one actor. See [`RemoteAddr::register`].
    ///
    /// # Errors
    /// As [`RemoteAddr::register`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// let counter = fiber::AsyncManager::start(Counter, 1).wait()?;
    /// counter.recipient::<Add>().register("sum").wait()?;
    /// let add = |x: u64| fiber::find_recipient::<Add>("sum").wait().unwrap().send(Add(x)).wait();
    /// assert_eq!(fiber::Process::builder().try_spawn(add, 2).wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn register(&self, name: &str) -> Reply<()> {
        let message = type_name::<M>();
        let member = member(&self.addr, None, Some((message, self.method)));
        enter(&self.addr, key(name), message, member)
    }

    /// Takes a name from the actor, as [`RemoteAddr::unregister`].
    ///
    /// # Errors
    /// As [`RemoteAddr::unregister`].
    pub fn unregister(&self, name: &str) -> Reply<()> {
        leave(&self.addr, key(name))
    }
}

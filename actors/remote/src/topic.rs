//! Topics: messages that go to all subscribers, in any process.

mod buffer;
mod client;
mod delivery;
mod subscription;

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use fiber_core::{Error, Result, forks};
use fiber_runtime::objects::{Handle, PortRef, made_at};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;
use fiber_runtime::topics::TopicPort;
use fiber_runtime::topics::wire::{Retention, WhenFull};
use fiber_values::codec;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::oneshot;

use self::client::{Client, Messages, Place};
pub use self::delivery::Delivery;
pub use self::subscription::Subscription;
use crate::remote::{RemoteMessage, RemoteRecipient};

/// How many messages a subscription buffers, if the topic says nothing else.
const BUFFER: usize = 1024;

/// The fate of a subscription that takes its messages too slowly: its buffer is full, and
/// another message comes.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::topic::{Slow, Topic};
///
/// let topic = Topic::<u32>::new()?;
/// let mut newest = topic.subscribe(Slow::KeepNewest(2)).wait()?;
/// let mut all = topic.buffer(2).subscribe(Slow::End).wait()?;
/// for message in 1..=10 {
///     topic.publish(message).wait()?;
/// }
/// assert_eq!((&mut newest).into_iter().take(2).collect::<fiber::Result<Vec<_>>>()?, [9, 10]);
/// assert_eq!(newest.missed(), 8);
/// assert!(all.into_iter().any(|message| matches!(message, Err(fiber::Error::TooSlow { .. }))));
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// Publishers wait for it: their replies are ready when it has room.
    Wait,
    /// It keeps so many of the newest messages, and counts those that it
    /// [missed](Subscription::missed). No publisher waits for it.
    KeepNewest(usize),
    /// It ends with [`Error::TooSlow`] behind the messages that it has. No publisher waits for it.
    End,
}

/// A topic: each message that is published goes to all subscriptions, in any process of the
/// session.
///
/// [`new`](Topic::new) makes one in this process, which lives as long as it has handles, and
/// [`named`](Topic::named) is known by its name everywhere. Subscriptions are streams of this
/// process or deliveries to actors of any process.
///
/// - **Nothing is lost silently.** Each subscription says what happens when it is [`Slow`]; if the
///   link to the topic's process is lost, it ends with an error.
/// - **Order.** The messages of one publisher arrive in the order in which it published them. All
///   subscriptions get the messages of all publishers in the same order.
/// - **Cost.** A message is encoded once. It goes to the topic's process, and from there once to
///   each process with subscriptions, however many these are.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::topic::{Slow, Topic};
/// use fiber::Process;
///
/// let prices = Topic::<f64>::new()?;
/// let subscription = prices.subscribe(Slow::Wait).wait()?;
/// let publish = |prices: Topic<f64>| {
///     [1.5, 2.5].iter().try_for_each(|price| prices.publish(*price).wait())
/// };
/// Process::builder().try_spawn(publish, prices.clone()).wait()?;
/// assert_eq!(subscription.wait().take(2).collect::<fiber::Result<Vec<_>>>()?, [1.5, 2.5]);
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct Topic<M> {
    inner: Arc<Inner>,
    buffer: usize,
    message: PhantomData<fn(M) -> M>,
}

struct Inner {
    place: Place,
    /// The client from the last use.
    client: Mutex<Option<Arc<Client>>>,
}

impl<M: Serialize + DeserializeOwned + Send + 'static> Topic<M> {
    /// Makes a topic, which lives in this process. [`Topic`] has an example.
    ///
    /// # Errors
    /// [`Error::NotInitialized`], a wrong configuration, or an error of the system.
    #[track_caller]
    pub fn new() -> Result<Topic<M>> {
        let name = made_at("topic", Location::caller());
        let runtime = Runtime::get()?;
        let port = TopicPort::open(runtime.mesh());
        let port_ref = PortRef::local(runtime, &name, port.port())?;
        Ok(Topic::at(Place::Object(Handle::local(port_ref, port))))
    }

    /// Returns the topic of this name. It lives in the session's first process, and needs no start:
    /// it is there while a process uses it, and as long as it has a retained message.
    ///
    /// # Errors
    /// [`Error::NotInitialized`], a wrong configuration, or an error of the system. That processes
    /// use it for messages of different types is the error of their later calls:
    /// [`Error::OtherType`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::topic::{Slow, Topic};
    /// use fiber::Pool;
    ///
    /// let subscription = Topic::named("progress")?.subscribe(Slow::Wait).wait()?;
    /// let work = |x: u32| Topic::named("progress")?.publish(x).wait();
    /// Pool::new(2)?.try_map(work, 0..10).wait()?;
    /// let mut seen = subscription.wait().take(10).collect::<fiber::Result<Vec<u32>>>()?;
    /// seen.sort();
    /// assert_eq!(seen, (0..10).collect::<Vec<_>>());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn named(name: &str) -> Result<Topic<M>> {
        Runtime::get()?;
        Ok(Topic::at(Place::Named(name.into())))
    }

    /// Returns the topic with another buffer for the subscriptions that are made with it: how many
    /// messages one has that it has not taken, before it is slow. The default is 1024. A
    /// subscription is also slow when its messages have 16 MiB. [`Slow`] has an example.
    ///
    /// A call that makes a subscription reports a buffer of 0 as an error.
    #[must_use = "the topic itself stays as it is"]
    pub fn buffer(&self, messages: usize) -> Topic<M> {
        Topic { inner: Arc::clone(&self.inner), buffer: messages, message: PhantomData }
    }

    /// Publishes a message to all subscriptions. The reply is ready when all subscriptions with
    /// [`Slow::Wait`] have room for it. A publisher that does not wait for its replies is not
    /// slowed down: its messages wait in the topic's process. [`Topic`] has an example.
    ///
    /// # Errors
    /// [`Error::Encode`], [`Error::TooLarge`]; [`Error::OtherType`] if the topic has messages of
    /// another type; [`Error::OwnerEnded`] if the topic's process can't be reached: the message may
    /// have arrived.
    pub fn publish(&self, message: M) -> Reply<()> {
        self.send(Retention::None, Some(message))
    }

    /// Publishes a message as [`publish`](Topic::publish) does. The topic retains it: those who
    /// subscribe later get it first, until there is another.
    ///
    /// # Errors
    /// As [`publish`](Topic::publish).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::topic::{Slow, Topic};
    ///
    /// let settings = Topic::<String>::named("settings")?;
    /// settings.publish_retained("fast".into()).wait()?;
    /// settings.publish_retained("slow".into()).wait()?;
    /// let mut late = settings.subscribe(Slow::Wait).wait()?.wait();
    /// assert_eq!(late.next().unwrap()?, "slow");
    /// settings.clear_retained().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn publish_retained(&self, message: M) -> Reply<()> {
        self.send(Retention::Message, Some(message))
    }

    /// Forgets the message that the topic retains. [`publish_retained`](Topic::publish_retained)
    /// has an example.
    ///
    /// # Errors
    /// [`Error::OwnerEnded`] if the topic's process can't be reached; [`Error::OtherType`].
    pub fn clear_retained(&self) -> Reply<()> {
        self.send(Retention::Clear, None)
    }

    fn send(&self, retention: Retention, message: Option<M>) -> Reply<()> {
        let sent = self.client().and_then(|client| {
            let mut frame = client.begin_publication(retention);
            let start = frame.len();
            let blobs = match message {
                Some(message) => codec::append_apart(&mut frame, &message)?,
                None => Default::default(),
            };
            let size = frame.len() - start + blobs.total_len();
            codec::check_size(size, client.limit(), || {
                format!("a message of type `{}`", type_name::<M>())
            })?;
            let response = client.publish(frame, blobs);
            Ok((client, response))
        });
        let (client, response) = match sent {
            Ok(sent) => sent,
            Err(error) => return Reply::failed(error),
        };
        Reply::named("room in all subscriptions of a topic", async move {
            response.await.map(drop).map_err(|error| client.explain(error))
        })
    }

    /// Subscribes to the messages. When the reply is ready, the subscription gets all that is
    /// published from then on. [`Topic`] has an example.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a buffer of 0; [`Error::OtherType`] if the topic has messages of
    /// another type; [`Error::OwnerEnded`] if the topic's process can't be reached.
    pub fn subscribe(&self, slow: Slow) -> Reply<Subscription<M>> {
        let (messages, outcome) = match self.subscribed(slow) {
            Ok(subscribed) => subscribed,
            Err(error) => return Reply::failed(error),
        };
        Reply::named(format!("a subscription to {}", messages.client().what()), async move {
            client::outcome(outcome).await?;
            Ok(Subscription::new(messages))
        })
    }

    /// Sends all messages to an actor: the next one when the actor has answered. When the reply is
    /// ready, it gets all that is published from then on, as long as this process lives and the
    /// [`Delivery`] is kept. This process passes messages on as they came, encoded, and nobody
    /// decodes them in between.
    ///
    /// # Errors
    /// As [`subscribe`](Topic::subscribe).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("doc/counter.md")]
    /// use fiber::topic::{Slow, Topic};
    ///
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// let clicks = Topic::<Add>::new()?;
    /// let delivery = clicks.deliver_to(&counter.recipient(), Slow::Wait).wait()?;
    /// clicks.publish(Add(2)).wait()?;
    /// clicks.publish(Add(3)).wait()?;
    /// while counter.send(Add(0)).wait()? < 5 {}
    /// assert_eq!(delivery.failed(), 0);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn deliver_to(&self, recipient: &RemoteRecipient<M>, slow: Slow) -> Reply<Delivery>
    where
        M: RemoteMessage,
    {
        let (messages, outcome) = match self.subscribed(slow) {
            Ok(subscribed) => subscribed,
            Err(error) => return Reply::failed(error),
        };
        let (addr, method) = (recipient.addr.clone(), recipient.method);
        let delivery = Delivery::start(messages, addr, method, type_name::<M>());
        Reply::named("a delivery", async move {
            client::outcome(outcome).await?;
            Ok(delivery)
        })
    }

    fn subscribed(&self, slow: Slow) -> Result<(Messages, oneshot::Receiver<Result<()>>)> {
        let (when_full, capacity) = self.capacity(slow)?;
        Ok(self.client()?.subscribe(when_full, capacity))
    }

    /// Returns the options of a subscription.
    fn capacity(&self, slow: Slow) -> Result<(WhenFull, u32)> {
        let small = |messages: usize| u32::try_from(messages).unwrap_or(u32::MAX);
        let capacity = small(self.buffer);
        match slow {
            Slow::KeepNewest(0) => {
                let problem = "a subscription that keeps 0 messages gets none: keep at least 1";
                Err(Error::invalid("Slow::KeepNewest", problem))
            }
            Slow::KeepNewest(most) => Ok((WhenFull::KeepNewest(small(most)), capacity)),
            Slow::Wait | Slow::End if capacity == 0 => {
                let problem = "a buffer of 0 messages has room for none: use at least 1";
                Err(Error::invalid("Topic::buffer", problem))
            }
            Slow::Wait => Ok((WhenFull::Wait, capacity)),
            Slow::End => Ok((WhenFull::End, capacity)),
        }
    }

    fn client(&self) -> Result<Arc<Client>> {
        // In a fork, the lock may be held for good.
        forks::check()?;
        let mut client = self.inner.client.lock();
        if let Some(client) = &*client
            && client.failure().is_none()
        {
            return Ok(Arc::clone(client));
        }
        let new = Client::of(&self.inner.place, type_name::<M>())?;
        *client = Some(Arc::clone(&new));
        Ok(new)
    }
}

impl<M> Topic<M> {
    fn at(place: Place) -> Topic<M> {
        let inner = Arc::new(Inner { place, client: Mutex::default() });
        Topic { inner, buffer: BUFFER, message: PhantomData }
    }
}

clone_handle!(Topic<M> { inner, buffer, message });

/// Two handles are equal if they are of the same topic.
impl<M> PartialEq for Topic<M> {
    fn eq(&self, other: &Topic<M>) -> bool {
        self.inner.place == other.inner.place
    }
}

impl<M> Eq for Topic<M> {}

impl<M> fmt::Debug for Topic<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic({})", self.inner.place.what())
    }
}

impl<M> Serialize for Topic<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.inner.place, self.buffer).serialize(serializer)
    }
}

impl<'de, M> Deserialize<'de> for Topic<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Topic<M>, D::Error> {
        let (place, buffer) = Deserialize::deserialize(deserializer)?;
        Ok(Topic { buffer, ..Topic::at(place) })
    }
}

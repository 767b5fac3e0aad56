//! Probes: actors that keep what they get, for the assertions of a test.

use std::any::type_name;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, ActorContext, Addr, Context, Handler, Message, Recipient};
use fiber_core::{Error, Result, block_on};
use fiber_remote::remote::{RemoteAddr, RemoteMessage, RemoteRecipient};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

/// An actor that keeps the messages it gets, for a test to look at.
///
/// Its [`recipient`](Probe::recipient) goes wherever an actor of this process is expected, its
/// [`remote`](Probe::remote) wherever one of any process is. The probe runs on fiber's own thread,
/// so a test may block while it waits. Time limits are of real time, also while
/// [`pause_time`](super::pause_time) has stopped the actors' time.
///
/// It answers at once: with the default of the result ([`new`](Probe::new)), or with what a
/// function says ([`answering`](Probe::answering)). With [`holding`](Probe::holding) the test
/// itself answers. Dropping a probe stops its actor.
///
/// # Examples
/// ```
/// # fiber::init();
/// use std::time::Duration;
///
/// use fiber::prelude::*;
/// use fiber::remote::RemoteRecipient;
/// use fiber::test::Probe;
///
/// #[fiber::message]
/// #[derive(Debug, PartialEq)]
/// struct Progress(u32);
///
/// fn work(report_to: RemoteRecipient<Progress>) -> fiber::Result<()> {
///     report_to.do_send(Progress(50));
///     report_to.send(Progress(100)).wait()
/// }
///
/// let probe = Probe::new()?;
/// Process::builder().try_spawn(work, probe.remote()?).wait()?;
/// assert_eq!(probe.expect(Duration::from_secs(10)).wait()?, Progress(50));
/// assert_eq!(probe.expect(Duration::from_secs(10)).wait()?, Progress(100));
/// probe.expect_none(Duration::from_millis(10)).wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct Probe<M: Message<Result: Send> + Send + 'static> {
    runtime: &'static Runtime,
    mail: Arc<Mail<M>>,
    addr: Addr<ProbeActor<M>>,
    /// The probe's address for other processes, from the first use on.
    exported: OnceLock<RemoteAddr<ProbeActor<M>>>,
}

impl<M> Probe<M>
where
    M: Message<Result: Send> + Send + 'static,
{
    /// Starts a probe that answers each message with the default value of its result.
    ///
    /// # Errors
    /// [`Error::NotInitialized`], or a wrong configuration.
    pub fn new() -> Result<Probe<M>>
    where
        M::Result: Default,
    {
        Probe::answering(|_| M::Result::default())
    }

    /// Starts a probe that answers each message with what `answer` says.
    ///
    /// # Errors
    /// As [`new`](Probe::new).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use fiber::prelude::*;
    /// # use fiber::test::Probe;
    /// #[fiber::message(usize)]
    /// struct Count(String);
    ///
    /// System::new().block_on(async {
    ///     let probe = Probe::answering(|Count(text)| text.len())?;
    ///     assert_eq!(probe.recipient().send(Count("four".into())).await.unwrap(), 4);
    ///     assert_eq!(probe.take().await?.len(), 1);
    ///     fiber::Result::<()>::Ok(())
    /// })?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn answering(answer: impl FnMut(&M) -> M::Result + Send + 'static) -> Result<Probe<M>> {
        Probe::start(Some(Box::new(answer)))
    }

    /// Starts a probe whose calls the test answers: see [`expect_call`](Probe::expect_call).
    ///
    /// # Errors
    /// As [`new`](Probe::new).
    pub fn holding() -> Result<Probe<M>> {
        Probe::start(None)
    }

    fn start(answer: Option<AnswerFn<M>>) -> Result<Probe<M>> {
        let runtime = Runtime::get()?;
        let mail = Arc::new(Mail::default());
        let actor = ProbeActor { mail: Arc::clone(&mail), answer };
        let addr = ProbeActor::start_in_arbiter(runtime.arbiter(), |_| actor);
        Ok(Probe { runtime, mail, addr, exported: OnceLock::new() })
    }

    /// Returns the probe's address for actors of this process.
    pub fn recipient(&self) -> Recipient<M> {
        self.addr.clone().recipient()
    }

    /// Returns the probe's address for any process of the program.
    ///
    /// # Errors
    /// As [`RemoteAddr::export`].
    pub fn remote(&self) -> Result<RemoteRecipient<M>>
    where
        M: RemoteMessage,
    {
        if let Some(addr) = self.exported.get() {
            return Ok(addr.recipient());
        }
        // Processes connect to it, so this process listens before the address is known.
        self.runtime.address_now()?;
        let (done, exported) = oneshot::channel();
        let addr = self.addr.clone();
        // There the messages arrive also while the test blocks its thread.
        self.runtime.spawn(move || async move { drop(done.send(RemoteAddr::export(addr))) });
        let exported = block_on(async { Ok(exported.await) })?;
        let ended = |_| Err(Error::system("a probe has no address", "fiber's thread ended"));
        let exported = exported.unwrap_or_else(ended)?;
        Ok(self.exported.get_or_init(|| exported).recipient())
    }

    /// Waits for the next message for at most `within`, and takes it.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none comes in time; the next one is then for a later `expect`.
    pub fn expect(&self, within: Duration) -> Reply<M> {
        let call = self.expect_call(within);
        Reply::new(async move { call.await.map(|call| call.message) })
    }

    /// Waits for the next message for at most `within`, and takes it with the way back to its
    /// sender.
    ///
    /// # Errors
    /// As [`expect`](Probe::expect).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use std::time::Duration;
    /// # use fiber::prelude::*;
    /// # use fiber::test::Probe;
    /// #[fiber::message(u32)]
    /// struct Double(u32);
    ///
    /// let probe = Probe::holding()?;
    /// let answer = probe.remote()?.send(Double(4));
    /// let call = probe.expect_call(Duration::from_secs(10)).wait()?;
    /// let double = 2 * call.message.0;
    /// call.answer(double);
    /// assert_eq!(answer.wait()?, 8);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn expect_call(&self, within: Duration) -> Reply<Call<M>> {
        let mail = Arc::clone(&self.mail);
        let next = Reply::named(awaited::<M>(), async move { Ok(mail.next().await) });
        next.timeout(within)
    }

    /// Waits for the next message that `matches`, for at most `within`, and takes it. Messages
    /// before it are dropped.
    ///
    /// # Errors
    /// As [`expect`](Probe::expect).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use std::time::Duration;
    /// # use fiber::prelude::*;
    /// # #[fiber::message]
    /// # struct Progress(u32);
    /// let probe = fiber::test::Probe::new()?;
    /// (0..=100).for_each(|percent| probe.recipient().do_send(Progress(percent)));
    /// let end = probe.expect_match(Duration::from_secs(10), |progress| progress.0 > 98);
    /// assert_eq!(end.wait()?.0, 99);
    /// assert_eq!(probe.expect(Duration::from_secs(10)).wait()?.0, 100);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn expect_match(
        &self,
        within: Duration,
        mut matches: impl FnMut(&M) -> bool + Send + 'static,
    ) -> Reply<M> {
        let mail = Arc::clone(&self.mail);
        let what = format!("{} that matches", awaited::<M>());
        let found = Reply::named(what, async move {
            loop {
                let message = mail.next().await.message;
                if matches(&message) {
                    return Ok(message);
                }
            }
        });
        found.timeout(within)
    }

    /// Waits until `period` has passed without a message.
    ///
    /// What actors of this process have sent before the call counts, also if it has not arrived:
    /// with [`Duration::ZERO`] this looks at no more than that.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is a message, which stays for `expect`.
    pub fn expect_none(&self, period: Duration) -> Reply<()> {
        let (mail, arrived) = (Arc::clone(&self.mail), self.arrived());
        Reply::begun(async move {
            arrived.await?;
            let arriving = Arc::clone(&mail);
            let some = Reply::named(awaited::<M>(), async move {
                arriving.wait_for_some().await;
                Ok(())
            });
            // A message that is there counts, whatever the period.
            if mail.len() == 0 && some.timeout(period).await.is_err() && mail.len() == 0 {
                return Ok(());
            }
            let problem = format!(
                "a message of type `{}` has come, and none was expected for {period:?}",
                type_name::<M>()
            );
            Err(Error::invalid("Probe::expect_none", problem))
        })
    }

    /// Takes all messages that are there, with those that actors of this process have sent before
    /// the call.
    ///
    /// # Errors
    /// [`Error::ActorStopped`] if fiber's thread has ended.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// # use fiber::prelude::*;
    /// # #[fiber::message]
    /// # struct Number(u32);
    /// let probe = fiber::test::Probe::new()?;
    /// (0..3).for_each(|number| probe.recipient().do_send(Number(number)));
    /// assert!(probe.take().wait()?.iter().map(|number| number.0).eq(0..3));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn take(&self) -> Reply<Vec<M>> {
        let (mail, arrived) = (Arc::clone(&self.mail), self.arrived());
        Reply::begun(async move {
            arrived.await?;
            let calls = std::mem::take(&mut *mail.calls.lock());
            Ok(calls.into_iter().map(|call| call.message).collect())
        })
    }

    /// Waits until the probe has what this process has sent to it so far.
    fn arrived(&self) -> Reply<()> {
        let exported = self.exported.get().map(|addr| addr.send(Flush(PhantomData)));
        let addr = self.addr.clone();
        let ended = || Error::ActorStopped {
            name: type_name::<Self>().into(),
            reason: fiber_core::ExitReason::Normal,
        };
        Reply::begun(async move {
            // What has come by the remote address is in the mailbox then.
            if let Some(exported) = exported {
                exported.await?;
            }
            addr.send(Flush(PhantomData)).await.map_err(|_| ended())
        })
    }
}

impl<M: Message<Result: Send> + Send + 'static> Drop for Probe<M> {
    fn drop(&mut self) {
        self.addr.do_send(End(PhantomData));
    }
}

impl<M: Message<Result: Send> + Send + 'static> fmt::Debug for Probe<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe")
            .field("message", &type_name::<M>())
            .field("waiting", &self.mail.len())
            .finish()
    }
}

/// A message that a [`Probe`] has got, with the way back to its sender.
///
/// [`Probe::expect_call`] has an example. The sender of a call that is dropped without an answer
/// gets an error.
pub struct Call<M: Message> {
    /// The message.
    pub message: M,
    sender: Option<OneshotSender<M::Result>>,
}

impl<M: Message> Call<M> {
    /// Answers the sender, if it waits for an answer.
    pub fn answer(self, answer: M::Result) {
        if let Some(sender) = self.sender {
            // The sender may have stopped waiting.
            let _ = sender.send(answer);
        }
    }

    /// Returns whether the sender waits for an answer: not after `do_send`, and not if the probe
    /// has answered by itself.
    pub fn expects_answer(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }
}

impl<M: Message + fmt::Debug> fmt::Debug for Call<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("message", &self.message).finish_non_exhaustive()
    }
}

fn awaited<M>() -> String {
    format!("a message of type `{}` to a probe", type_name::<M>())
}

/// The messages that a probe has got and the test has not.
struct Mail<M: Message> {
    calls: Mutex<VecDeque<Call<M>>>,
    arrived: Notify,
}

impl<M: Message> Default for Mail<M> {
    fn default() -> Mail<M> {
        Mail { calls: Mutex::default(), arrived: Notify::new() }
    }
}

impl<M: Message> Mail<M> {
    fn len(&self) -> usize {
        self.calls.lock().len()
    }

    async fn next(&self) -> Call<M> {
        loop {
            let next = self.calls.lock().pop_front();
            match next {
                Some(call) => return call,
                None => self.arrived.notified().await,
            }
        }
    }

    /// Waits until there is a message.
    async fn wait_for_some(&self) {
        while self.len() == 0 {
            self.arrived.notified().await;
        }
        // For the test that takes it.
        self.arrived.notify_one();
    }
}

type AnswerFn<M> = Box<dyn FnMut(&M) -> <M as Message>::Result + Send>;

struct ProbeActor<M: Message> {
    mail: Arc<Mail<M>>,
    answer: Option<AnswerFn<M>>,
}

impl<M: Message<Result: Send> + Send + 'static> Actor for ProbeActor<M> {
    type Context = Context<ProbeActor<M>>;
}

impl<M: Message<Result: Send> + Send + 'static> Handler<M> for ProbeActor<M> {
    type Result = Handled<M>;

    fn handle(&mut self, message: M, _: &mut Context<Self>) -> Handled<M> {
        let answer = self.answer.as_mut().map(|answer| answer(&message));
        Handled { message, answer, mail: Arc::clone(&self.mail) }
    }
}

/// The response to a message, which the test answers if the probe does not.
struct Handled<M: Message> {
    message: M,
    answer: Option<M::Result>,
    mail: Arc<Mail<M>>,
}

impl<M: Message<Result: Send> + Send + 'static> MessageResponse<ProbeActor<M>, M> for Handled<M> {
    fn handle(self, _: &mut Context<ProbeActor<M>>, sender: Option<OneshotSender<M::Result>>) {
        let Handled { message, answer, mail } = self;
        let mut call = Call { message, sender };
        let answered = answer.and_then(|answer| call.sender.take().zip(Some(answer)));
        mail.calls.lock().push_back(call);
        mail.arrived.notify_one();
        // A sender that has its answer finds the message in the probe.
        if let Some((sender, answer)) = answered {
            let _ = sender.send(answer);
        }
    }
}

/// Is answered when all earlier messages have been handled.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Flush<M>(PhantomData<fn() -> M>);

impl<M: 'static> Message for Flush<M> {
    type Result = ();
}

impl<M: Message<Result: Send> + Send + 'static> Handler<Flush<M>> for ProbeActor<M> {
    type Result = ();

    fn handle(&mut self, _: Flush<M>, _: &mut Context<Self>) {}
}

/// The probe was dropped.
struct End<M>(PhantomData<fn() -> M>);

impl<M: 'static> Message for End<M> {
    type Result = ();
}

impl<M: Message<Result: Send> + Send + 'static> Handler<End<M>> for ProbeActor<M> {
    type Result = ();

    fn handle(&mut self, _: End<M>, context: &mut Context<Self>) {
        context.stop();
    }
}

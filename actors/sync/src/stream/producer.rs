//! Streams that handlers make.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Message, System};
use fiber_core::stacks::user_code;
use fiber_core::{Error, Result, panics};
use fiber_runtime::runtime::{Runtime, report_panic};
use fiber_values::{BlockOn, Termination};
use futures_util::StreamExt;
use serde::Serialize;

use super::{Sender, Stream, StreamOwner, channel};

impl<T> Stream<T> {
    /// Makes a stream of the items that `producer` sends. For the handlers of actors.
    ///
    /// Takes a function of the stream's [`Sender`], which returns a future of `()`, or of a
    /// `Result` whose error implements `Display`. An `Err` or a panic is the last item of the
    /// stream.
    ///
    /// The future runs on this thread, beside the messages of the actor, so it need not be `Send`.
    /// Its first step runs at once, and it does not wait until the consumer asks for items. It is
    /// dropped when the consumer is gone. If the actor stops or is restarted in its
    /// process, the producer goes on.
    ///
    /// A thread that runs no actors gets a stream with an error: [`Error::Invalid`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Stream;
    /// use fiber::prelude::*;
    ///
    /// struct Site(Vec<String>);
    ///
    /// #[fiber::message(Stream<String>)]
    /// struct Pages;
    ///
    /// impl Actor for Site {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// #[fiber::handlers]
    /// impl Site {
    ///     fn pages(&mut self, _: Pages) -> Stream<String> {
    ///         let pages = self.0.clone();
    ///         Stream::new(|out| async move {
    ///             for page in pages {
    ///                 out.send(page).await?;
    ///             }
    ///             fiber::Result::<()>::Ok(())
    ///         })
    ///     }
    /// }
    ///
    /// let site = AsyncManager::start(Site, vec!["home".to_string(), "news".to_string()]).wait()?;
    /// let pages = site.send(Pages).wait()?;
    /// assert_eq!(pages.wait().collect::<fiber::Result<Vec<_>>>()?, ["home", "news"]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn new<F, P, N>(producer: F) -> Stream<T>
    where
        F: FnOnce(Sender<T>) -> P,
        P: Future<Output: Termination<N>> + 'static,
        N: 'static,
    {
        let stream = running_actors().and_then(|runtime| {
            let (seed, owner, stream) = channel(runtime.config().call_buffer.as_u64() / 2)?;
            let producer = producer(seed.start());
            let mut producing = Box::pin(produce(producer, owner));
            // So its first items travel with the answer of the handler.
            if producing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                actix_rt::spawn(producing);
            }
            Ok(stream)
        });
        stream.unwrap_or_else(Stream::failed)
    }

    /// Makes a stream of the items of another one, which [`futures::Stream`] is the trait of. For
    /// the handlers of actors, as [`new`](Stream::new).
    ///
    /// [`futures::Stream`]: futures_core::Stream
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::Stream;
    /// use futures_util::{StreamExt, stream};
    ///
    /// fiber::actix::System::new().block_on(async {
    ///     let mut squares = Stream::from_stream(stream::iter(0_u64..3).map(|n| n * n));
    ///     assert_eq!(squares.next().await.transpose()?, Some(0));
    ///     assert_eq!(squares.next().await.transpose()?, Some(1));
    ///     fiber::Result::<()>::Ok(())
    /// })?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn from_stream<S>(items: S) -> Stream<T>
    where
        S: futures_core::Stream<Item = T> + 'static,
        T: Serialize + 'static,
    {
        Stream::new(|out| async move {
            let mut items = pin!(items);
            while let Some(item) = items.next().await {
                out.send(item).await?;
            }
            Result::<()>::Ok(())
        })
    }
}

/// Returns the runtime, if futures can be spawned on this thread.
fn running_actors() -> Result<&'static Runtime> {
    if System::try_current().is_none() {
        let problem = "its producer has no thread here: make the stream in a handler or an async \
                       `main`; in a task, take a `Sender` and call the task with `Pool::stream`";
        return Err(Error::invalid("Stream::new", problem));
    }
    Runtime::get()
}

/// Runs a producer until it ends, or its consumer is gone.
async fn produce<P: Future<Output: Termination<N>>, N>(producer: P, owner: StreamOwner) {
    let mut producer = Box::pin(producer);
    let outcome = poll_fn(|context| {
        if owner.poll_closed(context).is_ready() {
            return Poll::Ready(None);
        }
        let poll = panics::catch(|| {
            user_code(|| producer.as_mut().poll(context)).map(|output| output.resolve(&NoExecutor))
        });
        match poll {
            Ok(poll) => poll.map(Some),
            Err(panic) => Poll::Ready(Some(Err(report_panic(panic).to_string()))),
        }
    });
    let Some(outcome) = outcome.await else { return };
    // Its clone of the sender goes before the end.
    drop(producer);
    owner.end(outcome.map_err(|problem| Error::StreamFailed { problem }));
}

/// Refuses a future that a producer's future has as its output.
struct NoExecutor;

impl BlockOn for NoExecutor {
    fn block_on(&self, _: Pin<&mut dyn Future<Output = ()>>) {
        panic!("the output of the producer's future is a future")
    }
}

impl<A, M, T> MessageResponse<A, M> for Stream<T>
where
    A: Actor,
    M: Message<Result = Stream<T>>,
{
    fn handle(self, _: &mut A::Context, answer: Option<OneshotSender<Stream<T>>>) {
        if let Some(answer) = answer {
            // A caller that is gone drops the stream, and so stops the producer.
            let _ = answer.send(self);
        }
    }
}

//! The actor that these tests manage.

use std::path::{Path, PathBuf};

use actix::prelude::*;
use fiber::{AsyncManager, RemoteAddr, manager::Snapshot};
use fiber_test_support::wait::wait_until;

/// An actor that counts, and fails on request.
pub(crate) struct Counter {
    count: u64,
}

impl Counter {
    pub(crate) fn new(count: u64) -> Counter {
        Counter { count }
    }
}

/// Starts a managed counter.
pub(crate) fn counter(count: u64) -> AsyncManager<Counter> {
    AsyncManager::start(Counter::new, count).wait().unwrap()
}

impl Actor for Counter {
    type Context = Context<Self>;
}

impl Snapshot for Counter {
    type State = u64;

    fn snapshot(&self) -> u64 {
        self.count
    }

    fn restore(&mut self, state: u64) {
        self.count = state;
    }
}

#[fiber::message(u64)]
#[derive(Clone)]
pub(crate) struct Add(pub(crate) u64);

/// Asks for its address.
#[fiber::message(RemoteAddr<Counter>)]
pub(crate) struct Here;

#[fiber::message(u32)]
pub(crate) struct WhichProcess;

#[fiber::message]
#[derive(Clone)]
pub(crate) enum Fail {
    Panic,
    PanicLater,
    Bomb,
    /// Never answers, as long as the actor lives.
    Never,
    Abort,
}

impl Handler<Fail> for Counter {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, fail: Fail, _: &mut Context<Self>) -> Self::Result {
        match fail {
            Fail::Panic => panic!("that is too much"),
            Fail::PanicLater => {
                Box::pin(async {}.into_actor(self).map(|(), _, _| panic!("later it was too much")))
            }
            Fail::Bomb => std::panic::panic_any(crate::pool::Bomb),
            Fail::Never => Box::pin(std::future::pending().into_actor(self)),
            Fail::Abort => std::process::abort(),
        }
    }
}

#[fiber::message]
pub(crate) struct Stop;

/// `Wait` waits for `Release`, which works only if handlers run concurrently.
#[fiber::message(Result<u64, String>)]
pub(crate) enum Gate {
    Wait,
    Release,
}

impl Handler<Gate> for Counter {
    type Result = ResponseFuture<Result<u64, String>>;

    fn handle(&mut self, gate: Gate, _: &mut Context<Self>) -> Self::Result {
        thread_local! {
            static RELEASED: &'static tokio::sync::Notify = Box::leak(Box::default());
        }
        let released = RELEASED.with(|released| *released);
        match gate {
            Gate::Wait => Box::pin(async {
                released.notified().await;
                Ok(1)
            }),
            Gate::Release => {
                released.notify_one();
                Box::pin(async { Err("released".to_string()) })
            }
        }
    }
}

/// Creates a file, and blocks the actor until there are this many.
#[fiber::message]
pub(crate) struct Meet {
    pub(crate) place: PathBuf,
    pub(crate) name: u32,
    pub(crate) others: usize,
}

/// Waits until a handler of `Meet` runs in this place.
pub(crate) fn wait_until_it_begins(place: &Path) {
    wait_until("the begin of a handler", || std::fs::read_dir(place).unwrap().count() > 0);
}

/// Asks another actor and blocks until the answer, which actors should not do.
#[fiber::message(Result<u64, String>)]
pub(crate) struct AskOther(pub(crate) RemoteAddr<Counter>, pub(crate) u64);

/// Asks another actor to ask this one, which is blocked meanwhile.
#[fiber::message(Result<u64, String>)]
pub(crate) struct AskInACircle(pub(crate) RemoteAddr<Counter>, pub(crate) RemoteAddr<Counter>);

/// Adds its length to the count.
#[fiber::message]
pub(crate) struct Remark(pub(crate) String);

#[fiber::handlers]
impl Counter {
    pub(crate) fn add(&mut self, add: Add) -> u64 {
        self.count += add.0;
        self.count
    }

    fn here(&mut self, _: Here) -> RemoteAddr<Counter> {
        fiber::this().unwrap()
    }

    fn which_process(&mut self, _: WhichProcess) -> u32 {
        std::process::id()
    }

    fn stop(&mut self, _: Stop, context: &mut Context<Self>) {
        context.stop();
    }

    fn meet(&mut self, meet: Meet) {
        std::fs::write(meet.place.join(meet.name.to_string()), "").unwrap();
        let met = || std::fs::read_dir(&meet.place).unwrap().count() >= meet.others;
        wait_until("a file of each", met);
    }

    fn ask_other(&mut self, ask: AskOther) -> Result<u64, String> {
        ask.0.send(Add(ask.1)).wait().map_err(|error| error.to_string())
    }

    fn ask_in_a_circle(&mut self, ask: AskInACircle) -> Result<u64, String> {
        ask.0.send(AskOther(ask.1, 1)).wait().map_err(|error| error.to_string())?
    }

    fn remark(&mut self, remark: Remark) {
        self.count += remark.0.len() as u64;
    }
}

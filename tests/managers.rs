//! Actors in processes of their own, and addresses that travel.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use actix::prelude::*;
use fiber::supervisor::Down;
use fiber::{
    ActorPool, AsyncManager, Error, ExitReason, FailureKind, Pool, Process, RemoteAddr, RemoteRecipient, Routing,
    Snapshot, Snapshots, SyncManager,
};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

fiber::test_harness!();

/// An actor that counts, and can be made to fail in all ways.
struct Counter {
    count: u64,
}

impl Counter {
    fn new(count: u64) -> Counter {
        Counter { count }
    }
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

#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
struct Add(u64);

impl Handler<Add> for Counter {
    type Result = u64;

    fn handle(&mut self, add: Add, _: &mut Context<Self>) -> u64 {
        self.count += add.0;
        self.count
    }
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u32")]
struct WhichProcess;

impl Handler<WhichProcess> for Counter {
    type Result = u32;

    fn handle(&mut self, _: WhichProcess, _: &mut Context<Self>) -> u32 {
        std::process::id()
    }
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
enum Fail {
    Panic,
    PanicLater,
    Abort,
    /// Aborts the first time only, which this file is there to remember.
    AbortOnce(std::path::PathBuf),
}

impl Handler<Fail> for Counter {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, fail: Fail, _: &mut Context<Self>) -> Self::Result {
        match fail {
            Fail::Panic => panic!("that is too much"),
            Fail::PanicLater => {
                return Box::pin(async {}.into_actor(self).map(|(), _, _| panic!("later it was too much")));
            }
            Fail::Abort => std::process::abort(),
            Fail::AbortOnce(memory) => {
                if std::fs::File::create_new(memory).is_ok() {
                    std::process::abort();
                }
            }
        }
        Box::pin(async {}.into_actor(self))
    }
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
struct Stop;

impl Handler<Stop> for Counter {
    type Result = ();

    fn handle(&mut self, _: Stop, context: &mut Context<Self>) {
        context.stop();
    }
}

/// Waits until another message releases it: only possible if both are handled side by side.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<u64, String>")]
enum Gate {
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

/// Blocks its actor until so many files are there, of which it makes one.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
struct Meet {
    place: std::path::PathBuf,
    name: u32,
    others: usize,
}

impl Handler<Meet> for Counter {
    type Result = ();

    fn handle(&mut self, meet: Meet, _: &mut Context<Self>) {
        std::fs::write(meet.place.join(meet.name.to_string()), "").unwrap();
        while std::fs::read_dir(&meet.place).unwrap().count() < meet.others {
            std::thread::yield_now();
        }
    }
}

/// Has this actor ask another one, and wait for the answer as an actor should not.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<u64, String>")]
struct AskOther(RemoteAddr<Counter>, u64);

impl Handler<AskOther> for Counter {
    type Result = Result<u64, String>;

    fn handle(&mut self, ask: AskOther, _: &mut Context<Self>) -> Self::Result {
        ask.0.send(Add(ask.1)).wait().map_err(|error| error.to_string())
    }
}

/// Asks another one to ask this one, which is busy meanwhile.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<u64, String>")]
struct AskInACircle(RemoteAddr<Counter>, RemoteAddr<Counter>);

impl Handler<AskInACircle> for Counter {
    type Result = Result<u64, String>;

    fn handle(&mut self, ask: AskInACircle, _: &mut Context<Self>) -> Self::Result {
        ask.0.send(AskOther(ask.1, 1)).wait().map_err(|error| error.to_string())?
    }
}

fn counter(count: u64) -> AsyncManager<Counter> {
    AsyncManager::start(Counter::new, count).wait().unwrap()
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

/// Whether a process runs: one that has ended and that nobody has waited for does not.
fn exists(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

fn stopped(error: Error) -> ExitReason {
    match error {
        Error::ActorStopped { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_actor_lives_in_a_process_of_its_own_and_answers() {
    let manager = AsyncManager::<Counter>::builder().name("account").start(Counter::new, 5).wait().unwrap();
    assert_eq!(manager.send(Add(2)).wait().unwrap(), 7);
    let pid = manager.send(WhichProcess).wait().unwrap();
    assert_ne!(pid, std::process::id());
    assert_eq!(manager.pid(), Some(pid));
    assert_eq!((manager.name(), manager.addr().name()), ("account", "account"));
    assert!(manager.connected());
    let two = AsyncManager::start(|a: u64, b: u64| Counter::new(a * b), (3, 4)).wait().unwrap();
    assert_eq!(two.send(Add(0)).wait().unwrap(), 12);
    assert_ne!(two.addr(), manager.addr());
    let sync = SyncManager::start(Counter::new, 1).unwrap();
    assert_eq!(sync.send(Add(1)).unwrap(), 2);
}

#[test]
fn messages_are_handled_in_the_order_in_which_they_were_sent() {
    let manager = counter(0);
    for _ in 0..1000 {
        manager.do_send(Add(1));
    }
    let answers: Vec<_> = (0..1000).map(|_| manager.send(Add(1))).collect();
    for (place, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.wait().unwrap(), 1001 + place as u64);
    }
    let only_adds: RemoteRecipient<Add> = manager.recipient();
    only_adds.try_send(Add(1)).unwrap();
    assert_eq!(only_adds.send(Add(0)).wait().unwrap(), 2001);
}

#[test]
fn async_handlers_run_side_by_side_and_results_travel_as_they_are() {
    let manager = counter(0);
    let waits = manager.send(Gate::Wait);
    assert_eq!(manager.send(Gate::Release).wait().unwrap(), Err("released".to_string()));
    assert_eq!(waits.wait().unwrap(), Ok(1));
}

#[test]
fn actors_in_different_processes_work_at_the_same_time() {
    let directory = tempfile::tempdir().unwrap();
    let managers: Vec<_> = (0..4).map(|_| counter(0)).collect();
    let place = directory.path();
    let meet =
        |(manager, name): (&AsyncManager<Counter>, u32)| manager.send(Meet { place: place.into(), name, others: 4 });
    // None of them ends before all have begun.
    let calls: Vec<_> = managers.iter().zip(0..).map(meet).collect();
    calls.into_iter().for_each(|call| call.wait().unwrap());
}

#[test]
fn addresses_work_wherever_they_travel() {
    let manager = counter(0);
    let add = |addr: RemoteAddr<Counter>| {
        let grandchild = |addr: RemoteAddr<Counter>| addr.send(Add(1)).wait().unwrap();
        let there = Process::spawn(grandchild, addr.clone()).unwrap().wait().unwrap();
        (there, addr.send(Add(1)).wait().unwrap(), addr)
    };
    let (first, second, back) = Process::spawn(add, manager.addr()).unwrap().wait().unwrap();
    assert_eq!((first, second), (1, 2));
    assert_eq!(back, manager.addr());
    let pool = Pool::new(2).unwrap();
    let one_more = |addr: RemoteAddr<Counter>| addr.send(Add(1)).wait().unwrap();
    let counts = pool.map(one_more, vec![manager.addr(); 50]).wait().unwrap();
    assert_eq!(HashSet::<u64>::from_iter(counts), HashSet::from_iter(3..53));
    let other = counter(100);
    assert_eq!(other.send(AskOther(manager.addr(), 0)).wait().unwrap(), Ok(52));
}

#[test]
fn a_local_actor_can_be_exported_and_a_full_mailbox_keeps_the_order() {
    System::new().block_on(async {
        let local = Counter::new(0).start();
        let addr = RemoteAddr::export(local.clone()).unwrap();
        let add = |addr: RemoteAddr<Counter>| {
            let answers: Vec<_> = (0..100).map(|_| addr.send(Add(1))).collect();
            answers.into_iter().map(|answer| answer.wait().unwrap()).collect::<Vec<_>>()
        };
        let counts = Process::spawn(add, addr.clone()).unwrap().await.unwrap();
        assert_eq!(counts, Vec::from_iter(1..=100));
        assert_eq!(local.send(Add(0)).await.unwrap(), 100);
        assert_eq!(addr.send(Add(1)).await.unwrap(), 101);
        addr.send(Stop).await.unwrap();
        assert_eq!(stopped(addr.send(Add(1)).await.unwrap_err()), ExitReason::Normal);
        assert_eq!(addr.ended().await.unwrap(), ExitReason::Normal);
    });
}

#[test]
fn a_panic_fails_its_call_with_its_message_and_the_actor_is_made_anew() {
    let manager = counter(10);
    manager.send(Add(5)).wait().unwrap();
    let pid = manager.pid();
    match manager.send(Fail::Panic).wait().unwrap_err() {
        Error::Call { failure, .. } => {
            assert_eq!(failure.kind, FailureKind::Panicked);
            assert!(failure.message.contains("that is too much"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(manager.send(Add(1)).wait().unwrap(), 11);
    let later = stopped(manager.send(Fail::PanicLater).wait().unwrap_err());
    assert!(later.to_string().contains("later it was too much"), "{later}");
    assert_eq!(manager.send(Add(1)).wait().unwrap(), 11);
    assert_eq!(manager.pid(), pid, "the process stays");
}

#[test]
fn a_dead_process_is_replaced_and_addresses_stay_valid() {
    let manager = counter(10);
    let elsewhere = counter(0);
    assert_eq!(elsewhere.send(AskOther(manager.addr(), 1)).wait().unwrap(), Ok(11));
    let first = manager.pid().unwrap();
    let under_way = manager.send(Gate::Wait);
    manager.send(Add(1)).wait().unwrap();
    kill(first);
    assert_eq!(stopped(under_way.wait().unwrap_err()), ExitReason::Signal(9));
    assert_eq!(manager.send(Add(1)).wait().unwrap(), 11, "it is a new one");
    assert_ne!(manager.pid().unwrap(), first);
    assert_eq!(elsewhere.send(AskOther(manager.addr(), 1)).wait().unwrap(), Ok(12));
}

#[test]
fn calls_are_sent_again_on_request_in_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let manager = counter(0);
    let addr = manager.addr().resend();
    let aborts = addr.send(Fail::AbortOnce(directory.path().join("once")));
    let answers: Vec<_> = (0..100).map(|_| addr.send(Add(1))).collect();
    aborts.wait().unwrap();
    for (place, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.wait().unwrap(), 1 + place as u64);
    }
}

#[test]
fn an_actor_goes_on_from_its_last_snapshot() {
    let builder = AsyncManager::<Counter>::builder().snapshots(Snapshots::every_messages(5));
    let manager = builder.start(Counter::new, 0).wait().unwrap();
    for _ in 0..12 {
        manager.send(Add(1)).wait().unwrap();
    }
    manager.send(Fail::Panic).wait().unwrap_err();
    assert_eq!(manager.send(Add(0)).wait().unwrap(), 10);
    manager.send(Fail::Abort).wait().unwrap_err();
    assert_eq!(manager.send(Add(0)).wait().unwrap(), 10);
}

#[test]
fn an_actor_that_can_not_be_made_is_told_of() {
    let refuse = |_: u64| -> Counter { panic!("no counter today") };
    let error = AsyncManager::start(refuse, 1).wait().unwrap_err();
    assert!(error.to_string().contains("no counter today"), "{error}");
}

#[test]
fn an_actor_that_fails_too_often_is_given_up_and_its_handle_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let once = |path: std::path::PathBuf| {
        assert!(std::fs::File::create_new(path).is_ok(), "no second time");
        Counter::new(0)
    };
    let builder = AsyncManager::<Counter>::builder().name("unsteady").intensity(2, Duration::from_secs(60));
    let manager = builder.start(once, directory.path().join("once")).wait().unwrap();
    manager.kill();
    let error = manager.send(Add(1)).wait().unwrap_err();
    assert!(!matches!(error, Error::TimedOut { .. }), "{error}");
    let reason = manager.ended().wait().unwrap();
    assert!(matches!(reason, ExitReason::IntensityReached { restarts: 2, .. }), "{reason:?}");
    let error = manager.send(Add(1)).wait().unwrap_err().to_string();
    assert!(error.contains("unsteady") && error.contains("no second time"), "{error}");
    assert!(!manager.connected());
}

#[test]
fn an_actor_that_panics_too_often_is_given_up() {
    let builder = AsyncManager::<Counter>::builder().intensity(1, Duration::from_secs(60));
    let manager = builder.restart(fiber::supervisor::Restart::Temporary).start(Counter::new, 0).wait().unwrap();
    manager.send(Fail::Panic).wait().unwrap_err();
    manager.send(Fail::Panic).wait().unwrap_err();
    let reason = manager.ended().wait().unwrap();
    assert!(matches!(reason, ExitReason::IntensityReached { restarts: 1, .. }), "{reason:?}");
}

#[test]
fn an_actor_that_stops_by_itself_has_ended_for_good() {
    let manager = counter(0);
    manager.send(Stop).wait().unwrap();
    assert_eq!(manager.ended().wait().unwrap(), ExitReason::Normal);
    assert_eq!(stopped(manager.send(Add(1)).wait().unwrap_err()), ExitReason::Normal);
}

#[test]
fn a_stopped_manager_leaves_no_process_and_a_dropped_one_neither() {
    let manager = counter(0);
    let (pid, addr) = (manager.pid().unwrap(), manager.addr());
    manager.stop().wait().unwrap();
    assert!(!exists(pid));
    assert_eq!(stopped(addr.send(Add(1)).wait().unwrap_err()), ExitReason::Shutdown);
    let dropped = counter(0);
    let addr = dropped.addr();
    drop(dropped);
    assert_eq!(addr.ended().wait().unwrap(), ExitReason::Shutdown);
}

struct Watcher(mpsc::UnboundedSender<ExitReason>);

impl Actor for Watcher {
    type Context = Context<Self>;
}

impl Handler<Down> for Watcher {
    type Result = ();

    fn handle(&mut self, down: Down, _: &mut Context<Self>) {
        self.0.send(down.reason).unwrap();
    }
}

#[test]
fn who_watches_an_address_is_told_of_each_end() {
    System::new().block_on(async {
        let manager = AsyncManager::start(Counter::new, 0).await.unwrap();
        let (sender, mut told) = mpsc::unbounded_channel();
        let watcher = Watcher(sender).start();
        manager.watch(watcher.recipient()).await.unwrap();
        kill(manager.pid().unwrap());
        assert_eq!(told.recv().await, Some(ExitReason::Signal(9)));
        manager.send(Add(1)).await.unwrap();
        kill(manager.pid().unwrap());
        assert_eq!(told.recv().await, Some(ExitReason::Signal(9)));
        manager.send(Add(1)).await.unwrap();
        manager.stop().await.unwrap();
        assert_eq!(told.recv().await, Some(ExitReason::Shutdown));
    });
}

#[test]
fn two_actors_that_wait_for_each_other_are_named_when_time_is_over() {
    let named = |name: &str| AsyncManager::<Counter>::builder().name(name).start(Counter::new, 0).wait().unwrap();
    let (left, right) = (named("left"), named("right"));
    let limit = Duration::from_millis(300);
    let circle = AskInACircle(right.addr(), left.addr().timeout(limit));
    let problem = left.send(circle).wait().unwrap().unwrap_err();
    assert!(problem.contains("`left`") && problem.contains("`right"), "{problem}");
    assert!(problem.contains("300ms"), "{problem}");
}

#[test]
fn a_full_mailbox_is_an_error_that_names_its_size() {
    let manager = AsyncManager::<Counter>::builder().mailbox(2).start(Counter::new, 0).wait().unwrap();
    // It is busy until the second is answered by this process, which is asked by none of these.
    let other = counter(0);
    let busy = manager.send(AskOther(other.addr(), 1));
    let many: Vec<_> = (0..10_000).map(|_| manager.send(Add(1))).collect();
    let full = many.into_iter().map(|call| call.wait()).filter(Result::is_err);
    let first = full.map(Result::unwrap_err).next().expect("that was too much");
    assert!(matches!(first, Error::MailboxFull { capacity: 2, .. }), "{first}");
    assert!(first.to_string().contains("(2 messages)"), "{first}");
    assert_eq!(busy.wait().unwrap(), Ok(1));
}

/// What it writes is not what it reads.
#[derive(Debug, Deserialize)]
struct Crooked(#[expect(dead_code, reason = "it is never read")] u32);

impl Serialize for Crooked {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("crooked")
    }
}

impl Message for Crooked {
    type Result = ();
}

impl Handler<Crooked> for Counter {
    type Result = ();

    fn handle(&mut self, _: Crooked, _: &mut Context<Self>) {}
}

#[test]
fn a_message_that_does_not_deserialise_is_told_to_its_sender() {
    let manager = counter(0);
    let error = manager.send(Crooked(1)).wait().unwrap_err();
    let named = error.to_string().contains("Crooked");
    assert!(matches!(error, Error::Call { failure, .. } if failure.kind == FailureKind::Arguments && named));
    assert_eq!(manager.send(Add(1)).wait().unwrap(), 1);
}

#[test]
fn an_address_of_another_session_is_refused() {
    let manager = counter(0);
    let mut other = serde_json::to_value(manager.addr()).unwrap();
    other["target"]["session"] = 7.into();
    let other: RemoteAddr<Counter> = serde_json::from_value(other).unwrap();
    let error = other.send(Add(1)).wait().unwrap_err();
    assert!(matches!(error, Error::OtherSession { .. }), "{error}");
    assert!(!other.connected());
}

#[test]
fn an_address_whose_process_has_ended_says_so() {
    let export = || {
        let system = System::new();
        let addr = system.block_on(async { RemoteAddr::export(Counter::new(0).start()).unwrap() });
        drop(system);
        addr
    };
    let addr = Process::spawn(export, ()).unwrap().wait().unwrap();
    let error = addr.send(Add(1)).wait().unwrap_err();
    assert!(matches!(stopped(error), ExitReason::LinkLost(_)));
}

#[test]
fn a_worker_can_have_managers_of_its_own_which_end_with_it() {
    let nested = |count: u64| {
        let manager = AsyncManager::start(Counter::new, count).wait().unwrap();
        (manager.send(Add(1)).wait().unwrap(), manager.pid().unwrap())
    };
    let (count, pid) = Process::spawn(nested, 4).unwrap().wait().unwrap();
    assert_eq!(count, 5);
    let deadline = Instant::now() + Duration::from_secs(20);
    while exists(pid) {
        assert!(Instant::now() < deadline, "it outlives its parent");
        std::thread::yield_now();
    }
}

fn which(pool: &ActorPool<Counter>) -> u32 {
    pool.send(WhichProcess).wait().unwrap()
}

#[test]
fn a_pool_of_actors_shares_messages_as_its_routing_says() {
    let pool = ActorPool::builder().start(Counter::new, [0, 0, 0]).wait().unwrap();
    let pids: Vec<_> = (0..6).map(|_| which(&pool)).collect();
    assert_eq!(pids[..3], pids[3..], "one after the other");
    assert_eq!(HashSet::<u32>::from_iter(pids).len(), 3);
    let to_key = |key: &str| pool.send_to(key, WhichProcess).wait().unwrap();
    assert!((0..5).all(|_| to_key("left") == to_key("left")));
    let everywhere: Vec<_> = pool.broadcast(Add(7)).into_iter().map(|call| call.wait().unwrap()).collect();
    assert_eq!(everywhere, [7, 7, 7]);
    assert_eq!((pool.len(), pool.addrs().len()), (3, 3));
    let error = ActorPool::builder().start(Counter::new, []).wait().unwrap_err();
    assert!(error.to_string().contains("one actor at least"), "{error}");
}

#[test]
fn the_least_loaded_actor_gets_the_message() {
    let pool = ActorPool::builder().routing(Routing::LeastLoaded).start(Counter::new, [0, 0]).wait().unwrap();
    let busy = pool.addrs().into_iter().map(|addr| (addr.send(WhichProcess).wait().unwrap(), addr));
    let busy: std::collections::HashMap<_, _> = busy.collect();
    let waits = pool.send(Gate::Wait);
    let others: HashSet<_> = (0..4).map(|_| which(&pool)).collect();
    assert_eq!(others.len(), 1, "the other one has nothing to do");
    let waiting = busy.iter().find(|(pid, _)| !others.contains(pid)).unwrap().1;
    waiting.send(Gate::Release).wait().unwrap().unwrap_err();
    waits.wait().unwrap().unwrap();
}

#[test]
fn a_pool_of_actors_loses_no_call_that_may_be_sent_again() {
    let pool = ActorPool::builder().resend().start(Counter::new, [0, 0]).wait().unwrap();
    let calls: Vec<_> = (0..1000).map(|_| pool.send(Add(0))).collect();
    pool.managers().for_each(AsyncManager::kill);
    calls.into_iter().for_each(|call| assert_eq!(call.wait().unwrap(), 0));
    let pids: Vec<_> = pool.managers().filter_map(AsyncManager::pid).collect();
    pool.stop().wait().unwrap();
    assert!(pids.into_iter().all(|pid| !exists(pid)));
}

//! Each end of an actor is told once, with its reason: to callers, watchers, the tree and events.

use std::time::Duration;

use actix::prelude::*;
use fiber::error::{ExitReason, FailureKind};
use fiber::manager::ManagerBuilder;
use fiber::stats::EventKind;
use fiber::supervisor::{Backoff, ChildRef, ChildSpec, Down, Restart, Strategy, SupervisorRef};
use fiber::{ActorPool, AsyncManager, Error, RemoteAddr, Reply, Supervisor};
use fiber_test_support::wait::{LONG, wait_until};
use tokio::sync::mpsc::UnboundedReceiver;

use super::counter::{Add, AskOther, Counter, Fail, Stop};
use super::{kill, stopped, watcher};

/// The start of a reason, as the expectations of this file have it.
fn short(reason: &ExitReason) -> String {
    match reason {
        ExitReason::Panicked(message) => {
            format!("panicked: {}", message.split(" (at").next().unwrap())
        }
        ExitReason::IntensityReached { last, .. } => format!("gave up: {}", short(last)),
        other => format!("{other:?}"),
    }
}

/// Waits until the watchers' messages about an actor that is gone have come, and returns them.
async fn told(ends: &mut UnboundedReceiver<ExitReason>, count: usize) -> Vec<String> {
    let mut told = Vec::new();
    while told.len() < count {
        told.push(short(&ends.recv().await.unwrap()));
    }
    told
}

fn steady(name: &str) -> ManagerBuilder {
    AsyncManager::builder().name(name).intensity(2, Duration::from_secs(600))
}

#[test]
fn each_end_of_a_managed_actor_is_told_to_watchers_the_tree_and_events() {
    System::new().block_on(async {
        let mut events = fiber::stats::events();
        let manager = steady("told").start(Counter::new, 0).await.unwrap();
        let (recipient, mut ends) = watcher();
        manager.watch(recipient).await.unwrap();
        let pid = manager.pid();
        manager.send(Fail::Panic).await.unwrap_err();
        assert_eq!(told(&mut ends, 1).await, ["panicked: that is too much"]);
        let pending = manager.send(Fail::Never);
        let later = stopped(manager.send(Fail::PanicLater).await.unwrap_err());
        assert_eq!(short(&later), "panicked: later it was too much");
        assert_eq!(short(&stopped(pending.await.unwrap_err())), "panicked: later it was too much");
        assert_eq!(told(&mut ends, 1).await, ["panicked: later it was too much"]);
        assert_eq!(manager.send(Add(1)).await.unwrap(), 1);
        assert_eq!(manager.pid(), pid, "the process is the same");
        // The answer may come before the message about the restart, over another link.
        let branch = || fiber::tree().find("told").unwrap().clone();
        wait_until("the restarts", || branch().restarts == 2);
        assert_eq!(short(&branch().last_exit.unwrap()), "panicked: later it was too much");
        kill(manager.pid().unwrap());
        assert_eq!(told(&mut ends, 1).await, ["Signal(9)"]);
        assert_eq!(manager.addr().resend().send(Add(1)).await.unwrap(), 1);
        manager.stop().await.unwrap();
        assert_eq!(told(&mut ends, 1).await, ["Shutdown"]);
        let restarts = events.by_ref().filter_map(|event| match event.kind {
            EventKind::ChildRestarted { child, reason, .. } if child == "told" => {
                Some(format!("{child} {}", short(&reason)))
            }
            _ => None,
        });
        let expected = [
            "told panicked: that is too much",
            "told panicked: later it was too much",
            "told Signal(9)",
        ];
        assert_eq!(restarts.take(3).collect::<Vec<_>>(), expected);
    });
}

#[test]
fn a_temporary_actor_ends_with_its_first_panic() {
    let manager = steady("temporary").restart(Restart::Temporary).start(Counter::new, 0);
    let manager = manager.wait().unwrap();
    manager.send(Fail::Panic).wait().unwrap_err();
    assert_eq!(short(&manager.join().wait().unwrap()), "panicked: that is too much");
    stopped(manager.send(Add(1)).wait().unwrap_err());
}

#[test]
fn a_supervisor_tells_the_ends_of_an_actor_in_a_process_of_its_own() {
    System::new().block_on(async {
        let (child, addr) = steady("teller").child(Counter::new, 0).unwrap();
        let app = Supervisor::builder("bank").child(child).start().await.unwrap();
        let (recipient, mut ends) = watcher();
        app.watch_child("teller", recipient).await.unwrap();
        addr.send(Fail::Panic).await.unwrap_err();
        assert_eq!(told(&mut ends, 1).await, ["panicked: that is too much"]);
        assert_eq!(addr.send(Add(1)).await.unwrap(), 1);
        let restarts = || fiber::tree().find("bank/teller").unwrap().restarts;
        wait_until("the restart", || restarts() == 1);
        app.stop().await.unwrap();
        assert_eq!(told(&mut ends, 1).await, ["Shutdown"]);
    });
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A child of a supervisor of this process.
    Local,
    /// An exported child of a supervisor of this process.
    Supervised,
    /// An exported actor without a supervisor.
    Exported,
    Managed,
    Pooled,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Panic,
    TooManyPanics,
    StopsItself,
    Stop,
    Kill,
    Drop,
}

/// The reasons that are told of an end.
struct Told {
    /// To watchers.
    downs: &'static [&'static str],
    /// To a call that the actor has not answered.
    call: &'static str,
    /// To `join` and later calls, if the actor has ended for good.
    last: Option<&'static str>,
}

const PANIC: &str = "panicked: that is too much";
const GAVE_UP: &str = "gave up: panicked: that is too much";

impl Told {
    /// Returns what is told, if actors of this kind can end so.
    fn of(kind: Kind, end: End) -> Option<Told> {
        let (downs, last): (&'static [&'static str], _) = match (kind, end) {
            (Kind::Exported, End::Panic) => (&[PANIC], Some(PANIC)),
            (_, End::StopsItself) => (&["Normal"], Some("Normal")),
            (Kind::Exported, _) => return None,
            (_, End::Panic) => (&[PANIC], None),
            (_, End::TooManyPanics) => (&[PANIC, PANIC], Some(GAVE_UP)),
            (_, End::Stop) => (&["Shutdown"], Some("Shutdown")),
            (Kind::Local | Kind::Supervised, End::Kill | End::Drop) => return None,
            (_, End::Kill) => (&["Signal(9)"], None),
            (_, End::Drop) => (&["Dropped"], Some("Dropped")),
        };
        // The process of a managed actor knows that it is to stop, and not why.
        let call = if matches!(end, End::Drop) { "Shutdown" } else { downs[0] };
        Some(Told { downs, call, last })
    }
}

/// The handle whose end ends the actor.
enum Owner {
    Nothing,
    Supervisor(SupervisorRef),
    Manager(AsyncManager<Counter>),
    Pool(ActorPool<Counter>),
}

impl Owner {
    fn stop(&self) -> Option<Reply<()>> {
        Some(match self {
            Owner::Nothing => return None,
            Owner::Supervisor(app) => app.stop(),
            Owner::Manager(manager) => manager.stop(),
            Owner::Pool(pool) => pool.stop(),
        })
    }

    fn kill_process(&self) {
        let pid = match self {
            Owner::Nothing | Owner::Supervisor(_) => None,
            Owner::Manager(manager) => manager.pid(),
            Owner::Pool(pool) => pool.managers().next().and_then(AsyncManager::pid),
        };
        kill(pid.expect("it has a process of its own"));
    }
}

enum Address {
    Child(ChildRef<Counter>),
    Remote(RemoteAddr<Counter>),
}

impl Address {
    fn fail(&self, fail: Fail) -> Reply<()> {
        match self {
            Address::Child(child) => child.send(fail),
            Address::Remote(addr) => addr.send(fail),
        }
    }

    fn stop_itself(&self) -> Reply<()> {
        match self {
            Address::Child(child) => child.send(Stop),
            Address::Remote(addr) => addr.send(Stop),
        }
    }

    fn add(&self) -> Reply<u64> {
        match self {
            Address::Child(child) => child.send(Add(1)),
            // The message may reach a process that was just killed.
            Address::Remote(addr) => addr.clone().resend().send(Add(1)),
        }
    }

    fn watch(&self, recipient: Recipient<Down>) -> Reply<()> {
        match self {
            Address::Child(child) => child.watch(recipient),
            Address::Remote(addr) => addr.watch(recipient),
        }
    }

    fn join(&self) -> Reply<ExitReason> {
        match self {
            Address::Child(child) => child.join(),
            Address::Remote(addr) => addr.join(),
        }
    }
}

/// Starts an actor that may be restarted once. Returns its path in the tree, too.
async fn start(kind: Kind, name: &str) -> (Owner, Address, String) {
    let limited = |manager: ManagerBuilder| manager.intensity(1, LONG).backoff(Backoff::none());
    match kind {
        Kind::Local | Kind::Supervised => {
            let child = ChildSpec::actor("actor", || Counter::new(0)).restart(Restart::Transient);
            let app = Supervisor::builder(name).intensity(1, LONG).backoff(Backoff::none());
            let app = app.child(child).start().await.unwrap();
            let child = app.child::<Counter>("actor").unwrap();
            let addr = match kind {
                Kind::Local => Address::Child(child),
                _ => Address::Remote(RemoteAddr::export(child).unwrap()),
            };
            (Owner::Supervisor(app), addr, format!("{name}/actor"))
        }
        Kind::Exported => {
            let addr = RemoteAddr::export(Counter::new(0).start()).unwrap();
            (Owner::Nothing, Address::Remote(addr), name.into())
        }
        Kind::Managed => {
            let manager = limited(AsyncManager::builder().name(name)).start(Counter::new, 0);
            let manager = manager.await.unwrap();
            let addr = Address::Remote(manager.addr());
            (Owner::Manager(manager), addr, name.into())
        }
        Kind::Pooled => {
            let pool = ActorPool::builder().name(name).manager(limited).start(Counter::new, [0]);
            let pool = pool.await.unwrap();
            let addr = Address::Remote(pool.addrs().next().unwrap());
            (Owner::Pool(pool), addr, format!("{name}-0"))
        }
    }
}

async fn check_end(kind: Kind, end: End, expected: &Told) {
    let name = format!("{kind:?}-{end:?}").to_lowercase();
    let mut events = fiber::stats::events();
    let (owner, addr, path) = start(kind, &name).await;
    let (recipient, mut ends) = watcher();
    addr.watch(recipient).await.unwrap();
    let open = addr.fail(Fail::Never);
    // The actor has the call before.
    assert_eq!(addr.add().await.unwrap(), 1, "{name}");
    let mut owner = Some(owner);
    match end {
        End::Panic => match (kind, addr.fail(Fail::Panic).await.unwrap_err()) {
            (Kind::Local | Kind::Supervised, error) => {
                assert_eq!(short(&stopped(error)), PANIC, "{name}");
            }
            (_, Error::Call { failure, .. }) => {
                assert_eq!(failure.kind, FailureKind::Panicked, "{name}");
                let text = "that is too much (at ";
                assert!(failure.message.starts_with(text), "{name}: {failure}");
            }
            (_, other) => panic!("{name}: {other:?}"),
        },
        End::TooManyPanics => {
            for _ in 0..2 {
                addr.fail(Fail::Panic).await.unwrap_err();
            }
        }
        End::StopsItself => addr.stop_itself().await.unwrap(),
        End::Stop => {
            let stopping = owner.as_ref().and_then(Owner::stop).expect("it has an owner");
            stopping.await.unwrap();
        }
        End::Kill => owner.iter().for_each(Owner::kill_process),
        End::Drop => owner = None,
    }
    assert_eq!(short(&stopped(open.await.unwrap_err())), expected.call, "{name}");
    assert_eq!(told(&mut ends, expected.downs.len()).await, expected.downs, "{name}");
    match expected.last {
        Some(last) => {
            assert_eq!(short(&addr.join().await.unwrap()), last, "{name}");
            assert_eq!(short(&stopped(addr.add().await.unwrap_err())), last, "{name}");
            let (recipient, mut late) = watcher();
            addr.watch(recipient).await.unwrap();
            assert_eq!(told(&mut late, 1).await, [last], "{name}: to a late watcher");
        }
        None => {
            assert_eq!(addr.add().await.unwrap(), 1, "{name}: it is another one");
            let branch = || fiber::tree().find(&path).unwrap().clone();
            wait_until("the restart", || branch().restarts == 1);
            assert_eq!(short(&branch().last_exit.unwrap()), expected.downs[0], "{name}");
        }
    }
    if expected.last.is_none() || expected.downs.len() > 1 {
        let restarted = events.find_map(|event| match event.kind {
            EventKind::ChildRestarted { child, reason, .. } if child == path => Some(reason),
            _ => None,
        });
        assert_eq!(short(&restarted.unwrap()), expected.downs[0], "{name}");
    }
    if expected.last == Some(GAVE_UP) {
        let gave_up = events.find_map(|event| match event.kind {
            EventKind::GaveUp { child, reason } if path.starts_with(&child) => Some(reason),
            _ => None,
        });
        assert_eq!(short(&gave_up.unwrap()), GAVE_UP, "{name}");
        if let Some(Owner::Manager(manager)) = &owner {
            assert_eq!(manager.pid(), None, "{name}");
        }
    }
    // Nothing is told twice.
    if let Some(stopping) = owner.as_ref().and_then(Owner::stop) {
        stopping.await.unwrap();
    }
    if expected.last.is_none() {
        assert_eq!(told(&mut ends, 1).await, ["Shutdown"], "{name}");
    }
    assert_eq!(ends.recv().await, None, "{name}");
}

#[test]
fn each_end_of_each_kind_of_actor_is_told_once() {
    use self::{End::*, Kind::*};
    System::new().block_on(async {
        for kind in [Local, Supervised, Exported, Managed, Pooled] {
            for end in [Panic, TooManyPanics, StopsItself, Stop, Kill, Drop] {
                if let Some(expected) = Told::of(kind, end) {
                    check_end(kind, end, &expected).await;
                }
            }
        }
    });
}

#[test]
fn addresses_of_an_actor_that_has_stopped_itself_do_not_lead_to_the_next_one() {
    System::new().block_on(async {
        let first = ChildSpec::actor("first", || Counter::new(0)).restart(Restart::Transient);
        let second = ChildSpec::actor("second", || Counter::new(0));
        let app = Supervisor::builder("again").strategy(Strategy::OneForAll);
        let app = app.backoff(Backoff::none()).child(first).child(second).start().await.unwrap();
        let child = app.child::<Counter>("first").unwrap();
        let addr = RemoteAddr::export(child.clone()).unwrap();
        addr.send(Stop).await.unwrap();
        assert_eq!(addr.join().await.unwrap(), ExitReason::Normal);
        let late = RemoteAddr::export(child.clone()).unwrap();
        assert_eq!(late.join().await.unwrap(), ExitReason::Normal);
        app.kill_child("second", ExitReason::Failed("a test".into())).await.unwrap();
        wait_until("the restart", || child.addr().is_some());
        for ended in [addr, late] {
            assert_eq!(stopped(ended.send(Add(1)).await.unwrap_err()), ExitReason::Normal);
        }
        let next = RemoteAddr::export(child).unwrap();
        assert_eq!(next.send(Add(1)).await.unwrap(), 1);
        app.stop().await.unwrap();
    });
}

/// Blocks until something has happened on its own thread.
struct Impatient(SupervisorRef);

impl Actor for Impatient {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "Result<(), Error>")]
enum WaitFor {
    Answer,
    End,
    Child,
    NestedChild,
    Supervisor,
    ChildsEnd,
    OwnEnd,
    Process,
}

#[fiber::handlers]
impl Impatient {
    fn wait_for(&mut self, what: WaitFor) -> Result<(), Error> {
        let (app, child) = (&self.0, || ChildSpec::actor("child", || Counter::new(0)));
        let counter = app.child::<Counter>("counter")?;
        let nested = || Supervisor::builder("nested").child(child());
        match what {
            WaitFor::Answer => counter.send(Add(1)).wait().map(drop),
            WaitFor::End => counter.join().wait().map(drop),
            WaitFor::Child => app.add_child(child()).wait(),
            WaitFor::NestedChild => app.add_child(ChildSpec::supervisor("n", nested())).wait(),
            WaitFor::Supervisor => nested().start().wait().map(drop),
            WaitFor::ChildsEnd => app.stop_child("counter").wait(),
            WaitFor::OwnEnd => app.stop().wait(),
            WaitFor::Process => {
                app.add_child(ChildSpec::process("process", std::thread::park, ())?).wait()?;
                app.stop_child("process").wait()
            }
        }
    }
}

#[test]
fn a_wait_for_what_the_same_thread_has_to_do_is_an_error() {
    let counter = ChildSpec::actor("counter", || Counter::new(0));
    let app = Supervisor::builder("impatient").child(counter).start().wait().unwrap();
    let own = app.clone();
    let impatient = ChildSpec::actor("impatient", move || Impatient(own.clone()));
    app.add_child(impatient).wait().unwrap();
    let impatient = app.child::<Impatient>("impatient").unwrap();
    let wait_for = |what| impatient.send(what).wait().unwrap();
    let is_refused = |what| {
        let error = wait_for(what).unwrap_err();
        assert!(matches!(error, Error::WouldDeadlock), "{error}");
    };
    is_refused(WaitFor::Answer);
    // The message is handled all the same.
    let counter = app.child::<Counter>("counter").unwrap();
    assert_eq!(counter.send(Add(1)).wait().unwrap(), 2);
    wait_for(WaitFor::Process).unwrap();
    let starts = [WaitFor::End, WaitFor::Child, WaitFor::NestedChild, WaitFor::Supervisor];
    starts.into_iter().for_each(is_refused);
    for child in ["child", "n/child"] {
        wait_until("the child", || app.child::<Counter>(child).is_ok());
        assert_eq!(app.child::<Counter>(child).unwrap().send(Add(1)).wait().unwrap(), 1);
    }
    is_refused(WaitFor::ChildsEnd);
    assert_eq!(counter.join().wait().unwrap(), ExitReason::Shutdown);
    app.add_child(ChildSpec::actor("counter", || Counter::new(0))).wait().unwrap();
    is_refused(WaitFor::OwnEnd);
    assert!(app.join().wait().unwrap().is_normal());

    // A managed actor for itself.
    let manager = steady("itself").start(Counter::new, 0).wait().unwrap();
    let problem = manager.send(AskOther(manager.addr(), 1)).wait().unwrap().unwrap_err();
    assert_eq!(problem, Error::WouldDeadlock.to_string());
    wait_until("the message to itself", || manager.send(Add(0)).wait().unwrap() == 1);

    // The thread of an exported actor.
    System::new().block_on(async {
        let addr = RemoteAddr::export(Counter::new(0).start()).unwrap();
        assert_eq!(addr.send(Add(1)).await.unwrap(), 1);
        let error = addr.send(Add(1)).wait().unwrap_err();
        assert!(matches!(error, Error::WouldDeadlock), "{error}");
        assert_eq!(addr.send(Add(1)).await.unwrap(), 3);
    });
}

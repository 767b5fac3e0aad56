//! Each end of an actor is told once, with its reason: to callers, watchers, the tree and events.

use std::time::Duration;

use actix::prelude::*;
use fiber::error::{ExitReason, FailureKind};
use fiber::manager::ManagerBuilder;
use fiber::stats::EventKind;
use fiber::supervisor::{ChildSpec, Restart, SupervisorRef};
use fiber::{AsyncManager, Error, RemoteAddr, Supervisor};
use fiber_test_support::wait::wait_until;
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
        manager.send(Fail::PanicLater).await.unwrap_err();
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
fn an_actor_that_panics_too_often_ends_for_good() {
    System::new().block_on(async {
        let builder = AsyncManager::builder().intensity(1, Duration::from_secs(600));
        let manager = builder.start(Counter::new, 0).await.unwrap();
        let (recipient, mut ends) = watcher();
        manager.watch(recipient).await.unwrap();
        for _ in 0..2 {
            manager.addr().resend().send(Fail::Panic).await.unwrap_err();
        }
        let gone = "gave up: panicked: that is too much";
        assert_eq!(short(&manager.join().await.unwrap()), gone);
        assert_eq!(short(&stopped(manager.send(Add(1)).await.unwrap_err())), gone);
        assert_eq!(manager.pid(), None);
        let panic = "panicked: that is too much";
        assert_eq!(told(&mut ends, 2).await, [panic, panic]);
        // The watch has ended, and a later one gets the last reason.
        assert_eq!(ends.recv().await, None);
        let (recipient, mut late) = watcher();
        manager.watch(recipient).await.unwrap();
        assert_eq!(told(&mut late, 1).await, [gone]);
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

#[test]
fn a_panic_of_an_exported_actor_is_told_to_its_callers_and_watchers() {
    System::new().block_on(async {
        let addr = RemoteAddr::export(Counter::new(0).start()).unwrap();
        let (recipient, mut ends) = watcher();
        addr.watch(recipient).await.unwrap();
        let pending = addr.send(Fail::Never);
        match addr.send(Fail::Panic).await.unwrap_err() {
            Error::Call { failure, .. } => {
                assert_eq!(failure.kind, FailureKind::Panicked);
                assert!(failure.message.starts_with("that is too much (at "), "{failure}");
            }
            other => panic!("{other:?}"),
        }
        let panic = "panicked: that is too much";
        assert_eq!(short(&stopped(pending.await.unwrap_err())), panic);
        assert_eq!(short(&stopped(addr.send(Add(1)).await.unwrap_err())), panic);
        assert_eq!(short(&addr.join().await.unwrap()), panic);
        assert_eq!(told(&mut ends, 1).await, [panic]);
        let addr = RemoteAddr::export(Counter::new(0).start()).unwrap();
        addr.send(Stop).await.unwrap();
        assert_eq!(addr.join().await.unwrap(), ExitReason::Normal);
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

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actix::{
    Actor, ActorContext, Arbiter, AsyncContext, Context, Handler, Message, ResponseFuture, System,
};
use fiber_core::{Error, ExitReason};
use tokio::sync::oneshot;

use super::scripted::{eager, events_handled, run, start, system};
use super::watching::{Watcher, next};
use crate::supervisor::{ChildRef, ChildSpec, Restart, Shutdown, Strategy, SupervisorRef, tree};

#[derive(Default)]
struct Counter(u64);

impl Actor for Counter {
    type Context = Context<Counter>;
}

enum Do {
    Add,
    Panic,
    PanicInFuture,
    PanicInAnswer,
    Stop,
    Block { began: oneshot::Sender<()>, until: std::sync::mpsc::Receiver<()> },
}

impl Message for Do {
    type Result = u64;
}

impl Handler<Do> for Counter {
    type Result = ResponseFuture<u64>;

    fn handle(&mut self, what: Do, context: &mut Context<Counter>) -> ResponseFuture<u64> {
        match what {
            Do::Add => self.0 += 1,
            Do::Panic => panic!("boom at {}", self.0),
            Do::PanicInFuture => {
                context.spawn(actix::fut::wrap_future(async { panic!("in a future") }));
            }
            Do::PanicInAnswer => return Box::pin(async { panic!("in an answer") }),
            Do::Stop => context.stop(),
            Do::Block { began, until } => {
                began.send(()).unwrap();
                let _ = until.recv();
            }
        }
        let count = self.0;
        Box::pin(async move { count })
    }
}

async fn counter(name: &str, restart: Restart) -> (SupervisorRef, ChildRef<Counter>) {
    let spec = ChildSpec::actor("counter", Counter::default).restart(restart);
    let supervisor = start(eager(name).child(spec)).await;
    let counter = supervisor.child("counter").unwrap();
    (supervisor, counter)
}

#[test]
fn a_panic_fails_its_call_with_its_message_and_the_next_call_gets_to_a_new_actor() {
    run(async {
        let (supervisor, counter) = counter("panics", Restart::Permanent).await;
        for _ in 0..3 {
            assert_eq!(counter.send(Do::Add).await.unwrap(), 1);
            assert_eq!(counter.send(Do::Add).await.unwrap(), 2);
            let error = counter.send(Do::Panic).await.unwrap_err();
            let Error::ActorStopped { name, reason: ExitReason::Panicked(message) } = error else {
                panic!("{error}")
            };
            assert_eq!(name, "panics/counter");
            assert!(message.starts_with("boom at 2 (at "), "{message}");
        }
        supervisor.stop().await.unwrap();
        let error = counter.send(Do::Add).await.unwrap_err();
        assert!(
            matches!(error, Error::ActorStopped { reason: ExitReason::Shutdown, .. }),
            "{error}"
        );
        assert!(counter.addr().is_none());
    });
}

#[test]
fn an_actor_in_a_nested_supervisor_is_reached_by_its_path_across_restarts_of_the_supervisor() {
    run(async {
        let inner = eager("").intensity(0, Duration::from_secs(60));
        let inner = inner.child(ChildSpec::actor("counter", Counter::default));
        let supervisor = start(eager("paths").child(ChildSpec::supervisor("inner", inner))).await;
        let counter = supervisor.child::<Counter>("inner/counter").unwrap();
        assert_eq!(counter.send(Do::Add).await.unwrap(), 1);
        counter.send(Do::Panic).await.unwrap_err();
        assert_eq!(counter.send(Do::Add).await.unwrap(), 1);
        assert_eq!(counter.path(), "paths/inner/counter");
        events_handled(&supervisor).await;
        assert_eq!(tree().find("paths/inner").unwrap().restarts, 1);
        assert!(matches!(
            supervisor.child::<FailsToStart>("inner/counter"),
            Err(Error::Invalid { .. })
        ));
        assert!(matches!(supervisor.child::<Counter>("counter"), Err(Error::Invalid { .. })));
    });
}

#[test]
fn a_panic_in_a_spawned_future_ends_the_actor_too() {
    run(async {
        let (_supervisor, counter) = counter("future", Restart::Permanent).await;
        let (mut messages, recipient) = Watcher::start_on(&system());
        counter.watch(recipient).await.unwrap();
        counter.send(Do::Add).await.unwrap();
        counter.addr().unwrap().do_send(Do::PanicInFuture);
        let (_, reason) = next(&mut messages).await;
        assert!(
            matches!(&reason, ExitReason::Panicked(message) if message.starts_with("in a future")),
            "{reason}"
        );
        assert_eq!(counter.send(Do::Add).await.unwrap(), 1);
    });
}

#[test]
fn a_lost_answer_of_an_actor_that_is_alive_is_a_system_error() {
    run(async {
        let (_supervisor, counter) = counter("answer", Restart::Permanent).await;
        counter.send(Do::Add).await.unwrap();
        let error = counter.send(Do::PanicInAnswer).await.unwrap_err();
        assert!(matches!(error, Error::System { .. }), "{error}");
        assert_eq!(counter.send(Do::Add).await.unwrap(), 2);
    });
}

#[test]
fn a_stop_is_a_normal_end() {
    run(async {
        let (supervisor, permanent) = counter("stops-1", Restart::Permanent).await;
        let addr = permanent.addr().unwrap();
        permanent.send(Do::Stop).await.unwrap();
        assert_eq!(permanent.send(Do::Add).await.unwrap(), 1);
        assert_ne!(permanent.addr(), Some(addr));
        assert_eq!(tree().find("stops-1/counter").unwrap().last_exit, Some(ExitReason::Normal));
        supervisor.stop().await.unwrap();

        let (supervisor, temporary) = counter("stops-2", Restart::Temporary).await;
        temporary.send(Do::Stop).await.unwrap();
        assert_eq!(temporary.join().await.unwrap(), ExitReason::Normal);
        let error = temporary.send(Do::Add).await.unwrap_err();
        assert!(matches!(error, Error::ActorStopped { reason: ExitReason::Normal, .. }), "{error}");
        assert!(supervisor.child::<Counter>("counter").is_err());

        let (supervisor, transient) = counter("stops-3", Restart::Transient).await;
        transient.send(Do::Stop).await.unwrap();
        assert_eq!(transient.join().await.unwrap(), ExitReason::Normal);
        let error = transient.send(Do::Add).await.unwrap_err();
        assert!(matches!(error, Error::ActorStopped { reason: ExitReason::Normal, .. }), "{error}");
        supervisor.stop().await.unwrap();
        assert_eq!(transient.join().await.unwrap(), ExitReason::Normal, "it keeps its reason");
    });
}

#[test]
fn an_actor_that_stopped_itself_is_there_again_when_others_restart_it() {
    run(async {
        let first = ChildSpec::actor("first", Counter::default).restart(Restart::Transient);
        let second = ChildSpec::actor("second", Counter::default);
        let app = eager("together").strategy(Strategy::OneForAll).child(first).child(second);
        let supervisor = app.start_on(&system()).await.unwrap();
        let first: ChildRef<Counter> = supervisor.child("first").unwrap();
        first.send(Do::Stop).await.unwrap();
        first.join().await.unwrap();
        supervisor.kill_child("second", ExitReason::Failed("a test".into())).await.unwrap();
        while first.addr().is_none() {
            events_handled(&supervisor).await;
        }
        assert_eq!(first.send(Do::Add).await.unwrap(), 1);
        supervisor.stop().await.unwrap();
    });
}

/// Panics in its first starts; the number is how many are left.
struct FailsToStart(Arc<AtomicU32>);

impl Actor for FailsToStart {
    type Context = Context<FailsToStart>;

    fn started(&mut self, _: &mut Context<FailsToStart>) {
        let left = self.0.load(Ordering::SeqCst);
        self.0.store(left.saturating_sub(1), Ordering::SeqCst);
        assert!(left == 0, "{left} to go");
    }
}

#[test]
fn a_panic_in_started_or_in_the_factory_fails_the_start() {
    run(async {
        let arbiter = system();
        let panics = Arc::new(AtomicU32::new(1));
        let factory = move || FailsToStart(panics.clone());
        let error = eager("starts")
            .child(ChildSpec::actor("a", factory))
            .start_on(&arbiter)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("its child `a` panicked: 1 to go"), "{error}");
        let supervisor = eager("starts").start_on(&arbiter).await.unwrap();
        let broken = ChildSpec::actor("b", || -> Counter { panic!("no counter") });
        let error = supervisor.add_child(broken).await.unwrap_err();
        assert!(error.to_string().contains("panicked: no counter"), "{error}");
    });
}

#[test]
fn calls_wait_while_the_actor_is_restarted() {
    run(async {
        let (made, panics) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let factory = {
            let (made, panics) = (made.clone(), panics.clone());
            move || {
                let fails = made.fetch_add(1, Ordering::SeqCst) > 0
                    && panics.fetch_add(1, Ordering::SeqCst) < 2;
                assert!(!fails, "not yet");
                Counter(0)
            }
        };
        let supervisor = start(eager("waits").child(ChildSpec::actor("counter", factory))).await;
        let counter = supervisor.child::<Counter>("counter").unwrap();
        counter.send(Do::Panic).await.unwrap_err();
        // Two starts fail before one succeeds; the call waits for that.
        assert_eq!(counter.send(Do::Add).await.unwrap(), 1);
        assert_eq!(made.load(Ordering::SeqCst), 4);
    });
}

#[test]
fn actors_run_on_a_thread_of_their_own_or_on_the_arbiter_of_their_specification() {
    run(async {
        let arbiter = system();
        let (send, own) = oneshot::channel();
        arbiter.spawn_fn(move || {
            send.send((Arbiter::new().handle(), std::thread::current().id())).unwrap()
        });
        let (own, supervisors) = own.await.unwrap();
        let thread = |arbiter: &actix::ArbiterHandle| {
            let (send, id) = oneshot::channel();
            arbiter.spawn_fn(move || send.send(std::thread::current().id()).unwrap());
            id
        };
        let own_thread = thread(&own).await.unwrap();
        let (send, threads) = std::sync::mpsc::channel();
        let mut builder = eager("threads");
        for (name, place) in [("a", None), ("b", None), ("c", Some(own))] {
            let send = send.clone();
            let spec = ChildSpec::actor(name, move || {
                send.send(std::thread::current().id()).unwrap();
                Counter(0)
            });
            builder = builder.child(match place {
                Some(arbiter) => spec.on(arbiter),
                None => spec,
            });
        }
        let _supervisor = builder.start_on(&arbiter).await.unwrap();
        let threads: Vec<_> = threads.try_iter().collect();
        assert_eq!(threads[0], threads[1]);
        assert_ne!(threads[0], supervisors);
        assert_eq!(threads[2], own_thread);
    });
}

#[test]
fn a_supervisor_goes_on_without_an_actor_that_blocks_and_ignores_its_end() {
    run(async {
        let arbiter = system();
        let (send, other) = oneshot::channel();
        arbiter.spawn_fn(move || {
            send.send([Arbiter::new().handle(), Arbiter::new().handle()]).unwrap()
        });
        let [first, second] = other.await.unwrap();
        let spec = ChildSpec::actor("counter", Counter::default).on(first);
        let supervisor =
            eager("blocks").child(spec.shutdown(Shutdown::Kill)).start_on(&arbiter).await.unwrap();
        let blocked = supervisor.child::<Counter>("counter").unwrap();
        let (release, until) = std::sync::mpsc::channel();
        let (began, blocks) = oneshot::channel();
        let call = tokio::spawn({
            let blocked = blocked.clone();
            async move { blocked.send(Do::Block { began, until }).await }
        });
        blocks.await.unwrap();
        supervisor.stop_child("counter").await.unwrap();
        supervisor
            .add_child(ChildSpec::actor("counter", Counter::default).on(second))
            .await
            .unwrap();
        let fresh = supervisor.child::<Counter>("counter").unwrap();
        release.send(()).unwrap();
        // The handler may still have answered.
        let _ = call.await.unwrap();
        assert_eq!(fresh.send(Do::Add).await.unwrap(), 1);
        assert_eq!(tree().find("blocks/counter").unwrap().last_exit, None);
    });
}

/// An actor that only a kill ends.
struct Stubborn;

impl Actor for Stubborn {
    type Context = Context<Stubborn>;

    fn stopping(&mut self, _: &mut Context<Stubborn>) -> actix::Running {
        actix::Running::Continue
    }
}

#[test]
fn an_actor_that_refuses_to_stop_is_killed_after_its_deadline() {
    run(async {
        let spec =
            ChildSpec::actor("a", || Stubborn).shutdown(Shutdown::After(Duration::from_millis(20)));
        let supervisor = start(eager("stubborn").child(spec)).await;
        supervisor.stop().await.unwrap();
        assert!(tree().find("stubborn").is_none());
    });
}

#[test]
fn a_system_that_stops_ends_its_supervisors() {
    run(async {
        let arbiter = system();
        let spec = ChildSpec::actor("counter", Counter::default);
        let supervisor = eager("stopped").child(spec).start_on(&arbiter).await.unwrap();
        let counter = supervisor.child::<Counter>("counter").unwrap();
        arbiter.spawn_fn(|| System::current().stop());
        assert_eq!(supervisor.join().await.unwrap(), ExitReason::Shutdown);
        assert!(matches!(counter.send(Do::Add).await, Err(Error::ActorStopped { .. })));
        assert!(tree().find("stopped").is_none());
        let late = eager("late").start_on(&arbiter).await.unwrap_err();
        assert!(late.to_string().contains("its arbiter has ended"), "{late}");
    });
}

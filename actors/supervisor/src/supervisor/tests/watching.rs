use std::time::Duration;

use actix::{Actor, ArbiterHandle, AsyncContext, Context, Handler, Recipient};
use fiber_core::ExitReason;
use tokio::sync::mpsc;

use super::scripted::{eager, events_handled, run, script, start, system};
use crate::supervisor::{Backoff, ChildSpec, ChildState, Down, Restart, Supervisor, tree};

const CRASH: ExitReason = ExitReason::Code(1);

/// Passes messages on to a test.
pub(super) struct Watcher(mpsc::UnboundedSender<Down>);

impl Watcher {
    pub(super) fn start_on(
        arbiter: &ArbiterHandle,
    ) -> (mpsc::UnboundedReceiver<Down>, Recipient<Down>) {
        let (sender, messages) = mpsc::unbounded_channel();
        let (give, recipient) = std::sync::mpsc::channel();
        arbiter.spawn_fn(move || {
            Watcher::create(|context| {
                give.send(context.address().recipient()).unwrap();
                Watcher(sender)
            });
        });
        (messages, recipient.recv().unwrap())
    }
}

impl Actor for Watcher {
    type Context = Context<Watcher>;
}

impl Handler<Down> for Watcher {
    type Result = ();

    fn handle(&mut self, down: Down, _: &mut Context<Watcher>) {
        let _ = self.0.send(down);
    }
}

pub(super) async fn next(messages: &mut mpsc::UnboundedReceiver<Down>) -> (String, ExitReason) {
    let down = messages.recv().await.unwrap();
    (down.name, down.reason)
}

#[test]
fn a_watcher_of_a_child_gets_one_message_for_each_incarnation() {
    run(async {
        let (script, mut log) = script();
        let supervisor = start(eager("watched").child(script.child("a"))).await;
        let (mut messages, recipient) = Watcher::start_on(&system());
        supervisor.watch_child("a", recipient).await.unwrap();
        log.expect(&["start a"]).await;
        for code in 1..=3 {
            script.exit("a", ExitReason::Code(code));
            assert_eq!(next(&mut messages).await, ("watched/a".into(), ExitReason::Code(code)));
            log.expect(&["start a"]).await;
        }
        events_handled(&supervisor).await;
        supervisor.stop().await.unwrap();
        assert_eq!(next(&mut messages).await, ("watched/a".into(), ExitReason::Shutdown));
        assert_eq!(messages.try_recv().ok(), None);
    });
}

#[test]
fn a_watcher_of_a_supervisor_gets_the_reason_once_and_at_once_after_the_end() {
    run(async {
        let (script, _log) = script();
        let builder = eager("seen").intensity(0, Duration::from_secs(60)).child(script.child("a"));
        let supervisor = start(builder).await;
        let watchers = system();
        let (mut messages, recipient) = Watcher::start_on(&watchers);
        supervisor.watch(recipient).await.unwrap();
        script.exit("a", CRASH);
        let (name, reason) = next(&mut messages).await;
        assert_eq!(name, "seen");
        assert!(matches!(&reason, ExitReason::IntensityReached { .. }), "{reason}");
        assert_eq!(supervisor.join().await.unwrap(), reason);
        assert_eq!(messages.try_recv().ok(), None);
        let (mut late, recipient) = Watcher::start_on(&watchers);
        supervisor.watch(recipient).await.unwrap();
        assert_eq!(next(&mut late).await, ("seen".into(), reason));
    });
}

#[test]
fn a_watcher_of_a_nested_supervisor_gets_a_message_for_each_incarnation() {
    run(async {
        let (script, mut log) = script();
        let inner = eager("").intensity(0, Duration::from_secs(60)).child(script.child("a"));
        let supervisor = start(eager("over").child(ChildSpec::supervisor("inner", inner))).await;
        let (mut messages, recipient) = Watcher::start_on(&system());
        let inner = supervisor.supervisor("inner").unwrap();
        inner.watch(recipient).await.unwrap();
        script.exit("a", CRASH);
        let (name, reason) = next(&mut messages).await;
        assert_eq!(name, "over/inner");
        assert!(matches!(reason, ExitReason::IntensityReached { .. }), "{reason}");
        log.expect(&["start a", "start a"]).await;
        events_handled(&supervisor).await;
        supervisor.stop().await.unwrap();
        assert_eq!(next(&mut messages).await, ("over/inner".into(), ExitReason::Shutdown));
        assert_eq!(messages.try_recv().ok(), None);
    });
}

#[test]
fn a_watcher_of_a_child_that_does_not_run_gets_a_message_when_it_is_removed() {
    run(async {
        let (script, mut log) = script();
        let hour = Duration::from_secs(3_600);
        let supervisor = Supervisor::builder("idle").backoff(Backoff::new(hour, hour));
        let supervisor = start(supervisor.child(script.child("a"))).await;
        script.exit("a", CRASH);
        log.expect(&["start a", "start a"]).await;
        script.exit_and_wait("a", CRASH).await;
        events_handled(&supervisor).await;
        assert_eq!(tree().find("idle/a").unwrap().state, ChildState::Restarting);
        let (mut messages, recipient) = Watcher::start_on(&system());
        supervisor.watch_child("a", recipient).await.unwrap();
        supervisor.stop_child("a").await.unwrap();
        assert_eq!(next(&mut messages).await, ("idle/a".into(), ExitReason::Shutdown));
    });
}

#[test]
fn the_tree_shows_states_places_and_restarts() {
    run(async {
        let (script, mut log) = script();
        let hour = Duration::from_secs(3_600);
        let inner = eager("").child(script.child("x"));
        let builder = Supervisor::builder("pool-1")
            .backoff(Backoff::new(hour, hour))
            .child(script.child("worker-1"));
        let builder =
            builder.child(script.child("worker-2")).child(ChildSpec::supervisor("inner", inner));
        let done = script.child("done").restart(Restart::Transient);
        let supervisor = start(builder.child(done)).await;
        log.expect(&["start worker-1", "start worker-2", "start x", "start done"]).await;
        script.exit("worker-2", CRASH);
        log.expect(&["start worker-2"]).await;
        script.exit_and_wait("worker-2", ExitReason::Signal(9)).await;
        script.exit_and_wait("done", ExitReason::Normal).await;
        events_handled(&supervisor).await;
        let printed = tree().find("pool-1").unwrap().to_string();
        let expected = "\
pool-1 (supervisor, one for one, 1 restart)
├─ worker-1  running  pid 1  0s
├─ worker-2  restarting (was killed by signal 9 (SIGKILL))  1 restart
├─ inner (supervisor, one for one)
│  └─ x  running  pid 1  0s
└─ done  ended (ended normally)";
        assert_eq!(printed, expected);
        supervisor.stop().await.unwrap();
        assert!(tree().find("pool-1").is_none());
    });
}

#[test]
fn nothing_of_an_ended_supervisor_stays_in_the_tree() {
    run(async {
        let (script, _log) = script();
        let inner = eager("").child(script.child("only-here-1")).child(script.child("only-here-2"));
        let supervisor = eager("leaves").child(ChildSpec::supervisor("only-here-3", inner));
        let supervisor = start(supervisor).await;
        assert_eq!(crate::supervisor::tree::names("only-here").len(), 3);
        supervisor.stop().await.unwrap();
        assert_eq!(crate::supervisor::tree::names("only-here").len(), 0);
    });
}

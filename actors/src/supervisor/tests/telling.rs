use std::time::Duration;

use actix::{Actor, ArbiterHandle, AsyncContext, Context, Handler, Recipient};
use fiber_core::ExitReason;
use tokio::sync::mpsc;

use super::script::{eager, run, scene, settled, system};
use crate::supervisor::{Backoff, ChildSpec, Down, Restart, State, Supervisor, tree};

const CRASH: ExitReason = ExitReason::Code(1);

/// Passes on what it is told.
pub(super) struct Watcher(mpsc::UnboundedSender<Down>);

impl Watcher {
    pub(super) fn start_on(
        arbiter: &ArbiterHandle,
    ) -> (mpsc::UnboundedReceiver<Down>, Recipient<Down>) {
        let (sender, told) = mpsc::unbounded_channel();
        let (give, recipient) = std::sync::mpsc::channel();
        arbiter.spawn_fn(move || {
            Watcher::create(|context| {
                give.send(context.address().recipient()).unwrap();
                Watcher(sender)
            });
        });
        (told, recipient.recv().unwrap())
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

pub(super) async fn next(told: &mut mpsc::UnboundedReceiver<Down>) -> (String, ExitReason) {
    let down = told.recv().await.unwrap();
    (down.name, down.reason)
}

#[test]
fn who_watches_a_child_is_told_once_of_each_incarnation() {
    run(async {
        let (scene, mut log) = scene();
        let supervisor =
            eager("watched").child(scene.child("a")).start_on(&system()).await.unwrap();
        let (mut told, recipient) = Watcher::start_on(&system());
        supervisor.watch_child("a", recipient).unwrap();
        log.expect(&["start a"]).await;
        for code in 1..=3 {
            scene.exit("a", ExitReason::Code(code));
            assert_eq!(next(&mut told).await, ("watched/a".into(), ExitReason::Code(code)));
            log.expect(&["start a"]).await;
        }
        settled(&supervisor).await;
        supervisor.stop().await.unwrap();
        assert_eq!(next(&mut told).await, ("watched/a".into(), ExitReason::Shutdown));
        assert_eq!(told.try_recv().ok(), None);
    });
}

#[test]
fn who_watches_a_supervisor_is_told_once_why_it_ended_and_at_once_if_it_has() {
    run(async {
        let (scene, _log) = scene();
        let builder = eager("seen").intensity(0, Duration::from_secs(60)).child(scene.child("a"));
        let supervisor = builder.start_on(&system()).await.unwrap();
        let watchers = system();
        let (mut told, recipient) = Watcher::start_on(&watchers);
        supervisor.watch(recipient);
        scene.exit("a", CRASH);
        let (name, reason) = next(&mut told).await;
        assert_eq!(name, "seen");
        assert!(matches!(&reason, ExitReason::IntensityReached { .. }), "{reason}");
        assert_eq!(supervisor.join().await.unwrap(), reason);
        assert_eq!(told.try_recv().ok(), None);
        let (mut late, recipient) = Watcher::start_on(&watchers);
        supervisor.watch(recipient);
        assert_eq!(next(&mut late).await, ("seen".into(), reason));
    });
}

#[test]
fn who_watches_a_nested_supervisor_is_told_of_each_incarnation() {
    run(async {
        let (scene, mut log) = scene();
        let inner = eager("").intensity(0, Duration::from_secs(60)).child(scene.child("a"));
        let supervisor = eager("over")
            .child(ChildSpec::supervisor("inner", inner))
            .start_on(&system())
            .await
            .unwrap();
        let (mut told, recipient) = Watcher::start_on(&system());
        let inner = supervisor.supervisor("inner").unwrap();
        inner.watch(recipient);
        scene.exit("a", CRASH);
        assert!(
            matches!(next(&mut told).await, (name, ExitReason::IntensityReached { .. }) if name == "over/inner")
        );
        log.expect(&["start a", "start a"]).await;
        settled(&supervisor).await;
        supervisor.stop().await.unwrap();
        assert_eq!(next(&mut told).await, ("over/inner".into(), ExitReason::Shutdown));
        assert_eq!(told.try_recv().ok(), None);
    });
}

#[test]
fn who_watches_while_nothing_runs_is_told_when_the_child_is_given_up() {
    run(async {
        let (scene, mut log) = scene();
        let hour = Duration::from_secs(3_600);
        let supervisor = Supervisor::builder("idle").backoff(Backoff::new(hour, hour));
        let supervisor = supervisor.child(scene.child("a")).start_on(&system()).await.unwrap();
        scene.exit("a", CRASH);
        log.expect(&["start a", "start a"]).await;
        scene.exit_now("a", CRASH).await;
        settled(&supervisor).await;
        assert_eq!(tree().find("idle/a").unwrap().state, State::Restarting);
        let (mut told, recipient) = Watcher::start_on(&system());
        supervisor.watch_child("a", recipient).unwrap();
        supervisor.stop_child("a").await.unwrap();
        assert_eq!(next(&mut told).await, ("idle/a".into(), ExitReason::Shutdown));
    });
}

#[test]
fn the_tree_shows_who_runs_where_and_how_often_it_was_restarted() {
    run(async {
        let (scene, mut log) = scene();
        let hour = Duration::from_secs(3_600);
        let inner = eager("").child(scene.child("x"));
        let builder = Supervisor::builder("pool-1")
            .backoff(Backoff::new(hour, hour))
            .child(scene.child("worker-1"));
        let builder =
            builder.child(scene.child("worker-2")).child(ChildSpec::supervisor("inner", inner));
        let done = scene.child("done").restart(Restart::Transient);
        let supervisor = builder.child(done).start_on(&system()).await.unwrap();
        log.expect(&["start worker-1", "start worker-2", "start x", "start done"]).await;
        scene.exit("worker-2", CRASH);
        log.expect(&["start worker-2"]).await;
        scene.exit_now("worker-2", ExitReason::Signal(9)).await;
        scene.exit_now("done", ExitReason::Normal).await;
        settled(&supervisor).await;
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
        let (scene, _log) = scene();
        let inner = eager("").child(scene.child("only-here-1")).child(scene.child("only-here-2"));
        let supervisor = eager("leaves").child(ChildSpec::supervisor("only-here-3", inner));
        let supervisor = supervisor.start_on(&system()).await.unwrap();
        assert_eq!(crate::supervisor::tree::members("only-here").len(), 3);
        supervisor.stop().await.unwrap();
        assert_eq!(crate::supervisor::tree::members("only-here").len(), 0);
    });
}

use std::time::Duration;

use fiber_core::{Error, ExitReason};

use super::script::{Manner, eager, run, scene, system};
use crate::supervisor::{Shutdown, tree};

#[test]
fn a_child_that_ignores_its_shutdown_is_killed_after_its_deadline() {
    run(async {
        let (scene, mut log) = scene();
        let short = Shutdown::After(Duration::from_millis(20));
        let builder = eager("ignores").child(scene.child("a"));
        let builder = builder
            .child(scene.mannered("b", Manner::Ignores).shutdown(short))
            .child(scene.child("c"));
        let supervisor = builder.start_on(&system()).await.unwrap();
        supervisor.stop().await.unwrap();
        log.expect(&["start a", "start b", "start c", "stop c", "stop b", "kill b", "stop a"])
            .await;
        assert_eq!(supervisor.join().await.unwrap(), ExitReason::Shutdown);
        log.expect_no_more();
    });
}

#[test]
fn a_child_without_patience_is_killed_at_once_and_one_with_all_of_it_is_waited_for() {
    run(async {
        let (scene, mut log) = scene();
        let waited = scene.mannered("a", Manner::Ignores).shutdown(Shutdown::Wait);
        let builder =
            eager("patience").child(waited).child(scene.child("b").shutdown(Shutdown::Kill));
        let supervisor = builder.start_on(&system()).await.unwrap();
        let exit = scene.exit_of("a");
        let shutdown = tokio::spawn({
            let supervisor = supervisor.clone();
            async move { supervisor.stop().await }
        });
        log.expect(&["start a", "start b", "kill b", "stop a"]).await;
        exit.send(ExitReason::Normal).unwrap();
        shutdown.await.unwrap().unwrap();
        log.expect_no_more();
    });
}

#[test]
fn a_child_that_survives_its_kill_is_given_up() {
    run(async {
        let (scene, mut log) = scene();
        let immortal = scene.mannered("a", Manner::Immortal).shutdown(Shutdown::Kill);
        let supervisor = eager("immortal").child(immortal).start_on(&system()).await.unwrap();
        supervisor.stop().await.unwrap();
        log.expect(&["start a", "kill a"]).await;
        log.expect_no_more();
    });
}

#[test]
fn a_start_that_fails_ends_those_before_it_and_leaves_nothing() {
    run(async {
        let (scene, mut log) = scene();
        let builder =
            eager("fails").child(scene.child("a")).child(scene.child("b")).child(scene.child("c"));
        scene.fail_starts("b", 1);
        let error = builder.child(scene.child("d")).start_on(&system()).await.unwrap_err();
        assert!(matches!(&error, Error::Start { name, .. } if name == "fails"), "{error:?}");
        assert!(error.to_string().contains("`b` could not be started: as told"), "{error}");
        log.expect(&["start a", "fail b", "stop a"]).await;
        log.expect_no_more();
        assert!(tree().find("fails").is_none());
    });
}

#[test]
fn names_are_checked_before_anything_is_started() {
    run(async {
        let (scene, mut log) = scene();
        let arbiter = system();
        let twice =
            eager("names").child(scene.child("a")).child(scene.child("a")).start_on(&arbiter).await;
        let slash = eager("names").child(scene.child("a/b")).start_on(&arbiter).await;
        let empty = eager("").start_on(&arbiter).await;
        for result in [twice, slash, empty] {
            assert!(matches!(result, Err(Error::Invalid { .. })), "{result:?}");
        }
        log.expect_no_more();
    });
}

#[test]
fn dropping_the_last_reference_ends_nothing() {
    run(async {
        let (scene, mut log) = scene();
        let supervisor =
            eager("dropped").child(scene.child("a")).start_on(&system()).await.unwrap();
        drop(supervisor);
        scene.exit("a", ExitReason::Code(1));
        log.expect(&["start a", "start a"]).await;
        assert!(tree().find("dropped/a").is_some());
    });
}

#[test]
fn shutdown_of_an_ended_supervisor_is_no_error() {
    run(async {
        let supervisor = eager("twice").start_on(&system()).await.unwrap();
        supervisor.stop().await.unwrap();
        supervisor.stop().await.unwrap();
        assert!(matches!(supervisor.stop_child("a").await, Err(Error::ActorStopped { .. })));
    });
}

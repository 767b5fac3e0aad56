use std::time::Duration;

use fiber_core::{Error, ExitReason};

use super::scripted::{OnStop, eager, run, script, start, system};
use crate::supervisor::{Shutdown, tree};

#[test]
fn a_child_that_ignores_its_shutdown_is_killed_after_its_deadline() {
    run(async {
        let (script, mut log) = script();
        let short = Shutdown::After(Duration::from_millis(20));
        let builder = eager("ignores").child(script.child("a"));
        let builder = builder
            .child(script.child_that("b", OnStop::Ignore).shutdown(short))
            .child(script.child("c"));
        let supervisor = start(builder).await;
        supervisor.stop().await.unwrap();
        log.expect(&["start a", "start b", "start c", "stop c", "stop b", "kill b", "stop a"])
            .await;
        assert_eq!(supervisor.join().await.unwrap(), ExitReason::Shutdown);
        log.expect_no_more();
    });
}

#[test]
fn a_child_with_shutdown_kill_is_killed_and_one_with_shutdown_wait_is_waited_for() {
    run(async {
        let (script, mut log) = script();
        let waited = script.child_that("a", OnStop::Ignore).shutdown(Shutdown::Wait);
        let builder =
            eager("shutdowns").child(waited).child(script.child("b").shutdown(Shutdown::Kill));
        let supervisor = start(builder).await;
        let exit = script.exit_sender("a");
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
fn a_supervisor_goes_on_without_a_child_that_survives_its_kill() {
    run(async {
        let (script, mut log) = script();
        let immortal = script.child_that("a", OnStop::IgnoreKill).shutdown(Shutdown::Kill);
        let supervisor = start(eager("immortal").child(immortal)).await;
        supervisor.stop().await.unwrap();
        log.expect(&["start a", "kill a"]).await;
        log.expect_no_more();
    });
}

#[test]
fn a_start_that_fails_stops_the_children_before_it_and_leaves_nothing() {
    run(async {
        let (script, mut log) = script();
        let builder = eager("fails")
            .child(script.child("a"))
            .child(script.child("b"))
            .child(script.child("c"));
        script.fail_starts("b", 1);
        let error = builder.child(script.child("d")).start_on(&system()).await.unwrap_err();
        assert!(matches!(&error, Error::Start { name, .. } if name == "fails"), "{error:?}");
        assert!(error.to_string().contains("`b` could not be started: as scripted"), "{error}");
        log.expect(&["start a", "fail b", "stop a"]).await;
        log.expect_no_more();
        assert!(tree().find("fails").is_none());
    });
}

#[test]
fn names_are_checked_before_anything_is_started() {
    run(async {
        let (script, mut log) = script();
        let arbiter = system();
        let twice = eager("names")
            .child(script.child("a"))
            .child(script.child("a"))
            .start_on(&arbiter)
            .await;
        let slash = eager("names").child(script.child("a/b")).start_on(&arbiter).await;
        let empty = eager("").start_on(&arbiter).await;
        for result in [twice, slash, empty] {
            assert!(matches!(result, Err(Error::Invalid { .. })), "{result:?}");
        }
        log.expect_no_more();
    });
}

#[test]
fn dropping_the_last_reference_stops_nothing() {
    run(async {
        let (script, mut log) = script();
        let supervisor = start(eager("dropped").child(script.child("a"))).await;
        drop(supervisor);
        script.exit("a", ExitReason::Code(1));
        log.expect(&["start a", "start a"]).await;
        assert!(tree().find("dropped/a").is_some());
    });
}

#[test]
fn stopping_an_ended_supervisor_is_no_error() {
    run(async {
        let supervisor = start(eager("twice")).await;
        supervisor.stop().await.unwrap();
        supervisor.stop().await.unwrap();
        assert!(matches!(supervisor.stop_child("a").await, Err(Error::ActorStopped { .. })));
    });
}

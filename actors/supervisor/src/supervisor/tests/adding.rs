use fiber_core::{Error, ExitReason};

use super::scripted::{OnStop, eager, events_handled, run, script, start};
use crate::supervisor::{Restart, Shutdown, Strategy, tree};

#[test]
fn an_added_child_is_restarted_until_it_is_stopped() {
    run(async {
        let (script, mut log) = script();
        let supervisor = start(eager("added")).await;
        supervisor.add_child(script.child("a")).await.unwrap();
        script.exit("a", ExitReason::Code(1));
        log.expect(&["start a", "start a"]).await;
        events_handled(&supervisor).await;
        supervisor.stop_child("a").await.unwrap();
        log.expect(&["stop a"]).await;
        assert!(matches!(supervisor.stop_child("a").await, Err(Error::Invalid { .. })));
        supervisor.add_child(script.child("a")).await.unwrap();
        log.expect(&["start a"]).await;
        assert!(matches!(
            supervisor.add_child(script.child("b/c")).await,
            Err(Error::Invalid { .. })
        ));
        log.expect_no_more();
    });
}

#[test]
fn a_name_is_taken_until_its_child_is_removed() {
    run(async {
        let (script, _log) = script();
        let (other, _other_log) = self::script();
        let supervisor = start(eager("taken")).await;
        supervisor.add_child(script.child("a").restart(Restart::Temporary)).await.unwrap();
        assert!(matches!(supervisor.add_child(other.child("a")).await, Err(Error::Invalid { .. })));
        script.exit_and_wait("a", ExitReason::Code(1)).await;
        events_handled(&supervisor).await;
        supervisor.add_child(other.child("a")).await.unwrap();
    });
}

#[test]
fn a_child_that_can_not_be_started_is_not_added() {
    run(async {
        let (script, mut log) = script();
        let supervisor = start(eager("refused")).await;
        let spec = script.child("a");
        script.fail_starts("a", 1);
        let error = supervisor.add_child(spec).await.unwrap_err();
        assert!(matches!(&error, Error::Start { name, .. } if name == "refused/a"), "{error}");
        log.expect(&["fail a"]).await;
        assert!(tree().find("refused/a").is_none());
        supervisor.add_child(script.child("a")).await.unwrap();
    });
}

#[test]
fn added_children_start_and_stop_concurrently() {
    run(async {
        let (script, mut log) = script();
        let supervisor = start(eager("concurrent")).await;
        // Neither start is done before the other has begun.
        let (slow, other) = (script.slow("slow", "other"), script.slow("other", "slow"));
        let (first, second) = tokio::join!(supervisor.add_child(slow), supervisor.add_child(other));
        first.and(second).unwrap();
        for _ in 0..4 {
            log.next().await;
        }
        supervisor
            .add_child(script.child_that("c", OnStop::Ignore).shutdown(Shutdown::Wait))
            .await
            .unwrap();
        supervisor
            .add_child(script.child_that("d", OnStop::Ignore).shutdown(Shutdown::Wait))
            .await
            .unwrap();
        log.expect(&["start c", "start d"]).await;
        let end = async {
            log.expect(&["stop c", "stop d"]).await;
            script.exit("c", ExitReason::Normal);
            script.exit("d", ExitReason::Normal);
        };
        let (c, d, ()) = tokio::join!(supervisor.stop_child("c"), supervisor.stop_child("d"), end);
        c.and(d).unwrap();
    });
}

#[test]
fn a_child_can_be_stopped_while_it_starts() {
    run(async {
        let (script, mut log) = script();
        let supervisor = start(eager("early")).await;
        let end = async {
            log.expect(&["begin slow"]).await;
            supervisor.stop_child("slow").await.unwrap();
        };
        let (added, ()) = tokio::join!(supervisor.add_child(script.slow("slow", "nobody")), end);
        assert!(matches!(added, Err(Error::ActorStopped { .. })), "{added:?}");
        assert!(tree().find("early/slow").is_none());
    });
}

#[test]
fn added_children_stop_concurrently_only_if_they_do_not_depend_on_each_other() {
    run(async {
        for (strategy, together) in [(Strategy::OneForOne, true), (Strategy::RestForOne, false)] {
            let (script, mut log) = script();
            let builder = eager("ends").strategy(strategy).child(script.child("static"));
            let supervisor = start(builder).await;
            for name in ["a", "b"] {
                supervisor
                    .add_child(script.child_that(name, OnStop::Ignore).shutdown(Shutdown::Wait))
                    .await
                    .unwrap();
            }
            log.expect(&["start static", "start a", "start b"]).await;
            let ends = async {
                log.expect(if together { &["stop b", "stop a"] } else { &["stop b"] }).await;
                log.expect_no_more();
                script.exit("b", ExitReason::Normal);
                if !together {
                    log.expect(&["stop a"]).await;
                }
                script.exit("a", ExitReason::Normal);
                log.expect(&["stop static"]).await;
            };
            let (ended, ()) = tokio::join!(supervisor.stop(), ends);
            ended.unwrap();
        }
    });
}

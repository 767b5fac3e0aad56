use std::time::Duration;

use fiber_core::ExitReason;

use super::scripted::{eager, events_handled, run, script, start, system};
use crate::supervisor::{ChildSpec, Restart, Strategy, tree};

const CRASH: ExitReason = ExitReason::Code(1);

#[test]
fn a_supervisor_that_gives_up_is_restarted_with_all_its_children() {
    run(async {
        let (script, mut log) = script();
        let inner = eager("")
            .intensity(0, Duration::from_secs(60))
            .child(script.child("a"))
            .child(script.child("b"));
        let builder = eager("outer")
            .child(script.child("before"))
            .child(ChildSpec::supervisor("inner", inner));
        let supervisor = start(builder.child(script.child("after"))).await;
        log.expect(&["start before", "start a", "start b", "start after"]).await;
        script.exit("b", CRASH);
        log.expect(&["stop a", "start a", "start b"]).await;
        let inner = supervisor.supervisor("inner").unwrap();
        events_handled(&inner).await;
        events_handled(&supervisor).await;
        let tree = tree();
        let branch = tree.find("outer/inner").unwrap();
        assert_eq!(branch.restarts, 1);
        assert!(matches!(branch.last_exit, Some(ExitReason::IntensityReached { .. })));
        supervisor.stop().await.unwrap();
        log.expect(&["stop after", "stop b", "stop a", "stop before"]).await;
        log.expect_no_more();
        assert!(matches!(inner.join().await.unwrap(), ExitReason::Shutdown));
    });
}

#[test]
fn failures_escalate_to_the_top() {
    run(async {
        let (script, mut log) = script();
        let none = Duration::from_secs(60);
        let low = eager("").intensity(0, none).child(script.child("a"));
        let middle = eager("").intensity(0, none).child(ChildSpec::supervisor("low", low));
        let builder = eager("top").intensity(0, none).child(script.child("z"));
        let supervisor = start(builder.child(ChildSpec::supervisor("middle", middle))).await;
        script.exit("a", CRASH);
        let ExitReason::IntensityReached { child, last, .. } = supervisor.join().await.unwrap()
        else {
            panic!("no reason")
        };
        let ExitReason::IntensityReached { child: below, .. } = *last else {
            panic!("no reason below")
        };
        assert_eq!((child.as_str(), below.as_str()), ("middle", "low"));
        log.expect(&["start z", "start a", "stop z"]).await;
        log.expect_no_more();
    });
}

#[test]
fn a_nested_start_that_fails_fails_the_start_of_all() {
    run(async {
        let (script, mut log) = script();
        let inner = eager("").child(script.child("a")).child(script.child("b"));
        script.fail_starts("b", 1);
        let builder = eager("whole")
            .child(script.child("first"))
            .child(ChildSpec::supervisor("inner", inner));
        let error = builder.start_on(&system()).await.unwrap_err();
        assert!(
            error.to_string().contains("its child `inner` could not be started: its child `b`"),
            "{error}"
        );
        log.expect(&["start first", "start a", "fail b", "stop a", "stop first"]).await;
    });
}

#[test]
fn children_added_to_a_nested_supervisor_are_removed_at_its_end() {
    run(async {
        let (script, mut log) = script();
        let inner = eager("").intensity(0, Duration::from_secs(60)).child(script.child("a"));
        let supervisor = start(eager("lost").child(ChildSpec::supervisor("inner", inner))).await;
        let inner = supervisor.supervisor("inner").unwrap();
        inner.add_child(script.child("x")).await.unwrap();
        script.exit("a", CRASH);
        log.expect(&["start a", "start x", "stop x", "start a"]).await;
        events_handled(&inner).await;
        assert!(supervisor.watch_child("inner/x", watcher()).await.is_err());
        supervisor.watch_child("inner/a", watcher()).await.unwrap();
        inner.add_child(script.child("x")).await.unwrap();
    });
}

#[test]
fn a_killed_supervisor_kills_its_children() {
    run(async {
        let (script, mut log) = script();
        let inner = eager("").child(script.child("a")).child(script.child("b"));
        let spec = ChildSpec::supervisor("inner", inner).restart(Restart::Temporary);
        let supervisor = start(eager("killer").child(spec)).await;
        supervisor.kill_child("inner", ExitReason::TaskCancelled).await.unwrap();
        log.expect(&["start a", "start b", "kill b", "kill a"]).await;
        log.expect_no_more();
        assert!(tree().find("killer/inner").is_none());
    });
}

#[test]
fn a_nested_supervisor_restarts_with_its_group() {
    run(async {
        let (script, mut log) = script();
        let inner = eager("").child(script.child("a")).child(script.child("b"));
        let builder = eager("group").strategy(Strategy::RestForOne).child(script.child("first"));
        let supervisor = start(builder.child(ChildSpec::supervisor("inner", inner))).await;
        script.exit("first", CRASH);
        log.expect(&["start first", "start a", "start b"]).await;
        log.expect(&["stop b", "stop a", "start first", "start a", "start b"]).await;
        events_handled(&supervisor).await;
        supervisor.stop_child("inner").await.unwrap();
        log.expect(&["stop b", "stop a"]).await;
        log.expect_no_more();
    });
}

fn watcher() -> actix::Recipient<crate::supervisor::Down> {
    super::watching::Watcher::start_on(&system()).1
}

use std::time::Duration;

use fiber_core::{Error, ExitReason};
use futures_core::future::LocalBoxFuture;
use proptest::prelude::*;
use tokio::sync::mpsc;

use super::scripted::{OnStop, eager, events_handled, run, script, start};
use crate::supervisor::intensity::{Failures, Intensity};
use crate::supervisor::{
    Backoff, ChildContext, ChildSpec, Control, Counts, Restart, Running, Start, Strategy,
    Supervisor, tree,
};

const CRASH: ExitReason = ExitReason::Code(1);

#[test]
fn one_for_one_restarts_only_the_child_that_failed() {
    run(async {
        let (script, mut log) = script();
        let builder =
            eager("ofo").child(script.child("a")).child(script.child("b")).child(script.child("c"));
        let supervisor = start(builder).await;
        script.exit("b", CRASH);
        log.expect(&["start a", "start b", "start c", "start b"]).await;
        events_handled(&supervisor).await;
        supervisor.stop().await.unwrap();
        log.expect(&["stop c", "stop b", "stop a"]).await;
        log.expect_no_more();
    });
}

#[test]
fn one_for_all_stops_the_others_in_reverse_order_and_starts_all_in_order() {
    run(async {
        let (script, mut log) = script();
        let builder = eager("ofa").strategy(Strategy::OneForAll);
        let builder =
            builder.child(script.child("a")).child(script.child("b")).child(script.child("c"));
        let supervisor = start(builder).await;
        script.exit("b", CRASH);
        log.expect(&["start a", "start b", "start c"]).await;
        log.expect(&["stop c", "stop a", "start a", "start b", "start c"]).await;
        events_handled(&supervisor).await;
        supervisor.stop().await.unwrap();
        log.expect(&["stop c", "stop b", "stop a"]).await;
        log.expect_no_more();
    });
}

#[test]
fn rest_for_one_restarts_the_child_and_those_after_it() {
    run(async {
        let (script, mut log) = script();
        let builder = eager("rfo").strategy(Strategy::RestForOne);
        let builder =
            builder.child(script.child("a")).child(script.child("b")).child(script.child("c"));
        let supervisor = start(builder.child(script.child("d"))).await;
        script.exit("b", CRASH);
        log.expect(&["start a", "start b", "start c", "start d"]).await;
        log.expect(&["stop d", "stop c", "start b", "start c", "start d"]).await;
        events_handled(&supervisor).await;
        supervisor.stop().await.unwrap();
        log.expect(&["stop d", "stop c", "stop b", "stop a"]).await;
        log.expect_no_more();
    });
}

#[test]
fn children_that_fail_together_are_one_failure_of_their_group() {
    run(async {
        let (script, mut log) = script();
        let builder =
            eager("together").strategy(Strategy::OneForAll).intensity(1, Duration::from_secs(60));
        let builder =
            builder.child(script.child("a")).child(script.child_that("b", OnStop::Ignore));
        let supervisor = start(builder.child(script.child_that("c", OnStop::Ignore))).await;
        script.exit("a", CRASH);
        log.expect(&["start a", "start b", "start c", "stop c"]).await;
        // One that is not stopping yet, and one that is.
        script.exit("b", CRASH);
        script.exit("c", CRASH);
        log.expect(&["start a", "start b", "start c"]).await;
        script.exit("a", CRASH);
        log.expect(&["stop c"]).await;
        script.exit("c", CRASH);
        log.expect(&["stop b"]).await;
        script.exit("b", CRASH);
        assert!(matches!(
            supervisor.join().await.unwrap(),
            ExitReason::IntensityReached { restarts: 1, .. }
        ));
        log.expect_no_more();
    });
}

#[test]
fn restart_kinds_decide_what_happens_after_a_normal_end_and_after_a_failure() {
    run(async {
        for (restart, reason, restarted) in [
            (Restart::Permanent, ExitReason::Normal, true),
            (Restart::Permanent, CRASH, true),
            (Restart::Transient, ExitReason::Normal, false),
            (Restart::Transient, CRASH, true),
            (Restart::Temporary, ExitReason::Normal, false),
            (Restart::Temporary, CRASH, false),
        ] {
            let (script, mut log) = script();
            let builder =
                eager("kinds").child(script.child("a").restart(restart)).child(script.child("z"));
            let supervisor = start(builder).await;
            script.exit_and_wait("a", reason.clone()).await;
            script.exit("z", CRASH);
            // The supervisor has handled both ends when the second child is back.
            log.expect(&["start a", "start z"]).await;
            log.expect(if restarted { &["start a", "start z"] } else { &["start z"] }).await;
            events_handled(&supervisor).await;
            supervisor.stop().await.unwrap();
            log.expect(if restarted { &["stop z", "stop a"] } else { &["stop z"] }).await;
            log.expect_no_more();
        }
    });
}

#[test]
fn a_temporary_child_is_not_started_again_with_its_group() {
    run(async {
        let (script, mut log) = script();
        let builder = eager("temporary").strategy(Strategy::OneForAll).child(script.child("a"));
        let builder =
            builder.child(script.child("b").restart(Restart::Temporary)).child(script.child("c"));
        let supervisor = start(builder).await;
        script.exit("a", CRASH);
        log.expect(&["start a", "start b", "start c", "stop c", "stop b", "start a", "start c"])
            .await;
        events_handled(&supervisor).await;
        supervisor.stop().await.unwrap();
        log.expect(&["stop c", "stop a"]).await;
        log.expect_no_more();
    });
}

#[test]
fn one_failure_more_than_the_intensity_ends_the_supervisor_with_the_reason() {
    run(async {
        let (script, mut log) = script();
        let builder = eager("intense").intensity(2, Duration::from_secs(60));
        let supervisor = start(builder.child(script.child("a")).child(script.child("b"))).await;
        log.expect(&["start a", "start b"]).await;
        for _ in 0..2 {
            script.exit("b", CRASH);
            log.expect(&["start b"]).await;
        }
        script.exit("b", ExitReason::Code(3));
        log.expect(&["stop a"]).await;
        let ExitReason::IntensityReached { restarts, child, last, .. } =
            supervisor.join().await.unwrap()
        else {
            panic!("another reason")
        };
        assert_eq!((restarts, child.as_str(), *last), (2, "b", ExitReason::Code(3)));
        let refused = supervisor.add_child(script.child("late")).await.unwrap_err();
        assert!(
            matches!(
                refused,
                Error::ActorStopped { reason: ExitReason::IntensityReached { .. }, .. }
            ),
            "{refused}"
        );
        log.expect_no_more();
    });
}

#[test]
fn failures_of_a_started_child_do_not_count_if_only_starts_do() {
    run(async {
        let (script, mut log) = script();
        let builder = eager("counts").intensity(1, Duration::from_secs(60));
        let builder = builder.child(script.child("a").counts(Counts::BeforeReady));
        let supervisor = start(builder).await;
        log.expect(&["start a"]).await;
        for _ in 0..20 {
            script.exit("a", CRASH);
            log.expect(&["start a"]).await;
        }
        script.fail_starts("a", 2);
        script.exit("a", CRASH);
        log.expect(&["fail a", "fail a"]).await;
        let ExitReason::IntensityReached { last, .. } = supervisor.join().await.unwrap() else {
            panic!("another reason")
        };
        assert_eq!(*last, ExitReason::NotStarted("as scripted".into()));
    });
}

#[test]
fn a_function_in_the_specification_decides_which_failures_count() {
    run(async {
        let (script, mut log) = script();
        let builder = eager("which").intensity(0, Duration::from_secs(60));
        let counts = Counts::When(|reason, ran| ran.is_some() && *reason == ExitReason::Code(2));
        let supervisor = start(builder.child(script.child("a").counts(counts))).await;
        script.exit("a", CRASH);
        log.expect(&["start a", "start a"]).await;
        script.exit("a", ExitReason::Code(2));
        assert!(matches!(supervisor.join().await.unwrap(), ExitReason::IntensityReached { .. }));
    });
}

#[test]
fn a_restart_that_fails_is_retried_after_a_pause() {
    run(async {
        let (script, mut log) = script();
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(20));
        let supervisor = Supervisor::builder("again").backoff(backoff);
        let supervisor = start(supervisor.child(script.child("a"))).await;
        script.fail_starts("a", 2);
        script.exit("a", CRASH);
        log.expect(&["start a", "fail a", "fail a", "start a"]).await;
        events_handled(&supervisor).await;
        supervisor.stop().await.unwrap();
    });
}

#[test]
fn a_group_waits_out_its_pause_together() {
    run(async {
        let (script, mut log) = script();
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(20));
        let supervisor =
            Supervisor::builder("pause").backoff(backoff).strategy(Strategy::OneForAll);
        let supervisor = start(supervisor.child(script.child("a")).child(script.child("b"))).await;
        log.expect(&["start a", "start b"]).await;
        script.fail_starts("b", 1);
        script.exit("b", CRASH);
        log.expect(&["stop a", "start a", "fail b", "stop a", "start a", "start b"]).await;
        events_handled(&supervisor).await;
        supervisor.stop().await.unwrap();
    });
}

#[test]
fn a_killed_child_is_restarted_and_the_reason_is_that_of_the_kill() {
    run(async {
        let (script, mut log) = script();
        let supervisor = start(eager("killed").child(script.child_that("a", OnStop::Ignore))).await;
        let reason = ExitReason::TaskTimedOut(Duration::from_secs(1));
        supervisor.kill_child("a", reason.clone()).await.unwrap();
        log.expect(&["start a", "kill a", "start a"]).await;
        assert_eq!(tree().find("killed/a").unwrap().last_exit, Some(reason));
        supervisor.kill_child("b", ExitReason::TaskCancelled).await.unwrap_err();
    });
}

proptest! {
    #[test]
    fn intensity_is_reached_exactly_when_the_period_holds_too_many(
        gaps in proptest::collection::vec(0..4_000_u64, 1..60), restarts in 0..5_u32,
    ) {
        let limit = Intensity { restarts, period: Duration::from_secs(5) };
        let mut failures = Failures::default();
        let mut now = std::time::Instant::now();
        let mut times = Vec::new();
        for gap in gaps {
            now += Duration::from_millis(gap);
            times.push(now);
            let within = |time: &&std::time::Instant| now.duration_since(**time) <= limit.period;
            let failed = times.iter().filter(within).count();
            prop_assert_eq!(failures.add(now, &limit), failed > restarts as usize);
        }
    }
}

/// Ends at once, and says that it has been of use.
struct ShortButUseful(mpsc::UnboundedSender<u64>);

impl Start for ShortButUseful {
    fn start(
        &mut self,
        context: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let _ = self.0.send(context.incarnation());
        context.note_work();
        Box::pin(async { Ok(Running::new(NoControl, async { ExitReason::Code(1) })) })
    }
}

struct NoControl;

impl Control for NoControl {
    fn shutdown(&mut self) {}

    fn kill(&mut self, _: ExitReason) {}
}

#[test]
fn a_child_that_was_of_use_restarts_at_once_however_short_its_life_was() {
    run(async {
        let hour = Duration::from_secs(3600);
        let (starts, mut started) = mpsc::unbounded_channel();
        let child = ChildSpec::new("short", ShortButUseful(starts));
        let builder = Supervisor::builder("useful").child(child);
        let builder = builder.backoff(Backoff::new(hour, hour).jitter(0.0));
        let supervisor = start(builder.intensity(u32::MAX, Duration::from_secs(1))).await;
        for incarnation in 1..=5 {
            assert_eq!(started.recv().await, Some(incarnation));
        }
        supervisor.stop().await.unwrap();
    });
}

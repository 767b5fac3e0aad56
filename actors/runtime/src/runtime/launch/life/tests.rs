mod random;

use super::*;

const START: Duration = Duration::from_secs(60);
const SCHEDULE: Duration = Duration::from_secs(600);
const PULL: Duration = Duration::from_secs(300);
const SILENCE: Duration = Duration::from_secs(30);
const LAG: Duration = Duration::from_secs(5);
const KILL: Duration = Duration::from_secs(10);

const LIMITS: Limits =
    Limits { start: START, schedule: SCHEDULE, pull: PULL, silence: SILENCE, lag: LAG, kill: KILL };

/// Scripted answers of the rest of the program.
#[derive(Clone, Debug, Default)]
struct Around {
    accept_failure: Option<String>,
    is_host_failing: bool,
    may_wait_longer: bool,
}

impl Surroundings for Around {
    fn accept_failure(&self) -> Option<String> {
        self.accept_failure.clone()
    }

    fn is_host_failing(&self) -> bool {
        self.is_host_failing
    }

    fn may_wait_longer(&self) -> bool {
        self.may_wait_longer
    }
}

/// A child's life with a clock.
struct Story {
    life: ChildLife,
    now: Instant,
    around: Around,
}

impl Story {
    fn new() -> Story {
        let now = Instant::now();
        Story { life: ChildLife::new(now, LIMITS), now, around: Around::default() }
    }

    fn connected() -> Story {
        let mut story = Story::new();
        story.job(JobState::Running);
        assert_eq!(story.tell(Event::Connected(Ok(()))), [Effect::Begin]);
        story
    }

    fn working() -> Story {
        let mut story = Story::connected();
        assert_eq!(story.message(MessageKind::Ready), [Effect::Ready]);
        story
    }

    /// Returns the effects of an event.
    fn tell(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.life.handle(self.now, event, &self.around, &mut effects);
        effects
    }

    fn job(&mut self, state: JobState) -> Vec<Effect> {
        self.tell(Event::Job(state))
    }

    fn message(&mut self, kind: MessageKind) -> Vec<Effect> {
        self.tell(Event::Message(kind))
    }

    fn link_closes(&mut self) -> Vec<Effect> {
        self.tell(Event::LinkClosed(LinkEnd::Closed("broken pipe".into())))
    }

    fn kill(&mut self, reason: ExitReason) -> Vec<Effect> {
        self.tell(Event::Command(ProcessCommand::Kill(reason)))
    }

    fn exits(&mut self, reason: ExitReason) -> Vec<Effect> {
        self.job(JobState::Ended(exit(reason)))
    }

    /// Passes the time until the deadline, which is this far away.
    fn after(&mut self, time: Duration) -> Vec<Effect> {
        assert_eq!(self.life.deadline().map(|deadline| deadline - self.now), Some(time));
        self.now += time;
        self.tell(Event::Deadline)
    }
}

fn exit(reason: ExitReason) -> Exit {
    Exit::new(reason, vec!["its last line".into()])
}

/// Returns the reason of the end, which is the last effect.
#[track_caller]
fn reason(effects: &[Effect]) -> &ExitReason {
    match effects {
        [.., Effect::End(exit)] => &exit.reason,
        other => panic!("it has not ended: {other:?}"),
    }
}

/// Returns the problem of a start that has failed.
#[track_caller]
fn problem(effects: &[Effect]) -> &str {
    match reason(effects) {
        ExitReason::NotStarted(problem) => problem,
        other => panic!("{other:?}"),
    }
}

fn lost(problem: &str) -> ExitReason {
    ExitReason::LinkLost(problem.into())
}

#[test]
fn a_child_connects_gets_ready_works_and_ends() {
    let mut story = Story::new();
    assert_eq!(story.job(JobState::Running), []);
    assert!(story.life.awaits_connection() && !story.life.must_send());
    assert_eq!(story.tell(Event::Connected(Ok(()))), [Effect::Begin]);
    assert!(!story.life.awaits_connection() && story.life.must_send());
    assert_eq!(story.message(MessageKind::Control), []);
    assert_eq!(story.message(MessageKind::Aside), [Effect::Deliver]);
    assert_eq!(story.message(MessageKind::Ready), [Effect::Ready]);
    assert_eq!(story.life.deadline(), None);
    assert_eq!(story.message(MessageKind::Main), [Effect::Deliver]);
    assert_eq!(story.tell(Event::Command(ProcessCommand::Shutdown)), [Effect::Shutdown]);
    assert_eq!(story.exits(ExitReason::Normal), []);
    assert_eq!(story.message(MessageKind::Main), [Effect::Deliver]);
    let end = story.link_closes();
    assert_eq!(end, [Effect::CloseLink, Effect::End(exit(ExitReason::Normal))]);
    assert_eq!(story.message(MessageKind::Main), []);
    assert_eq!(story.life.deadline(), None);
}

#[test]
fn each_step_of_a_start_has_its_own_time_and_its_own_error() {
    let mut story = Story::new();
    assert!(
        problem(&[story.after(START), story.after(MAX_LAG)].concat()).contains("connect and get")
    );

    let mut story = Story::new();
    let message = || "no node has 8 GPUs".to_string();
    let waits = JobState::Waiting(WaitReason::Resources("no room".into()));
    assert_eq!(story.job(waits), [Effect::Unschedulable(Some("no room".into()))]);
    story.now += SCHEDULE / 2;
    assert_eq!(story.job(JobState::Waiting(WaitReason::Resources(message()))), []);
    let failed = [story.after(SCHEDULE / 2), story.after(MAX_LAG)].concat();
    assert!(problem(&failed).contains("not scheduled") && problem(&failed).contains(&message()));

    let mut story = Story::new();
    story.around.may_wait_longer = true;
    let silent = || "node vm has not started its container yet".to_string();
    let unstarted = JobState::Waiting(WaitReason::Node(silent()));
    assert_eq!(story.job(unstarted), [Effect::Unschedulable(Some(silent()))]);
    story.now += START;
    let failed = [story.after(SCHEDULE - START), story.after(MAX_LAG)].concat();
    let failed = problem(&failed);
    assert!(failed.contains(&silent()) && failed.contains("`schedule_timeout`"), "{failed}");

    let mut story = Story::new();
    let pulls = JobState::Waiting(WaitReason::Image("pulling".into()));
    assert_eq!(story.job(pulls), [Effect::Unschedulable(None)]);
    assert!(
        problem(&[story.after(PULL), story.after(MAX_LAG)].concat()).contains("`pull_timeout`")
    );

    let mut story = Story::new();
    assert_eq!(story.job(JobState::AwaitsHost), [Effect::Unschedulable(None)]);
    assert_eq!(story.life.deadline(), None);
    story.now += SCHEDULE;
    assert_eq!(story.job(JobState::Starting), [Effect::Unschedulable(None)]);
    assert_eq!(story.job(JobState::Running), []);
    assert_eq!(story.tell(Event::Connected(Ok(()))), [Effect::Begin]);
    assert!(problem(&[story.after(START), story.after(MAX_LAG)].concat()).contains("initializer"));
}

#[test]
fn a_child_waits_longer_for_resources_if_its_owner_can_wait() {
    let mut story = Story::new();
    story.around.may_wait_longer = true;
    let told = [Effect::Unschedulable(Some("no room".into()))];
    let waits = JobState::Waiting(WaitReason::Resources("no room".into()));
    assert_eq!(story.job(waits), told);
    assert_eq!(story.after(SCHEDULE), told);
    assert_eq!(story.after(SCHEDULE), told);
    story.around.may_wait_longer = false;
    assert_eq!(story.after(SCHEDULE), [Effect::Kill]);
}

#[test]
fn a_failed_start_ends_with_the_last_output() {
    let mut story = Story::connected();
    let failed = story.message(MessageKind::Failed("no such entry".into()));
    assert_eq!(failed, [Effect::Kill]);
    let reason = ExitReason::NotStarted("no such entry".into());
    assert_eq!(story.exits(ExitReason::Signal(9)), [Effect::End(exit(reason))]);
}

#[test]
fn a_start_fails_for_the_connections_that_this_process_could_not_accept() {
    let mut story = Story::new();
    story.around.accept_failure = Some("no descriptors".into());
    let end = story.exits(ExitReason::Code(1));
    assert!(problem(&end).contains("no descriptors"), "{end:?}");

    let mut story = Story::new();
    assert_eq!(story.tell(Event::NotAccepted("no descriptors".into())), [], "it does not run");
    story.job(JobState::Running);
    let refused = story.tell(Event::NotAccepted("no descriptors".into()));
    assert_eq!(refused, [Effect::Kill]);
    assert!(problem(&story.after(MAX_LAG)).contains("no descriptors"));

    let mut story = Story::connected();
    story.around.accept_failure = Some("no descriptors".into());
    story.message(MessageKind::Failed("no such entry".into()));
    assert_eq!(problem(&story.after(MAX_LAG)), "no such entry", "it has connected");
}

#[test]
fn a_child_may_be_ready_before_its_end_is_known() {
    let mut story = Story::connected();
    assert_eq!(story.exits(ExitReason::Normal), []);
    assert_eq!(story.message(MessageKind::Ready), [Effect::Ready]);
    assert_eq!(story.message(MessageKind::Main), [Effect::Deliver]);
    assert_eq!(reason(&story.link_closes()), &ExitReason::Normal);

    let mut story = Story::connected();
    story.exits(ExitReason::Signal(11));
    assert_eq!(reason(&story.after(MAX_LAG)), &ExitReason::Signal(11));
}

#[test]
fn commands_that_need_a_child_at_work_wait_for_it() {
    let mut story = Story::new();
    assert_eq!(story.tell(Event::Command(ProcessCommand::Terminate)), []);
    story.tell(Event::Connected(Ok(())));
    assert_eq!(story.tell(Event::Command(ProcessCommand::Shutdown)), []);
    let ready = story.message(MessageKind::Ready);
    assert_eq!(ready, [Effect::Ready, Effect::Terminate, Effect::Shutdown]);
}

#[test]
fn a_child_that_starts_is_killed_at_once() {
    let mut story = Story::new();
    let end = story.kill(ExitReason::TaskCancelled);
    assert_eq!(end, [Effect::Kill, Effect::End(Exit::new(ExitReason::TaskCancelled, Vec::new()))]);
    let mut story = Story::connected();
    assert_eq!(reason(&story.tell(Event::Unowned)), &ExitReason::Shutdown);
    let mut story = Story::working();
    assert_eq!(story.tell(Event::Unowned), [], "its commands end it");
}

#[test]
fn a_killed_child_ends_for_the_reason_of_the_kill() {
    let mut story = Story::working();
    assert_eq!(story.kill(ExitReason::TaskCancelled), [Effect::Failing, Effect::Kill]);
    assert_eq!(story.message(MessageKind::Main), [Effect::Deliver]);
    assert_eq!(story.kill(ExitReason::Shutdown), [Effect::Kill], "the first cause counts");
    assert_eq!(story.exits(ExitReason::Signal(9)), []);
    assert_eq!(reason(&story.link_closes()), &ExitReason::TaskCancelled);
}

#[test]
fn a_killed_child_of_which_nothing_is_heard_is_given_up_after_its_time() {
    let mut story = Story::working();
    story.kill(ExitReason::TaskCancelled);
    story.now += KILL / 2;
    assert_eq!(story.link_closes(), [Effect::CloseLink]);
    let end = story.after(KILL / 2);
    assert_eq!(end[0], Effect::Unconfirmed);
    assert_eq!(reason(&end), &ExitReason::TaskCancelled);
}

#[test]
fn a_child_that_is_silent_after_its_link_closed_is_killed_and_given_up_after_its_time() {
    let mut story = Story::working();
    assert_eq!(story.link_closes(), [Effect::Failing, Effect::CloseLink]);
    assert_eq!(story.kill(ExitReason::Shutdown), [], "the link's end came first");
    assert_eq!(story.after(LAG), [Effect::Failing, Effect::Kill]);
    assert_eq!(reason(&story.after(KILL)), &lost("broken pipe"));
}

#[test]
fn the_exit_explains_more_than_the_end_of_the_link() {
    let mut story = Story::working();
    story.link_closes();
    assert_eq!(reason(&story.exits(ExitReason::Signal(11))), &ExitReason::Signal(11));
    // It has found the link closed itself.
    let mut story = Story::working();
    story.link_closes();
    let own = ExitReason::Code(ChildExit::LinkLost.code());
    assert_eq!(reason(&story.exits(own.clone())), &lost("broken pipe"));
    let mut story = Story::working();
    story.exits(own);
    assert_eq!(reason(&story.after(MAX_LAG)), &lost("its process found it closed"));
}

#[test]
fn a_silent_child_is_killed_unless_the_cluster_explains_its_silence() {
    let silent = ExitReason::HeartbeatLost(SILENCE);
    let evicted = ExitReason::Evicted("node pressure".into());
    for (end, expected) in [(ExitReason::Signal(9), silent), (evicted.clone(), evicted)] {
        let mut story = Story::working();
        assert_eq!(story.tell(Event::Silent), [Effect::Failing, Effect::Kill]);
        assert!(!story.life.must_send());
        story.link_closes();
        assert_eq!(reason(&story.exits(end)), &expected);
    }
}

#[test]
fn a_child_whose_host_is_being_lost_ends_for_the_reason_of_its_host() {
    let mut story = Story::working();
    story.around.is_host_failing = true;
    assert_eq!(story.tell(Event::Silent), []);
    let reason_of_host = ExitReason::HostEnded {
        host: "host-b".into(),
        reason: Box::new(ExitReason::HeartbeatLost(SILENCE)),
    };
    story.exits(reason_of_host.clone());
    assert_eq!(reason(&story.link_closes()), &reason_of_host);
}

#[test]
fn messages_from_before_the_end_count_until_there_are_none_for_a_while() {
    let mut story = Story::working();
    story.exits(ExitReason::Terminated);
    story.now += MAX_LAG / 2;
    assert_eq!(story.message(MessageKind::Main), [Effect::Deliver]);
    assert_eq!(story.life.deadline(), Some(story.now + MAX_LAG));
    story.now += MAX_LAG / 2;
    // The process of a deleted pod may still run.
    story.message(MessageKind::Control);
    assert_eq!(reason(&story.after(MAX_LAG / 2)), &ExitReason::Terminated);
}

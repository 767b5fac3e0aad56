//! Random lives: whatever happens in whatever order, the promises of the module hold.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Something that may happen to a child, and how much time passes before.
#[derive(Clone, Debug)]
enum Happening {
    Job(u8),
    Connected(bool),
    Message(u8),
    LinkClosed(bool),
    Silent,
    NotAccepted,
    Shutdown,
    Terminate,
    Kill(u8),
    Unowned,
    /// The time goes on until the deadline, if there is one.
    Wait,
    Around(Option<bool>, bool, bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (0u8..9).prop_map(Happening::Job),
        4 => proptest::bool::weighted(0.9).prop_map(Happening::Connected),
        9 => (0u8..5).prop_map(Happening::Message),
        2 => any::<bool>().prop_map(Happening::LinkClosed),
        1 => Just(Happening::Silent),
        1 => Just(Happening::NotAccepted),
        1 => Just(Happening::Shutdown),
        1 => Just(Happening::Terminate),
        2 => (0u8..3).prop_map(Happening::Kill),
        1 => Just(Happening::Unowned),
        4 => Just(Happening::Wait),
        1 => (proptest::option::of(any::<bool>()), any::<bool>(), any::<bool>())
            .prop_map(|(accept, host, waits)| Happening::Around(accept, host, waits)),
    ]
}

fn job(number: u8) -> JobState {
    let ended = |reason| JobState::Ended(exit(reason));
    match number {
        0 => JobState::Starting,
        1 => JobState::Running,
        2 => JobState::AwaitsHost,
        3 => JobState::Waiting(WaitReason::Resources("no room".into())),
        4 => JobState::Waiting(WaitReason::Image("pulling".into())),
        5 => ended(ExitReason::Normal),
        6 => ended(ExitReason::Signal(11)),
        7 => ended(ExitReason::Evicted("node pressure".into())),
        _ => ended(ExitReason::Code(ChildExit::LinkLost.code())),
    }
}

fn message(number: u8) -> MessageKind {
    match number {
        0 => MessageKind::Ready,
        1 => MessageKind::Control,
        2 => MessageKind::Aside,
        3 => MessageKind::Main,
        _ => MessageKind::Failed("no such entry".into()),
    }
}

fn kill_reason(number: u8) -> ExitReason {
    match number {
        0 => ExitReason::Shutdown,
        1 => ExitReason::TaskCancelled,
        _ => ExitReason::TaskTimedOut(START),
    }
}

/// Observations of a life, from outside.
#[derive(Debug, Default)]
struct Notes {
    is_linked: bool,
    has_closed: bool,
    was_ready: bool,
    /// The exit of its job.
    exit: Option<ExitReason>,
    /// Why the child had to end, if not by its own exit: the first cause.
    cause: Option<ExitReason>,
    killed_at: Option<Instant>,
    end: Option<Exit>,
}

/// Lives a life, and checks each effect. Returns how it ended.
fn live(happenings: &[Happening]) -> Notes {
    let mut story = Story::new();
    let mut notes = Notes::default();
    for happening in happenings {
        let event = match happening {
            // A job ends once, and a link closes once: the driver looks at neither again.
            Happening::Job(_) if notes.exit.is_some() => continue,
            Happening::Job(number) => Event::Job(job(*number)),
            Happening::Connected(_) if !story.life.awaits_connection() => continue,
            Happening::Connected(true) => Event::Connected(Ok(())),
            Happening::Connected(false) => Event::Connected(Err("another build".into())),
            Happening::Message(_) | Happening::LinkClosed(_)
                if !notes.is_linked || notes.has_closed =>
            {
                continue;
            }
            Happening::Message(number) => Event::Message(message(*number)),
            Happening::LinkClosed(true) => Event::LinkClosed(LinkEnd::Closed("broken pipe".into())),
            Happening::LinkClosed(false) => {
                Event::LinkClosed(LinkEnd::Unreadable("garbage".into()))
            }
            Happening::Silent if !story.life.must_send() => continue,
            Happening::Silent => Event::Silent,
            Happening::NotAccepted if !story.life.awaits_connection() => continue,
            Happening::NotAccepted => Event::NotAccepted("no descriptors".into()),
            Happening::Shutdown => Event::Command(ProcessCommand::Shutdown),
            Happening::Terminate => Event::Command(ProcessCommand::Terminate),
            Happening::Kill(number) => Event::Command(ProcessCommand::Kill(kill_reason(*number))),
            Happening::Unowned => Event::Unowned,
            Happening::Wait => {
                let Some(deadline) = story.life.deadline() else { continue };
                story.now = story.now.max(deadline);
                Event::Deadline
            }
            Happening::Around(accept, host, waits) => {
                story.around.accept_failure =
                    accept.filter(|fails| *fails).map(|_| "no descriptors".into());
                (story.around.is_host_failing, story.around.may_wait_longer) = (*host, *waits);
                continue;
            }
        };
        tell(&mut story, &mut notes, event);
        if notes.end.is_some() {
            assert_eq!(story.life.deadline(), None);
            assert!(!story.life.must_send() && !story.life.awaits_connection());
        }
    }
    // Left alone, a child that is not at work ends within a few deadlines, unless it waits for a
    // host, or its owner lets it wait.
    for _ in 0..8 {
        let Some(deadline) = story.life.deadline() else { break };
        story.around.may_wait_longer = false;
        story.now = story.now.max(deadline);
        tell(&mut story, &mut notes, Event::Deadline);
    }
    assert_eq!(story.life.deadline(), None, "{:?}", story.life);
    notes
}

fn tell(story: &mut Story, notes: &mut Notes, event: Event) {
    let text = format!("{event:?} in {:?}", story.life);
    let was_ready = notes.was_ready;
    let is_main = matches!(event, Event::Message(MessageKind::Main));
    let is_message = matches!(event, Event::Message(_));
    match &event {
        Event::Job(JobState::Ended(exit)) => notes.exit = Some(exit.reason.clone()),
        Event::Connected(Ok(())) => notes.is_linked = true,
        Event::LinkClosed(_) => notes.has_closed = true,
        _ => {}
    }
    // The first cause, as far as the child had not ended by itself before.
    if was_ready && notes.cause.is_none() && notes.exit.is_none() {
        notes.cause = match &event {
            Event::Command(ProcessCommand::Kill(reason)) => Some(reason.clone()),
            Event::Silent if !story.around.is_host_failing => {
                Some(ExitReason::HeartbeatLost(SILENCE))
            }
            Event::LinkClosed(LinkEnd::Closed(problem) | LinkEnd::Unreadable(problem)) => {
                Some(ExitReason::LinkLost(problem.clone()))
            }
            _ => None,
        };
    }
    let effects = story.tell(event);
    assert!(notes.end.is_none() || effects.is_empty(), "an effect after the end: {text}");
    for (index, effect) in effects.iter().enumerate() {
        match effect {
            Effect::Deliver => {
                assert!(is_message, "there is nothing to deliver: {text}");
                assert!(!is_main || was_ready, "a message before it was ready: {text}");
            }
            Effect::Ready => {
                assert!(!was_ready && notes.is_linked, "{text}");
                notes.was_ready = true;
            }
            Effect::Begin => assert!(!was_ready && notes.is_linked, "{text}"),
            Effect::Shutdown | Effect::Terminate => assert!(notes.was_ready, "{text}"),
            Effect::Kill => {
                notes.killed_at.get_or_insert(story.now);
            }
            Effect::End(exit) => {
                assert_eq!(index + 1, effects.len(), "an effect after the end: {text}");
                notes.end = Some(exit.clone());
            }
            _ => {}
        }
    }
    if let (Some(end), Some(killed)) = (&notes.end, notes.killed_at) {
        // Messages from before the end of a process may come for as long as they like.
        let limit = KILL.max(MAX_LAG);
        assert!(
            notes.exit.is_some() || story.now - killed <= limit,
            "{end:?} {:?} after the kill: {text}",
            story.now - killed
        );
    }
}

/// Returns whether the end is that of the first cause, or of the exit, or the cluster's own.
fn is_explained(notes: &Notes) -> bool {
    let Some(end) = &notes.end else { return true };
    if !notes.was_ready {
        return true;
    }
    let explains =
        |exit: &ExitReason| matches!(exit, ExitReason::Evicted(_) | ExitReason::OutOfMemory);
    let found_it_closed = |exit: &ExitReason| ChildExit::of(exit) == Some(ChildExit::LinkLost);
    match (&notes.cause, &notes.exit) {
        // Its own exit.
        (None, Some(exit)) if found_it_closed(exit) => {
            matches!(end.reason, ExitReason::LinkLost(_))
        }
        (None, Some(exit)) => end.reason == *exit,
        (None, None) => false,
        // The exit explains more than the end of the link, if it comes in time.
        (Some(cause @ ExitReason::LinkLost(_)), exit) => {
            end.reason == *cause
                || exit.as_ref().is_some_and(|exit| {
                    end.reason == *exit && (explains(exit) || !found_it_closed(exit))
                })
        }
        (Some(cause @ ExitReason::HeartbeatLost(_)), Some(exit)) if explains(exit) => {
            end.reason == *exit || end.reason == *cause
        }
        (Some(cause), _) => end.reason == *cause,
    }
}

/// How many lives the test lives: `PROPTEST_CASES` sets another number.
fn cases() -> u32 {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    given.unwrap_or(2_000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn random_lives_keep_their_promises(happenings in vec(happening(), 0..30)) {
        let notes = live(&happenings);
        prop_assert!(is_explained(&notes), "{:?}", notes);
    }
}

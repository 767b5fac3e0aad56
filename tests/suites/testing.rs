//! `fiber::test`: probes, paused time, sessions of threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use actix::prelude::*;
use fiber::error::ExitReason;
use fiber::remote::RemoteRecipient;
use fiber::supervisor::Down;
use fiber::test::{Probe, pause_time, session};
use fiber::{AsyncManager, Error, Group, Pool, Process, RemoteAddr};
use fiber_test_support::wait::LONG;

const HOUR: Duration = Duration::from_secs(60 * 60);

#[fiber::message(u64)]
#[derive(Debug, PartialEq)]
struct Note(u64);

/// Returns the text of a panic.
fn panic_of<T>(work: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(work)).err().expect("it panics");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).into())).unwrap()
}

#[test]
fn a_probe_gets_the_messages_of_all_processes_in_their_order_and_answers() {
    let probe = Probe::answering(|note: &Note| 2 * note.0).unwrap();
    let note_all = |to: RemoteRecipient<Note>| -> fiber::Result<u64> {
        (0..50).for_each(|number| to.do_send(Note(number)));
        to.send(Note(50)).wait()
    };
    let process = Process::builder().try_spawn(note_all, probe.remote().unwrap());
    assert_eq!(process.wait().unwrap(), 100);
    for number in 0..=50 {
        assert_eq!(probe.expect(LONG).wait().unwrap(), Note(number));
    }
    probe.expect_none(Duration::ZERO).wait().unwrap();
}

#[test]
fn what_was_sent_before_counts_for_a_probe_that_expects_nothing() {
    let probe = Probe::<Note>::new().unwrap();
    for number in 0..200 {
        let remote = number % 2 == 0;
        match remote {
            true => probe.remote().unwrap().do_send(Note(number)),
            false => probe.recipient().do_send(Note(number)),
        }
        let error = probe.expect_none(Duration::ZERO).wait().unwrap_err().to_string();
        assert!(error.contains("Note` has come, and none was expected"), "{error}");
        assert_eq!(probe.take().wait().unwrap(), [Note(number)]);
    }
    probe.expect_none(Duration::from_millis(5)).wait().unwrap();
}

#[test]
fn a_probe_without_a_message_says_which_it_waited_for() {
    let probe = Probe::<Note>::new().unwrap();
    let error = probe.expect(Duration::from_millis(1)).wait().unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(error.to_string().contains("testing::Note` to a probe"), "{error}");
    // It has taken nothing with it.
    probe.recipient().do_send(Note(1));
    assert_eq!(probe.expect(LONG).wait().unwrap(), Note(1));
}

#[test]
fn a_test_answers_the_calls_of_a_holding_probe() {
    let probe = Probe::<Note>::holding().unwrap();
    let (first, second) = (probe.remote().unwrap(), probe.remote().unwrap());
    let (first, second) = (first.send(Note(1)), second.send(Note(2)));
    let calls: Vec<_> = (0..2).map(|_| probe.expect_call(LONG).wait().unwrap()).collect();
    for call in calls.into_iter().rev() {
        assert!(call.expects_answer());
        let answer = 10 * call.message.0;
        call.answer(answer);
    }
    assert_eq!((first.wait().unwrap(), second.wait().unwrap()), (10, 20));

    let dropped = probe.remote().unwrap().send(Note(3));
    drop(probe.expect_call(LONG).wait().unwrap());
    assert!(matches!(dropped.wait(), Err(Error::ActorStopped { .. })));
    probe.remote().unwrap().do_send(Note(4));
    assert!(!probe.expect_call(LONG).wait().unwrap().expects_answer());
}

#[test]
fn a_dropped_probe_is_gone() {
    let probe = Probe::<Note>::new().unwrap();
    let (here, everywhere) = (probe.recipient(), probe.remote().unwrap());
    everywhere.send(Note(1)).wait().unwrap();
    drop(probe);
    everywhere.send(Note(2)).wait().unwrap_err();
    assert!(!here.connected());
}

#[test]
fn a_probe_watches_the_ends_of_an_actor() {
    System::new().block_on(async {
        let probe = Probe::<Down>::new().unwrap();
        let idle = AsyncManager::start(Diary::default, ()).await.unwrap();
        idle.watch(probe.recipient()).await.unwrap();
        idle.stop().await.unwrap();
        let down = probe.expect(LONG).await.unwrap();
        assert!(down.reason.is_normal(), "{down:?}");
    });
}

/// Notes the hours, by a timer that starts the next one.
struct Hourly {
    to: Recipient<Note>,
    hours: u64,
}

impl Hourly {
    fn wait(&mut self, context: &mut Context<Self>) {
        context.run_later(HOUR, |hourly, context| {
            hourly.hours += 1;
            hourly.to.do_send(Note(hourly.hours));
            hourly.wait(context);
        });
    }
}

impl Actor for Hourly {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        self.wait(context);
    }
}

#[test]
fn timers_fire_one_after_the_other_while_paused_time_advances_and_only_then() {
    let start = Instant::now();
    System::new().block_on(async {
        let mut time = pause_time();
        let probe = Probe::<Note>::new().unwrap();
        let _hourly = Hourly { to: probe.recipient(), hours: 0 }.start();
        // The answer of another process takes real time, and no other.
        let child = Process::spawn(|| std::thread::sleep(Duration::from_millis(5)), ());
        child.await.unwrap();
        assert_eq!(time.elapsed(), Duration::ZERO);
        time.advance(HOUR - Duration::from_millis(1)).await;
        probe.expect_none(Duration::ZERO).await.unwrap();
        time.advance(Duration::from_millis(1)).await;
        assert_eq!(probe.take().await.unwrap(), [Note(1)]);
        // Each of a thousand timers was started by the one before.
        time.advance(1000 * HOUR).await;
        let notes = probe.take().await.unwrap();
        assert!(notes.iter().map(|note| note.0).eq(2..=1001), "{} notes", notes.len());
        assert_eq!(time.elapsed(), 1001 * HOUR);
        probe.expect_none(Duration::from_millis(2)).await.unwrap();
    });
    assert!(start.elapsed() < LONG);
}

#[test]
fn time_passes_again_when_its_pause_is_dropped() {
    System::new().block_on(async {
        let time = pause_time();
        let sleep = actix::clock::sleep(Duration::from_millis(1));
        drop(time);
        sleep.await;
        drop(pause_time());
    });
}

#[test]
fn time_is_paused_in_an_actix_system_alone() {
    let text = panic_of(pause_time);
    assert!(text.contains("`pause_time` needs an actix system on this thread"), "{text}");
    let threads = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let text = threads.block_on(async { panic_of(pause_time) });
    assert!(text.contains("`pause_time` needs an actix system on this thread"), "{text}");
}

/// Sums what it gets.
#[derive(Default)]
struct Diary(u64);

impl Actor for Diary {
    type Context = Context<Self>;
}

#[fiber::handlers]
impl Diary {
    fn note(&mut self, Note(number): Note) -> u64 {
        self.0 += number;
        self.0
    }
}

#[test]
fn a_session_of_threads_has_pools_actors_names_and_groups() {
    let start = Instant::now();
    for _ in 0..20 {
        session(async || {
            let diary = AsyncManager::builder().registered("diary").start(Diary::default, ());
            let diary = diary.await?;
            let note = |number: u64| -> fiber::Result<u64> {
                fiber::find::<Diary>("diary").wait()?.send(Note(number)).wait()
            };
            Pool::new(3)?.try_map(note, 1..=10).await?;
            assert_eq!(diary.send(Note(0)).await?, 55);
            let diaries = Group::<Note>::named("diaries")?;
            diaries.join(&diary.recipient()).await?;
            assert_eq!(diaries.send(Note(1)).await?, 56);
            // A dead process is replaced, as ever.
            let probe = Probe::<Down>::new()?;
            diary.watch(probe.recipient()).await?;
            diary.kill_process();
            assert_eq!(probe.expect(LONG).await?.reason, ExitReason::Signal(9));
            let again: RemoteAddr<Diary> = fiber::find("diary").await?;
            assert_eq!(again.resend().send(Note(2)).await?, 2);
            fiber::Result::<()>::Ok(())
        })
        .unwrap();
    }
    assert!(start.elapsed() < LONG);
}

#[test]
fn sessions_of_threads_run_beside_each_other_and_know_nothing_of_each_other() {
    let names = || {
        session(async || {
            let diary = AsyncManager::builder().registered("only one");
            let diary = diary.start(Diary::default, ()).await?;
            diary.send(Note(1)).await?;
            Ok::<_, Error>(fiber::names().await?.len())
        })
    };
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(names)).collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap().unwrap(), 1);
    }
}

#[test]
fn paused_time_and_probes_work_in_a_session_of_threads() {
    session(async || {
        let mut time = pause_time();
        let probe = Probe::<Note>::new()?;
        let _hourly = Hourly { to: probe.recipient(), hours: 0 }.start();
        let diary = AsyncManager::start(Diary::default, ()).await?;
        diary.send(Note(1)).await?;
        let tell = |to: RemoteRecipient<Note>| to.send(Note(7)).wait();
        Process::builder().try_spawn(tell, probe.remote()?).await?;
        assert_eq!(probe.take().await?, [Note(7)]);
        time.advance(2 * HOUR).await;
        assert_eq!(probe.take().await?, [Note(1), Note(2)]);
        fiber::Result::<()>::Ok(())
    })
    .unwrap();
}

#[test]
fn a_session_of_threads_ends_with_its_program_also_by_a_panic() {
    let text = panic_of(|| {
        session(async || {
            let _diary = AsyncManager::start(Diary::default, ()).await.unwrap();
            panic!("the program is wrong");
        })
    });
    assert_eq!(text, "the program is wrong");
    let text = panic_of(|| System::new().block_on(async { session(async || ()) }));
    assert!(text.contains("blocks its thread"), "{text}");
}

//! Pilots of a batch system that does not answer.

use std::cell::Cell;
use std::future::pending;
use std::time::Duration;

use tokio::task::LocalSet;
use tracing::Level;

use super::*;
use crate::batch::Hints;
use crate::outage::tests::CapturedLog;

/// A batch system that lists its jobs once, when it is asked for the third time.
#[derive(Debug)]
enum Silent {}

static HINTS: Hints = Hints {
    missing: "here",
    silent: "it is down",
    trim: |line| line,
    is_passing: |_| true,
    remedy: |_| None,
};

thread_local! {
    /// How often it was asked for its jobs.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

fn no_answer<T>() -> Result<T, CommandError> {
    Err(CommandError::TimedOut { program: "ask", limit: Duration::from_secs(1), hints: &HINTS })
}

impl PilotSystem for Silent {
    const WORDS: Words =
        Words { backend: "silent", title: "Silent", cluster: "a cluster", show: "show" };
    type Script = String;

    fn settings(&self) -> PilotSettings<'_> {
        match *self {}
    }

    async fn script(&self, _: &PilotRequest<'_>) -> Result<String, BackendError> {
        match *self {}
    }

    async fn submit(_: &String) -> Result<String, CommandError> {
        no_answer()
    }

    async fn jobs() -> Result<Vec<PilotJob>, CommandError> {
        let asked = ASKED.get() + 1;
        ASKED.set(asked);
        match asked {
            3 => Ok(Vec::new()),
            1 | 2 | 4 => no_answer(),
            _ => pending().await,
        }
    }

    async fn terminate(_: &str) -> Result<(), CommandError> {
        no_answer()
    }

    async fn cancel(_: &str, _: Option<&PilotFiles>) -> Result<(), CommandError> {
        no_answer()
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_states_are_warned_of_once_until_the_batch_system_answers() {
    let mut log = CapturedLog::begin();
    let words = "the states of Silent's jobs are not known: `ask` has not answered";
    let asking = async {
        let _answers = Queue::<Silent>::new().subscribe();
        log.levels(words, 3).await
    };
    let levels = LocalSet::new().run_until(asking).await;
    assert_eq!(levels, [Level::WARN, Level::DEBUG, Level::WARN]);
}

#[tokio::test(start_paused = true)]
async fn a_pilot_that_is_not_cancelled_yet_is_warned_of_once() {
    let place = tempfile::tempdir().unwrap();
    let (key, spec) = (place.path().join("pilots/fiber-1.key"), sample_spec());
    let request = PilotRequest { id: "fiber-1", key, spec: &spec };
    let files = PilotFiles::create(&request, Vec::new(), "silent").unwrap();
    let mut log = CapturedLog::begin();
    let (id, tail) = ("7".to_string(), Tail::default());
    let (job, states, commands) = job_handle::new(JobPlace::Job { id: id.clone() }, tail.clone());
    let pilot = Pilot::new(id, Queue::<Silent>::new(), files, tail);
    job.kill();
    let cancelling = async {
        fiber_core::spawn_local(pilot.watch(states, commands));
        log.levels("the pilot 7 is not cancelled yet", 3).await
    };
    let levels = LocalSet::new().run_until(cancelling).await;
    assert_eq!(levels, [Level::WARN, Level::DEBUG, Level::DEBUG]);
}

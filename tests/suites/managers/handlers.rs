//! Handlers that are `async fn`s.

use std::time::Duration;

use fiber::prelude::*;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Lets calls pass when it is opened.
#[derive(Default)]
struct Gate {
    waiting: Option<oneshot::Receiver<()>>,
    log: Vec<String>,
}

impl Actor for Gate {
    type Context = Context<Self>;
}

#[fiber::message(Vec<String>)]
struct Pass;

#[fiber::message]
struct Note(String);

/// Asks whether calls of the handler have a deadline, at its beginning and after a look at the actor.
#[fiber::message([bool; 2])]
struct HaveDeadlines;

/// Uses the actor in a task beside the handler, which waits for it.
#[fiber::message(usize)]
struct NoteInTask(String);

/// The same, but the handler does not wait.
#[fiber::message(JoinHandle<()>)]
struct Leave;

#[fiber::handlers]
impl Gate {
    async fn pass(this: Access<Self>, _: Pass) -> Vec<String> {
        let opened = this.with(|gate| {
            gate.note(Note("waits".into()));
            gate.waiting.take()
        });
        opened.await.expect("one call passes").await.expect("the test opens it");
        this.with(|gate| {
            gate.note(Note("passes".into()));
            std::mem::take(&mut gate.log)
        })
        .await
    }

    fn note(&mut self, Note(line): Note) {
        self.log.push(line);
    }

    async fn have_deadlines(this: Access<Self>, _: HaveDeadlines) -> [bool; 2] {
        let first = fiber::remote::deadline().is_some();
        this.with_context(|_, context| assert!(context.address().connected())).await;
        [first, fiber::remote::deadline().is_some()]
    }

    async fn note_in_task(this: Access<Self>, NoteInTask(line): NoteInTask) -> usize {
        let task = actix::spawn(async move {
            this.with(|gate| gate.note(Note(line))).await;
            this.with(|gate| gate.log.len()).await
        });
        task.await.expect("it does not panic")
    }

    async fn leave(this: Access<Self>, _: Leave) -> JoinHandle<()> {
        actix::spawn(async move { this.with(|gate| gate.log.clear()).await })
    }
}

#[test]
fn an_async_handler_begins_at_once_and_runs_beside_other_messages() {
    System::new().block_on(async {
        let (open, waiting) = oneshot::channel();
        let gate = Gate { waiting: Some(waiting), ..Gate::default() }.start();
        let pass = gate.send(Pass);
        gate.send(Note("another".into())).await.unwrap();
        open.send(()).unwrap();
        assert_eq!(pass.await.unwrap(), ["waits", "another", "passes"]);
    });
}

#[test]
fn the_first_step_of_an_async_handler_has_the_deadline_of_its_call() {
    let gate = AsyncManager::start(|()| Gate::default(), ()).wait().unwrap();
    let limited = gate.addr().timeout(Duration::from_secs(120));
    assert_eq!(limited.send(HaveDeadlines).wait().unwrap(), [true; 2]);
    assert_eq!(gate.send(HaveDeadlines).wait().unwrap(), [false; 2]);
}

#[test]
fn the_actor_is_reached_from_a_task_while_the_handler_waits_for_it() {
    System::new().block_on(async {
        let gate = Gate::default().start();
        assert_eq!(gate.send(NoteInTask("from a task".into())).await, Ok(1));
        let error = gate.send(Leave).await.unwrap().await.unwrap_err();
        assert!(error.is_panic(), "{error}");
    });
}

//! The actor that drives the state machine of a supervisor.
//!
//! It holds the children's tasks and controls, the callers, and one alarm for the machine's next
//! deadline. Reports of children and the alarm come through its inbox.

mod child;
mod effects;

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, StreamHandler};
use fiber_core::{ExitReason, Result, SortedMap, random_fraction};
use futures_util::stream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::actor_loop::catch_panic;
use super::directory::Directory;
use super::identity::Identity;
use super::machine::{Event, Key, Options, Origin, Request, StopMethod, Supervision, Turn};
use super::spec::ChildSpec;
use super::start::{ChildContext, Control, Within};
use super::tree::EntryId;
use child::HeldChild;

/// A supervisor: an actix actor that starts, watches, restarts and stops its children.
///
/// [`Supervisor::builder`] makes one, and a [`SupervisorRef`](super::SupervisorRef) is its handle.
/// The supervisor works on fiber's own thread, so code of the program never delays a restart.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Supervisor;
/// use fiber::supervisor::ChildSpec;
///
/// let sleep = || std::thread::park();
/// let app = Supervisor::builder("app")
///     .child(ChildSpec::process("one", sleep, ())?)
///     .child(ChildSpec::process("two", sleep, ())?)
///     .start()
///     .wait()?;
/// println!("{}", fiber::tree()); // app (supervisor, one for one), and below it: one, two
/// app.stop().wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct Supervisor {
    identity: Arc<Identity>,
    options: Options,
    supervision: Supervision,
    children: SortedMap<Key, HeldChild>,
    callers: SortedMap<Request, oneshot::Sender<Result<()>>>,
    last_request: u64,
    /// The children, as references find them.
    directory: Arc<Directory>,
    /// The supervisor in the tree.
    entry: EntryId,
    /// Reports that the builder's children have started.
    started: Option<oneshot::Sender<()>>,
    /// The control and the place of the child whose start is being reported.
    arriving: Option<(Box<dyn Control>, Option<String>)>,
    alarm: Option<Alarm>,
    inputs: mpsc::UnboundedSender<Input>,
    inbox: Rc<RefCell<mpsc::UnboundedReceiver<Input>>>,
    exit: ExitCell,
}

/// The reason of the supervisor's exit, once it has ended in order.
pub(super) type ExitCell = Rc<OnceCell<ExitReason>>;

/// A report of one of the supervisor's own tasks.
enum Input {
    Started {
        key: Key,
        incarnation: u64,
        place: Option<String>,
        control: Box<dyn Control>,
    },
    Exited {
        key: Key,
        incarnation: u64,
        reason: ExitReason,
        has_worked: bool,
    },
    /// Something has happened in a child that restarts itself.
    Within {
        key: Key,
        incarnation: u64,
        event: Within,
    },
    Alarm,
}

/// A command of a reference.
pub(super) enum Command {
    /// Adds a child. The answer comes when the child has started, or could not.
    Add(ChildSpec, oneshot::Sender<Result<()>>),
    /// Adds a child whose first start is retried as any other. The answer comes before the start.
    AddInBackground(ChildSpec, oneshot::Sender<Result<()>>),
    /// Stops or kills a child. The answer comes at its end.
    StopChild { name: String, method: StopMethod, answer: oneshot::Sender<Result<()>> },
    /// Stops the children in order, then the supervisor.
    Stop,
    /// Kills the children, then ends the supervisor for this reason.
    Kill(ExitReason),
}

impl Message for Command {
    type Result = ();
}

/// Wakes the supervisor at a deadline, unless it is dropped before.
struct Alarm {
    at: Instant,
    _task: Task,
}

/// A task that is aborted when it is dropped.
struct Task(JoinHandle<()>);

impl Task {
    fn spawn(future: impl Future<Output = ()> + 'static) -> Task {
        Task(fiber_core::spawn_local(future))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Supervisor {
    /// Creates a supervisor with these children, which are pending. `started` reports that all have
    /// started.
    ///
    /// # Errors
    /// [`Error::Invalid`](fiber_core::Error::Invalid) for names.
    pub(super) fn new(
        child: &ChildContext,
        options: Options,
        specs: impl IntoIterator<Item = ChildSpec>,
        directory: Arc<Directory>,
        started: oneshot::Sender<()>,
        exit: ExitCell,
    ) -> Result<Supervisor> {
        let (inputs, inbox) = mpsc::unbounded_channel();
        let mut supervisor = Supervisor {
            identity: child.identity.clone(),
            supervision: Supervision::new(child.path(), options.clone()),
            options,
            children: SortedMap::new(),
            callers: SortedMap::new(),
            last_request: 0,
            directory,
            entry: child.entry,
            started: Some(started),
            arriving: None,
            alarm: None,
            inputs,
            inbox: Rc::new(RefCell::new(inbox)),
            exit,
        };
        for spec in specs {
            supervisor.insert(spec, Origin::Builder)?;
        }
        Ok(supervisor)
    }

    /// Returns a context that receives the supervisor's inputs.
    pub(super) fn context(&self) -> Context<Supervisor> {
        let inbox = self.inbox.clone();
        let mut context = Context::new();
        context.add_stream(stream::poll_fn(move |task| inbox.borrow_mut().poll_recv(task)));
        context
    }

    /// Inserts a child, which is pending.
    fn insert(&mut self, spec: ChildSpec, origin: Origin) -> Result<Key> {
        let key = self.supervision.insert(spec.name(), spec.rules, origin)?;
        let is_of_one = self.options.is_of_one;
        spec.identity.attach((!is_of_one).then(|| self.identity.path()));
        self.directory.insert(&spec);
        let child = HeldChild::new(spec, self.entry);
        if is_of_one {
            self.entry.replace_by(&child.entry);
        }
        self.children.insert(key, child);
        Ok(key)
    }

    fn note_caller(&mut self, answer: oneshot::Sender<Result<()>>) -> Request {
        self.last_request += 1;
        let request = Request(self.last_request);
        self.callers.insert(request, answer);
        request
    }

    /// Feeds an event to the machine, and carries out the effects.
    fn feed(&mut self, event: Event) {
        let mut effects = Vec::new();
        let (now, chance) = (Instant::now(), &mut random_fraction);
        self.supervision.handle(event, &mut Turn { now, chance, effects: &mut effects });
        effects.into_iter().for_each(|effect| self.carry_out(effect));
        self.set_alarm();
    }

    fn set_alarm(&mut self) {
        let deadline = self.supervision.deadline();
        if deadline == self.alarm.as_ref().map(|alarm| alarm.at) {
            return;
        }
        self.alarm = deadline.map(|at| {
            let inputs = self.inputs.clone();
            let _task = Task::spawn(async move {
                tokio::time::sleep_until(at.into()).await;
                let _ = inputs.send(Input::Alarm);
            });
            Alarm { at, _task }
        });
    }

    fn has_ended(&self) -> bool {
        self.exit.get().is_some()
    }

    fn handle_input(&mut self, input: Input) {
        match input {
            Input::Started { key, incarnation, place, control } => {
                self.arriving = Some((control, place));
                self.feed(Event::Started { key, incarnation });
                // If the start comes too late, dropping the control ends the child.
                let late = self.arriving.take();
                if let Err(reason) = catch_panic(|| drop(late)) {
                    tracing::error!("`{}` {reason} at its end", self.path_of(key));
                }
            }
            Input::Exited { key, incarnation, reason, has_worked } => {
                self.feed(Event::Exited { key, incarnation, reason, has_worked });
            }
            Input::Within { key, incarnation, event } => self.note_within(key, incarnation, event),
            Input::Alarm => {
                self.alarm = None;
                self.feed(Event::Deadline);
            }
        }
    }

    /// Handles the inputs that came before a command: without them, a child that has started would
    /// look as if it still starts.
    fn handle_queued_inputs(&mut self) {
        while !self.has_ended() {
            let next = self.inbox.borrow_mut().try_recv();
            let Ok(input) = next else { return };
            self.handle_input(input);
        }
    }

    fn handle_command(&mut self, command: Command) {
        // Callers may have gone meanwhile, so answers may fail.
        match command {
            Command::Add(spec, answer) => {
                let request = self.note_caller(answer);
                match self.insert(spec, Origin::Adding(request)) {
                    Ok(key) => self.feed(Event::Added(key)),
                    Err(error) => self.answer(request, Err(error)),
                }
            }
            Command::AddInBackground(spec, answer) => {
                let inserted = self.insert(spec, Origin::Added);
                let _ = answer.send(inserted.map(|key| self.feed(Event::Added(key))));
            }
            Command::StopChild { name, method, answer } => {
                let request = self.note_caller(answer);
                self.feed(Event::StopChild { name, method, request });
            }
            Command::Stop => self.feed(Event::Stop),
            Command::Kill(reason) => self.feed(Event::Kill(reason)),
        }
    }

    fn answer(&mut self, request: Request, answer: Result<()>) {
        if let Some(caller) = self.callers.remove(&request) {
            // The caller may have gone meanwhile.
            let _ = caller.send(answer);
        }
    }
}

impl Actor for Supervisor {
    type Context = Context<Supervisor>;

    fn started(&mut self, context: &mut Context<Supervisor>) {
        self.feed(Event::Begin);
        end_if_done(self, context);
    }
}

impl StreamHandler<Input> for Supervisor {
    fn handle(&mut self, input: Input, context: &mut Context<Supervisor>) {
        self.handle_input(input);
        end_if_done(self, context);
    }
}

impl Handler<Command> for Supervisor {
    type Result = ();

    fn handle(&mut self, command: Command, context: &mut Context<Supervisor>) {
        self.handle_queued_inputs();
        if !self.has_ended() {
            self.handle_command(command);
        }
        end_if_done(self, context);
    }
}

fn end_if_done(supervisor: &Supervisor, context: &mut Context<Supervisor>) {
    if supervisor.has_ended() {
        context.terminate();
    }
}

impl Drop for Supervisor {
    /// Drops the children that are left, the last one first. After an end in order there are none.
    fn drop(&mut self) {
        let reason = self.exit.get().cloned().unwrap_or(ExitReason::Shutdown);
        for (key, child) in std::mem::take(&mut self.children).into_entries().rev() {
            let spec = child.release();
            if self.supervision.is_added(key) {
                self.directory.remove(spec.name());
                spec.removed(&reason);
            }
        }
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("path", &self.identity.path())
            .field("options", &self.options)
            .field("children", &self.children.len())
            .finish_non_exhaustive()
    }
}

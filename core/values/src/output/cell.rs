//! The places of values.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};

use fiber_core::value_memory::{CountedOutput, Stored};
use fiber_core::{Error, Result};
use parking_lot::Mutex;

use super::memory::{self, MIN_SPILLED};
use super::recipe::Recipe;
use super::{afterwards, travel};
use crate::blob::Blobs;
use crate::codec::EncodedValue;
use crate::spill;
use crate::transfer::KeepAlive;

/// A task that waits for inputs.
pub trait Dependent: Send + Sync {
    /// Notes that one of its inputs is there, or has failed.
    fn input_is_ready(self: Arc<Self>);

    /// Returns the task itself, if it may run where its inputs are made.
    fn as_task(self: Arc<Self>) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}

/// So many may have waited for a value of which one alone is left.
const MOST_WAITED: usize = 8;

/// A hash of a value.
pub type Digest = [u8; 32];

/// The place of one task's value.
pub struct OutputCell {
    state: Mutex<State>,
    /// The link to processes that have the output, or to the one that has the value.
    link: OnceLock<Box<dyn Any + Send + Sync>>,
    maker: OnceLock<Maker>,
}

// A graph has one for each of its tasks.
const _: () = assert!(size_of::<OutputCell>() <= 128);

/// The task that makes a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maker {
    /// Its call.
    pub call: Arc<MakingCall>,
    /// Its index in the call.
    pub index: u64,
}

/// A call whose tasks make values.
#[derive(Debug, PartialEq, Eq)]
pub struct MakingCall {
    /// The number of the call.
    pub number: u64,
    /// The name of its function.
    pub function: &'static str,
    /// The folder of the journal that has its results, for messages.
    pub journal: Option<Arc<str>>,
}

enum State {
    Pending(Pending),
    /// The largest errors take far more bytes than a value.
    Filled(Result<EncodedValue, Box<Error>>, Held),
}

/// Resources that last as long as a value.
#[derive(Default)]
struct Held {
    stored: Stored,
    _counted: CountedOutput,
    /// Properties that few values have.
    more: Option<Box<More>>,
}

#[derive(Default)]
struct More {
    /// Whether it is known to have handles.
    has_handles: bool,
    /// The objects whose handles are in the value.
    _keep_alive: KeepAlive,
    digest: Option<Digest>,
    /// How the value is made again, if it is on another machine that may be lost.
    recipe: Option<Arc<Recipe>>,
    /// The tasks that have waited for the value. Those that wait for others, too, are there.
    dependents: Vec<Weak<dyn Dependent>>,
    /// Askers for bytes on other machines, while these are on their way.
    waiting: Option<Waiting>,
}

impl Held {
    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }
}

/// The tasks and futures that wait for a value.
#[derive(Default)]
struct Waiting {
    /// The owner of a dependent also owns this cell.
    dependents: Vec<Weak<dyn Dependent>>,
    /// Few values of a graph have some.
    wakers: Option<Box<Wakers>>,
}

#[derive(Default)]
struct Wakers(Vec<Waker>);

impl Waiting {
    fn add(&mut self, dependent: &Weak<dyn Dependent>) {
        if self.dependents.is_empty() {
            // Most values have one, and a vector begins with room for four.
            self.dependents.reserve_exact(1);
        }
        self.dependents.push(Weak::clone(dependent));
    }

    fn wait(&mut self, waker: &Waker) {
        let Wakers(wakers) = &mut **self.wakers.get_or_insert_default();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    fn tell_all(self) {
        self.wakers.into_iter().flat_map(|wakers| wakers.0).for_each(Waker::wake);
        for dependent in self.dependents {
            afterwards(move || {
                dependent.upgrade().into_iter().for_each(Dependent::input_is_ready);
            });
        }
    }
}

/// A value that is not there, with all that wait for it.
#[derive(Default)]
struct Pending {
    waiting: Waiting,
    /// The handle of the call that makes the value.
    call: Option<Arc<dyn Any + Send + Sync>>,
    /// How a value that comes on another machine is made again.
    recipe: Option<Arc<Recipe>>,
}

impl OutputCell {
    /// Returns the cell of a value that a call makes. It keeps the call's handle until then.
    pub fn new(call: Arc<dyn Any + Send + Sync>) -> Arc<OutputCell> {
        let pending = Pending { call: Some(call), ..Pending::default() };
        Arc::new(OutputCell::from(State::Pending(pending)))
    }

    /// Returns the cell of a value that is being made, without the handle of a call.
    pub fn pending() -> Arc<OutputCell> {
        Arc::new(OutputCell::from(State::Pending(Pending::default())))
    }

    /// Returns the cell of a value that another process has. It is asked for with the first use.
    pub fn elsewhere(link: Box<dyn Any + Send + Sync>) -> Arc<OutputCell> {
        let state = Mutex::new(State::Pending(Pending::default()));
        Arc::new(OutputCell { state, link: OnceLock::from(link), maker: OnceLock::new() })
    }

    /// Returns the value's link to other processes. [`travel`](super::travel) leaves its type open.
    pub fn link(&self) -> &OnceLock<Box<dyn Any + Send + Sync>> {
        &self.link
    }

    /// Notes which task makes the value.
    pub fn set_maker(&self, maker: Maker) {
        let _ = self.maker.set(maker);
    }

    /// Returns the task that makes the value, if it is one of this process.
    pub fn maker(&self) -> Option<&Maker> {
        self.maker.get()
    }

    /// Returns the error of a value that can't be decoded.
    #[cold]
    pub(super) fn unreadable(&self, error: Error) -> Error {
        error.recorded(self.maker().and_then(|maker| maker.call.journal.as_deref()))
    }

    /// Returns the function that makes the value, if the value is not there.
    pub fn missing(&self) -> Option<&'static str> {
        if self.is_filled() {
            return None;
        }
        let elsewhere = || self.link.get().map(|_| "another process");
        self.maker().map(|maker| maker.call.function).or_else(elsewhere)
    }

    /// Asks for a value that another process has.
    pub(super) fn ask(self: &Arc<OutputCell>) {
        if self.link.get().is_some() && !self.is_filled() {
            travel::ask(self);
        }
    }

    /// Returns the cell of a value that is there, or will never be.
    pub fn filled(value: Result<EncodedValue>) -> Arc<OutputCell> {
        OutputCell::with_handles(value, KeepAlive::default(), false)
    }

    /// Returns the cell of a value that is there, which has handles of objects if that is set.
    pub fn with_handles(
        value: Result<EncodedValue>,
        keep_alive: KeepAlive,
        has_handles: bool,
    ) -> Arc<OutputCell> {
        let (value, stored) = match value.map(spill::keep) {
            Ok((value, stored)) => (Ok(value), stored),
            Err(error) => (Err(Box::new(error)), Stored::default()),
        };
        let more = (has_handles || !keep_alive.is_empty())
            .then(|| Box::new(More { has_handles, _keep_alive: keep_alive, ..More::default() }));
        let held = Held { stored, more, ..Held::default() };
        Arc::new(OutputCell::from(State::Filled(value, held)))
    }

    /// Notes how the value is made again that is about to come, if its machine is lost.
    pub fn will_have(self: &Arc<OutputCell>, recipe: Recipe) {
        recipe.is_for(self);
        if let State::Pending(pending) = &mut *self.state.lock() {
            pending.recipe = Some(Arc::new(recipe));
        }
    }

    /// Fills the cell, unless it is.
    pub fn fill(self: &Arc<OutputCell>, value: Result<EncodedValue>) {
        let len = value.as_ref().map_or(0, EncodedValue::private_len);
        let stored = Stored::new(len);
        let size = value.as_ref().ok().filter(|value| !value.blobs.are_here());
        let size_elsewhere = size.map(EncodedValue::size);
        let held = Held { stored, ..Held::default() };
        let mut state = self.state.lock();
        if matches!(*state, State::Filled(..)) {
            return;
        }
        let filled = State::Filled(value.map_err(Box::new), held);
        let before = std::mem::replace(&mut *state, filled);
        let State::Pending(Pending { waiting, call, recipe }) = before else {
            unreachable!("it is not filled")
        };
        // A recipe must not take more memory than its value.
        let recipe_size = recipe.as_ref().map_or(usize::MAX, |recipe| recipe.size());
        let is_wanted = size_elsewhere.is_some_and(|size| size < recipe_size);
        if let State::Filled(_, held) = &mut *state {
            if let (Some(_), Some(recipe)) = (size_elsewhere, recipe) {
                held.more().recipe = Some(recipe);
            }
            if len >= MIN_SPILLED && !waiting.dependents.is_empty() {
                held.more().dependents.clone_from(&waiting.dependents);
            }
        }
        drop(state);
        if is_wanted {
            self.bring();
        }
        waiting.tell_all();
        afterwards(move || drop(call));
        if len >= MIN_SPILLED {
            let cell = Arc::clone(self);
            afterwards(move || memory::note(&cell));
        }
    }

    /// Returns whether tasks have waited for the value, and none of them waits for others.
    pub(super) fn is_needed_now(&self) -> bool {
        let state = self.state.lock();
        let State::Filled(_, Held { more: Some(more), .. }) = &*state else { return false };
        let waits = |dependent: &Weak<dyn Dependent>| dependent.strong_count() > 0;
        !more.dependents.is_empty() && !more.dependents.iter().any(waits)
    }

    /// Writes the value to a file. It stays in memory if that fails.
    pub(super) fn spill(&self) {
        let Some(Ok(value)) = self.value() else { return };
        let Ok(spilled) = spill::spill_value(&value) else { return };
        let before = match &mut *self.state.lock() {
            State::Filled(Ok(value), held) => {
                held.stored = Stored::default();
                Some(std::mem::replace(value, spilled))
            }
            _ => None,
        };
        // Without the lock: it may be large.
        drop(before);
    }

    /// Returns what waits for the value to be made, if it is one dependent alone.
    pub fn only_dependent(&self) -> Option<Arc<dyn Dependent>> {
        let dependents = match &*self.state.lock() {
            State::Pending(Pending { waiting, .. }) if waiting.dependents.len() <= MOST_WAITED => {
                waiting.dependents.clone()
            }
            State::Pending(_) | State::Filled(..) => return None,
        };
        // Without the lock: one of these may be the last owner of its dependent.
        let mut left = dependents.iter().filter_map(Weak::upgrade);
        left.next().filter(|_| left.next().is_none())
    }

    /// Tells the dependent when the cell is filled. Returns false if it is filled already.
    #[must_use]
    pub fn tell(self: &Arc<OutputCell>, dependent: &Weak<dyn Dependent>) -> bool {
        match &mut *self.state.lock() {
            State::Pending(Pending { waiting, .. }) => waiting.add(dependent),
            State::Filled(..) => return false,
        }
        self.ask();
        true
    }

    /// Tells the dependent when the value may be here: it has to look again. Returns false if this
    /// process has the value, or it has failed.
    #[must_use]
    pub fn tell_when_here(self: &Arc<OutputCell>, dependent: &Weak<dyn Dependent>) -> bool {
        self.wait_until_here(|waiting| waiting.add(dependent))
    }

    /// Lets `wait` add what waits, and gets the value to this process. Returns false if it is here.
    fn wait_until_here(self: &Arc<OutputCell>, wait: impl FnOnce(&mut Waiting)) -> bool {
        match &mut *self.state.lock() {
            State::Pending(Pending { waiting, .. }) => wait(waiting),
            State::Filled(Ok(value), held) if !value.blobs.are_here() => {
                let is_coming = held.more().waiting.is_some();
                wait(held.more().waiting.get_or_insert_default());
                if is_coming {
                    return true;
                }
            }
            State::Filled(..) => return false,
        }
        self.ask();
        self.fetch();
        true
    }

    /// Gets a value on other machines to this process.
    fn bring(self: &Arc<OutputCell>) {
        let _ = self.wait_until_here(|_| {});
    }

    /// Asks for the bytes of a value that is there.
    fn fetch(self: &Arc<OutputCell>) {
        let Some(Ok(value)) = self.value() else { return };
        // A cell without handles needs no value.
        let cell = Arc::downgrade(self);
        value.blobs.fetch(move |_| {
            if let Some(cell) = cell.upgrade() {
                cell.fetched();
            }
        });
    }

    /// Goes on when the bytes have come, or can't be had.
    fn fetched(self: &Arc<OutputCell>) {
        let (waiting, recipe) = match &mut *self.state.lock() {
            State::Filled(Ok(value), held) if value.blobs.are_here() => {
                let more = held.more();
                (more.waiting.take(), more.recipe.take())
            }
            _ => (None, None),
        };
        if let Some(waiting) = waiting {
            waiting.tell_all();
        }
        drop(recipe);
        self.make_again_if(|blobs| !blobs.are_here());
    }

    /// Lets the value be made again if it was lost with its machine.
    pub fn make_again_if_lost(self: &Arc<OutputCell>) {
        self.make_again_if(Blobs::are_lost);
    }

    fn make_again_if(self: &Arc<OutputCell>, is_lost: impl FnOnce(&Blobs) -> bool) {
        let mut state = self.state.lock();
        let State::Filled(Ok(value), held) = &mut *state else { return };
        if !is_lost(&value.blobs) {
            return;
        }
        let More { waiting, recipe, .. } = *std::mem::take(&mut held.more).unwrap_or_default();
        let waiting = waiting.unwrap_or_default();
        let pending = State::Pending(Pending { waiting, ..Pending::default() });
        let lost = std::mem::replace(&mut *state, pending);
        drop(state);
        drop(lost);
        match recipe {
            Some(recipe) => {
                let cell = Arc::clone(self);
                afterwards(move || recipe.make(&cell));
            }
            None => self.fill(Err(Error::OutputFailed {
                problem: "the machine that had its value has ended".into(),
            })),
        }
    }

    /// Keeps the handle of the call that makes the value again, until the cell is filled.
    pub fn keep_call(&self, handle: Arc<dyn Any + Send + Sync>) {
        if let State::Pending(Pending { call, .. }) = &mut *self.state.lock() {
            *call = Some(handle);
        }
    }

    /// Returns how the value is made again, if it may be lost.
    pub(crate) fn recipe(&self) -> Option<Arc<Recipe>> {
        match &*self.state.lock() {
            State::Filled(_, held) => held.more.as_ref()?.recipe.clone(),
            State::Pending(_) => None,
        }
    }

    pub(crate) fn is_filled(&self) -> bool {
        matches!(*self.state.lock(), State::Filled(..))
    }

    /// Returns the value or the failure; `None` if it is not there yet.
    pub fn value(&self) -> Option<Result<EncodedValue>> {
        match &*self.state.lock() {
            State::Pending(_) => None,
            State::Filled(Ok(value), _) => Some(Ok(value.clone())),
            State::Filled(Err(error), _) => Some(Err(Error::clone(error))),
        }
    }

    /// Returns whether the value is known to have handles of objects.
    pub fn has_handles(&self) -> bool {
        match &*self.state.lock() {
            State::Filled(_, held) => held.more.as_ref().is_some_and(|more| more.has_handles),
            State::Pending(_) => false,
        }
    }

    /// Returns the digest of the value, which is computed once.
    pub(crate) fn digest(&self, compute: impl FnOnce() -> Digest) -> Digest {
        let known = match &*self.state.lock() {
            State::Filled(_, held) => held.more.as_ref().and_then(|more| more.digest),
            State::Pending(_) => None,
        };
        // Without the lock: a large value takes a while.
        let digest = known.unwrap_or_else(compute);
        if let State::Filled(_, held) = &mut *self.state.lock() {
            held.more().digest = Some(digest);
        }
        digest
    }

    /// Returns the value, once this process has it.
    pub fn poll(self: &Arc<OutputCell>, context: &mut Context<'_>) -> Poll<Result<EncodedValue>> {
        if self.wait_until_here(|waiting| waiting.wait(context.waker())) {
            return Poll::Pending;
        }
        self.value().map_or(Poll::Pending, Poll::Ready)
    }
}

impl From<State> for OutputCell {
    fn from(state: State) -> OutputCell {
        OutputCell { state: Mutex::new(state), link: OnceLock::new(), maker: OnceLock::new() }
    }
}

/// A cell is the same as itself alone.
impl PartialEq for OutputCell {
    fn eq(&self, other: &OutputCell) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for OutputCell {}

impl fmt::Debug for OutputCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutputCell({})", if self.is_filled() { "filled" } else { "pending" })
    }
}

impl Drop for OutputCell {
    fn drop(&mut self) {
        if let State::Pending(Pending { call, .. }) = self.state.get_mut() {
            let call = call.take();
            afterwards(move || drop(call));
        }
    }
}

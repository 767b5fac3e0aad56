//! The writes of a process of entities, and the answers that wait for them.
//!
//! A write has the changes that all entities have made while the thread was busy. Writes end in
//! their order, so an answer waits for the last one that has an event of its entity.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

use actix::{Actor, Context};
use fiber_runtime::mesh::CallFailure;
use fiber_values::codec::EncodedValue;
use tokio::sync::watch;

use super::life::Live;
use super::wire::RecordChange;
use crate::remote::{Encoded, OpenCall};

/// See the module's documentation.
pub(super) struct Writes<A: Actor<Context = Context<A>>> {
    state: RefCell<State<A>>,
    /// The number of the last write that has ended.
    ended: watch::Sender<u64>,
}

struct State<A: Actor<Context = Context<A>>> {
    /// The changes of the next write, and its number.
    changes: Vec<RecordChange>,
    next: u64,
    /// Entities and answers that wait for each write that has not ended. The last write is the next.
    waiting: VecDeque<Waiting<A>>,
}

/// Entities and answers that wait for a write.
struct Waiting<A: Actor<Context = Context<A>>> {
    /// The entities whose events it has.
    lives: Vec<Rc<Live<A>>>,
    answers: Vec<Held<A>>,
}

/// An answer that waits.
pub(super) type Held<A> = (Rc<Live<A>>, OpenCall, Encoded);

impl<A: Actor<Context = Context<A>>> Default for Waiting<A> {
    fn default() -> Waiting<A> {
        Waiting { lives: Vec::new(), answers: Vec::new() }
    }
}

impl<A: Actor<Context = Context<A>>> Default for Writes<A> {
    fn default() -> Writes<A> {
        let waiting = VecDeque::from([Waiting::default()]);
        let state = RefCell::new(State { changes: Vec::new(), next: 1, waiting });
        Writes { state, ended: watch::Sender::new(0) }
    }
}

impl<A: Actor<Context = Context<A>>> Writes<A> {
    /// Adds a change to the next write. Returns whether it is the first.
    pub(super) fn add(&self, change: RecordChange) -> bool {
        let changes = &mut self.state.borrow_mut().changes;
        changes.push(change);
        changes.len() == 1
    }

    /// Adds an event of an entity to the next write. Returns whether it is the first change.
    pub(super) fn add_event(&self, live: &Rc<Live<A>>, number: u64, event: EncodedValue) -> bool {
        let state = &mut *self.state.borrow_mut();
        if live.write.replace(state.next) != state.next {
            let waiting = state.waiting.back_mut().expect("it is that of the next write");
            waiting.lives.push(Rc::clone(live));
        }
        state.changes.push(RecordChange::Event(live.key.to_string(), number, event));
        state.changes.len() == 1
    }

    /// Begins the next write. Returns its number and its changes.
    pub(super) fn begin(&self) -> (u64, Vec<RecordChange>) {
        let state = &mut *self.state.borrow_mut();
        state.next += 1;
        state.waiting.push_back(Waiting::default());
        (state.next - 1, mem::take(&mut state.changes))
    }

    /// Holds an answer until the last write that has an event of its entity has ended. Returns it
    /// if that is so.
    pub(super) fn hold(&self, held: Held<A>) -> Option<Held<A>> {
        let state = &mut *self.state.borrow_mut();
        match held.0.write.get().checked_sub(state.first()) {
            Some(place) => {
                state.waiting[place as usize].answers.push(held);
                None
            }
            None => Some(held),
        }
    }

    /// Sends the answers that wait for a write, which is recorded.
    pub(super) fn ended(&self, number: u64) {
        let recorded: Vec<_> = {
            let state = &mut *self.state.borrow_mut();
            let count = (number + 1).saturating_sub(state.first());
            state.waiting.drain(..count as usize).collect()
        };
        for (live, call, answer) in recorded.into_iter().flat_map(|waiting| waiting.answers) {
            live.answered(call, answer);
        }
        self.note_end(number);
    }

    /// Ends the entities whose events can't be recorded: their state is ahead of their record.
    /// Events of later writes would miss earlier events.
    pub(super) fn failed(&self, number: u64, problem: &CallFailure) {
        let waiting = {
            let state = &mut *self.state.borrow_mut();
            state.changes.clear();
            mem::replace(&mut state.waiting, VecDeque::from([Waiting::default()]))
        };
        for Waiting { lives, answers } in waiting {
            lives.iter().for_each(|live| live.fail());
            for (live, call, _) in answers {
                live.answered(call, Err(problem.clone()));
            }
        }
        self.note_end(number);
    }

    fn note_end(&self, number: u64) {
        self.ended.send_modify(|ended| *ended = number.max(*ended));
    }

    /// Waits until all changes up to now are recorded, or have failed.
    pub(super) async fn settled(&self) {
        let last = {
            let state = self.state.borrow();
            state.next - u64::from(state.changes.is_empty())
        };
        let _ = self.ended.subscribe().wait_for(|ended| *ended >= last).await;
    }
}

impl<A: Actor<Context = Context<A>>> State<A> {
    /// Returns the number of the first write that has not ended.
    fn first(&self) -> u64 {
        self.next + 1 - self.waiting.len() as u64
    }
}

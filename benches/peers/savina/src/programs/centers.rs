//! The programs in which all actors talk to one: chameneos, bounded buffer and philosophers.

use std::collections::VecDeque;

use super::{
    ANSWER, ASK, BUFFER, Behaviour, CHANGE, CONSUMERS, COST, CREATURES, EXIT, Id, MORE, Note, Out,
    PHILOSOPHERS, PRODUCERS, compute, note,
};

/// Lets creatures meet in pairs.
pub(super) struct Mall {
    pub(super) left: u64,
    pub(super) met: u64,
    pub(super) waiting: Option<Id>,
    pub(super) gone: Id,
}

impl Behaviour for Mall {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        match received.kind {
            ASK if self.left == 0 => out.tell(received.from, note(EXIT, 0, 0)),
            ASK => match self.waiting.take() {
                Some(first) => {
                    self.left -= 1;
                    out.tell(first, received);
                }
                None => self.waiting = Some(received.from),
            },
            ANSWER => {
                self.met += received.value;
                self.gone += 1;
                if self.gone == CREATURES {
                    out.end();
                }
            }
            _ => (1..=CREATURES).for_each(|id| out.tell(id, note(MORE, 0, 0))),
        }
    }
}

pub(super) struct Creature {
    pub(super) id: Id,
    pub(super) color: u64,
    pub(super) met: u64,
}

impl Behaviour for Creature {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        match received.kind {
            ASK => {
                if self.color != received.value {
                    self.color = 3 - self.color - received.value;
                }
                self.met += 1;
                out.tell(received.from, note(CHANGE, self.id, self.color));
            }
            CHANGE => {
                self.color = received.value;
                self.met += 1;
            }
            EXIT => return out.tell(0, note(ANSWER, self.id, self.met)),
            _ => {}
        }
        out.tell(0, note(ASK, self.id, self.color));
    }
}

/// The bounded buffer.
#[derive(Default)]
pub(super) struct Manager {
    pub(super) items: VecDeque<u64>,
    pub(super) makers: VecDeque<Id>,
    pub(super) takers: VecDeque<Id>,
    pub(super) gone: Id,
}

impl Behaviour for Manager {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        match received.kind {
            MORE => {
                match self.takers.pop_front() {
                    Some(taker) => out.tell(taker, note(MORE, 0, received.value)),
                    None => self.items.push_back(received.value),
                }
                if self.items.len() >= BUFFER - PRODUCERS as usize {
                    self.makers.push_back(received.from);
                } else {
                    out.tell(received.from, note(ASK, 0, 0));
                }
            }
            ASK => match self.items.pop_front() {
                Some(item) => {
                    out.tell(received.from, note(MORE, 0, item));
                    if let Some(maker) = self.makers.pop_front() {
                        out.tell(maker, note(ASK, 0, 0));
                    }
                }
                None => self.takers.push_back(received.from),
            },
            EXIT => self.gone += 1,
            _ => {
                self.takers.extend(PRODUCERS + 1..=PRODUCERS + CONSUMERS);
                (1..=PRODUCERS).for_each(|id| out.tell(id, note(ASK, 0, 0)));
            }
        }
        if self.gone == PRODUCERS && self.takers.len() == CONSUMERS as usize {
            out.end();
        }
    }
}

pub(super) struct Maker {
    pub(super) id: Id,
    pub(super) left: u64,
}

impl Behaviour for Maker {
    fn receive(&mut self, _: Note, out: &mut dyn Out) {
        if self.left == 0 {
            return out.tell(0, note(EXIT, self.id, 0));
        }
        self.left -= 1;
        compute(COST);
        out.tell(0, note(MORE, self.id, self.left));
    }
}

pub(super) struct Taker {
    pub(super) id: Id,
}

impl Behaviour for Taker {
    fn receive(&mut self, _: Note, out: &mut dyn Out) {
        compute(COST);
        out.tell(0, note(ASK, self.id, 0));
    }
}

/// Has the forks of the philosophers.
#[derive(Default)]
pub(super) struct Arbiter {
    is_used: [bool; PHILOSOPHERS as usize],
    pub(super) gone: Id,
}

impl Behaviour for Arbiter {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        let left = received.from.saturating_sub(1) as usize;
        let right = (left + 1) % PHILOSOPHERS as usize;
        match received.kind {
            ASK if self.is_used[left] || self.is_used[right] => {
                out.tell(received.from, note(CHANGE, 0, 0));
            }
            ASK => {
                (self.is_used[left], self.is_used[right]) = (true, true);
                out.tell(received.from, note(ANSWER, 0, 0));
            }
            MORE => (self.is_used[left], self.is_used[right]) = (false, false),
            EXIT => {
                self.gone += 1;
                if self.gone == PHILOSOPHERS {
                    out.end();
                }
            }
            _ => (1..=PHILOSOPHERS).for_each(|id| out.tell(id, note(MORE, 0, 0))),
        }
    }
}

pub(super) struct Philosopher {
    pub(super) id: Id,
    pub(super) left: u64,
}

impl Behaviour for Philosopher {
    fn receive(&mut self, received: Note, out: &mut dyn Out) {
        if received.kind == ANSWER {
            self.left -= 1;
            out.tell(0, note(MORE, self.id, 0));
            if self.left == 0 {
                return out.tell(0, note(EXIT, self.id, 0));
            }
        }
        // Also when a fork is in use.
        out.tell(0, note(ASK, self.id, 0));
    }
}

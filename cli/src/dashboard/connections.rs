//! The connections to the dashboard: a bounded number of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::oneshot;

/// How many connections are open at most. A browser opens six.
const MOST: usize = 64;

/// The open connections. When there are too many, the oldest that has not shown the token gives way
/// to a new one. Those that have shown it stay.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// In the order in which they were opened.
    open: RefCell<BTreeMap<u64, Open>>,
    /// How many there were, so that no number is given twice.
    entered: Cell<u64>,
}

#[derive(Debug)]
struct Open {
    has_token: bool,
    /// Dropped when the connection has to give way.
    _stays: oneshot::Sender<()>,
}

impl Connections {
    /// Counts a new connection. Returns its place, and what ends when it has to give way; `None` if
    /// there is no room.
    pub(super) fn enter(self: &Rc<Self>) -> Option<(Place, oneshot::Receiver<()>)> {
        let mut open = self.open.borrow_mut();
        if open.len() >= MOST {
            let stranger =
                open.iter().find(|(_, one)| !one.has_token).map(|(number, _)| *number)?;
            open.remove(&stranger);
        }
        let number = self.entered.replace(self.entered.get() + 1);
        let (stays, gives_way) = oneshot::channel();
        open.insert(number, Open { has_token: false, _stays: stays });
        Some((Place { connections: Rc::clone(self), number }, gives_way))
    }
}

/// The place of an open connection, which is free when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    connections: Rc<Connections>,
    number: u64,
}

impl Place {
    /// Lets the connection stay: it has shown the token.
    pub(super) fn keep(&self) {
        if let Some(open) = self.connections.open.borrow_mut().get_mut(&self.number) {
            open.has_token = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stays(gives_way: &mut oneshot::Receiver<()>) -> bool {
        gives_way.try_recv() == Err(oneshot::error::TryRecvError::Empty)
    }

    #[test]
    fn connections_without_the_token_give_way() {
        let connections = Rc::new(Connections::default());
        let mut open: Vec<_> = (0..MOST).filter_map(|_| connections.enter()).collect();
        open[0].0.keep();
        let newer: Vec<_> = (0..3).filter_map(|_| connections.enter()).collect();
        assert_eq!(newer.len(), 3);
        let left: Vec<_> = open.iter_mut().map(|(_, gives_way)| stays(gives_way)).collect();
        assert_eq!(left[..5], [true, false, false, false, true]);
        assert_eq!(connections.open.borrow().len(), MOST);
        // The end of one that gave way frees no second place.
        drop(open.remove(1));
        assert_eq!(connections.open.borrow().len(), MOST);
    }

    #[test]
    fn a_new_connection_has_no_room_if_all_have_the_token() {
        let connections = Rc::new(Connections::default());
        let mut open: Vec<_> = (0..MOST).filter_map(|_| connections.enter()).collect();
        open.iter().for_each(|(place, _)| place.keep());
        assert!(connections.enter().is_none());
        assert!(open.iter_mut().all(|(_, gives_way)| stays(gives_way)));
        open.pop();
        assert!(connections.enter().is_some());
    }
}

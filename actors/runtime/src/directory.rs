//! Names and groups, by which actors of a session find each other, and seats of its processes.
//!
//! - The head decides: its `table` says who has which name, and who is in which group. Entries
//!   leave it with the process that has made them.
//! - An actor's *home*, the process that owns or has exported it, enters it, and has it leave when
//!   the actor ends. Other processes ask the home for both.
//! - A process that asks for a key gets the members, and from then on each change: it answers later
//!   questions itself (`views`).
//! - A process below the head takes a seat for each child (`seats`).
//!
//! All messages go to one port, which each process has: `PortId::DIRECTORY`.

mod head;
mod seats;
mod table;
mod views;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fiber_core::stats::{NameKind, NameStats, Report};
use fiber_core::{FailureKind, ProcessId};
use fiber_values::codec;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::{oneshot, watch};

use self::head::Head;
pub(crate) use self::seats::Seat;
use self::views::Views;
use self::wire::Message;
pub use self::wire::{Decoded, Key, Kind, Member, MemberId, Members, Refusal};
use crate::endpoint::Endpoint;
use crate::mesh::{
    ActorId, Answer, Mesh, Payload, PeerId, Pending, Port, PortId, ProcessRef, Refused, Request,
    Unanswered, Waiter, port_head,
};
use crate::sources::{Source, Sources};

/// The names and groups of a session, for one process of it.
pub struct Directory {
    endpoint: &'static Endpoint,
    mesh: &'static Mesh,
    place: Place,
    entered: Mutex<Entered>,
    /// Counts changes, so that who waits for one looks again.
    changes: watch::Sender<u64>,
}

/// Where this process is.
enum Place {
    Head(Mutex<Head>),
    Below { head: ProcessRef, views: Mutex<Views> },
}

/// The actors of this process that have names or are in groups, and its seats.
#[derive(Default)]
struct Entered {
    members: BTreeMap<(Key, MemberId), Member>,
    /// The keys of each actor for whose end a future waits.
    watched: BTreeMap<ActorId, BTreeSet<Key>>,
}

impl Entered {
    fn remove(&mut self, place: &(Key, MemberId)) {
        let (key, id) = place;
        self.members.remove(place);
        if let Some(keys) = self.watched.get_mut(&id.actor) {
            keys.remove(key);
        }
    }
}

/// Takes the outcome of a request.
type Then<T> = Box<dyn FnOnce(Result<T, Refusal>) + Send>;

impl Directory {
    /// Opens the directory of a process. `head` is there if the process is below the head.
    pub(crate) fn open(
        endpoint: &'static Endpoint,
        mesh: &'static Mesh,
        head: Option<ProcessRef>,
    ) -> &'static Directory {
        let place = match head {
            None => Place::Head(Mutex::new(Head::new(seats::max_seats(&endpoint.config)))),
            Some(head) => Place::Below { head, views: Mutex::default() },
        };
        let (entered, changes) = (Mutex::default(), watch::Sender::default());
        let directory = Directory { endpoint, mesh, place, entered, changes };
        let directory: &'static Directory = Box::leak(Box::new(directory));
        let ports = mesh.registry().ports();
        let port = ports.open_for_good(PortId::DIRECTORY, DirectoryPort(directory));
        endpoint.parts.get::<Sources>().register(&port);
        if let Some(head) = directory.head().map(|head| head.id) {
            mesh.after_loss(move |process| process == head && directory.head_lost());
        }
        directory
    }

    /// Returns the process that decides; `None` if it is this one.
    pub(crate) fn head(&self) -> Option<&ProcessRef> {
        match &self.place {
            Place::Head(_) => None,
            Place::Below { head, .. } => Some(head),
        }
    }

    /// Gives an actor a name, or makes it a member of a group. `home` is its home.
    ///
    /// # Errors
    /// Why it gets none.
    pub async fn enter(
        &'static self,
        home: &ProcessRef,
        key: Key,
        member: Member,
    ) -> Result<(), Refusal> {
        outcome_of(|then: Then<()>| {
            if home.id == self.endpoint.id {
                self.enter_then(key, member, then);
            } else {
                let flat = |outcome: Result<_, _>| then(outcome.flatten());
                self.request(home, &Message::EnterHere(key, member), Box::new(flat));
            }
        })
        .await
    }

    /// Returns the names of an actor whose home is this process. It does not wait.
    pub fn names_of(&self, actor: ActorId) -> Vec<String> {
        let entered = self.entered.lock();
        let keys = entered.watched.get(&actor).into_iter().flatten();
        keys.filter(|key| key.kind == Kind::Name).map(|key| key.name.to_string()).collect()
    }

    /// Takes a name from an actor, or lets it leave a group.
    ///
    /// # Errors
    /// The actor's home, or the head, can't be reached.
    pub async fn leave(
        &'static self,
        home: &ProcessRef,
        key: Key,
        id: MemberId,
    ) -> Result<(), Refusal> {
        outcome_of(|then| {
            if home.id == self.endpoint.id {
                self.leave_then(key, id, then);
            } else {
                self.request(home, &Message::LeaveHere(key, id), then);
            }
        })
        .await
    }

    /// Returns the members of a key, if this process knows them. It does not wait.
    pub fn known(&self, key: &Key) -> Option<Members> {
        match &self.place {
            Place::Head(head) => Some(head.lock().table.members(key)),
            Place::Below { views, .. } => views.lock().members(key),
        }
    }

    /// Asks the head for the members of a key, and knows them from then on.
    ///
    /// # Errors
    /// The head can't be reached.
    pub async fn ask(&'static self, key: &Key) -> Result<Members, Refusal> {
        let Place::Below { head, views } = &self.place else {
            return Ok(self.known(key).unwrap_or_default());
        };
        outcome_of(|then| {
            let asked = key.clone();
            let answered: Then<Members> = Box::new(move |outcome| {
                if let Ok(members) = &outcome {
                    views.lock().answered(&asked, Arc::clone(members));
                    self.changed();
                }
                then(outcome);
            });
            // Messages about keys leave under the lock, so that they arrive in the order of the
            // views.
            let sent = {
                let mut views = views.lock();
                self.forget(head, views.ask(key));
                self.send(head, &Message::Watch(key.clone()), Some(answered))
            };
            if let Err(refused) = sent {
                refused.complete();
            }
        })
        .await
    }

    /// Returns the members of a key once there are some.
    ///
    /// # Errors
    /// The head can't be reached.
    pub async fn when_some(&'static self, key: &Key) -> Result<Members, Refusal> {
        let mut changes = self.changes.subscribe();
        self.hold(key);
        let _held = Held { directory: self, key };
        loop {
            let members = match self.known(key) {
                Some(members) => members,
                None => self.ask(key).await?,
            };
            if !members.is_empty() {
                return Ok(members);
            }
            let _ = changes.changed().await;
        }
    }

    /// Keeps this process informed of a key until [`release`](Directory::release), once it has
    /// [asked](Directory::ask).
    pub fn hold(&'static self, key: &Key) {
        if let Place::Below { views, .. } = &self.place {
            views.lock().hold(key);
        }
    }

    /// Ends what [`hold`](Directory::hold) began.
    pub fn release(&'static self, key: &Key) {
        if let Place::Below { head, views } = &self.place {
            let mut views = views.lock();
            self.forget(head, views.release(key));
        }
    }

    /// Returns the keys of this kind that have members, in the order of their names.
    ///
    /// # Errors
    /// The head can't be reached.
    pub async fn list(&'static self, kind: Kind) -> Result<Vec<(Key, Members)>, Refusal> {
        let head = match &self.place {
            Place::Head(head) => return Ok(head.lock().table.list(kind)),
            Place::Below { head, .. } => head,
        };
        outcome_of(|then| self.request(head, &Message::List(kind), then)).await
    }

    /// Enters an actor of this process, which leaves with its end.
    fn enter_then(&'static self, key: Key, member: Member, then: Then<()>) {
        let id = member.id;
        if !self.mesh.registry().is_there(id.actor) {
            return then(Err(Refusal::Ended));
        }
        let (place, copy) = ((key.clone(), id), member.clone());
        let entered: Then<()> = Box::new(move |outcome| {
            if outcome.is_ok() {
                self.entered(place, copy);
            }
            then(outcome);
        });
        self.ask_to_enter(key, member, entered);
    }

    fn ask_to_enter(&'static self, key: Key, member: Member, then: Then<()>) {
        match &self.place {
            Place::Head(head) => {
                let outcome = head.lock().enter(PeerId::LOCAL, key, member);
                self.changed();
                then(outcome);
            }
            Place::Below { head, .. } => {
                let flat = |outcome: Result<_, _>| then(outcome.flatten());
                self.request(head, &Message::Enter(key, member), Box::new(flat));
            }
        }
    }

    /// Notes a member that the head has entered, so that it leaves with its actor, and is entered
    /// again after the loss of the link to the head.
    fn entered(&'static self, (key, id): (Key, MemberId), member: Member) {
        let mut entered = self.entered.lock();
        let is_new = !entered.watched.contains_key(&id.actor);
        entered.watched.entry(id.actor).or_default().insert(key.clone());
        let known = entered.members.entry((key, id));
        known.and_modify(|known| known.merge(member.clone())).or_insert(member);
        if is_new {
            self.endpoint.spawn(move || async move {
                self.mesh.registry().actor_end(id.actor).await;
                self.ended(id.actor);
            });
        }
    }

    /// Has an actor of this process leave, before or after its end.
    pub fn ended(&'static self, actor: ActorId) {
        let keys = self.entered.lock().watched.remove(&actor).unwrap_or_default();
        let id = MemberId { home: self.endpoint.id, actor };
        keys.into_iter().for_each(|key| self.leave_then(key, id, Box::new(drop)));
    }

    fn leave_then(&'static self, key: Key, id: MemberId, then: Then<()>) {
        self.entered.lock().remove(&(key.clone(), id));
        match &self.place {
            Place::Head(head) => {
                head.lock().leave(key, id);
                self.changed();
                then(Ok(()));
            }
            Place::Below { head, views } => {
                views.lock().left(&key, id);
                self.request(head, &Message::Leave(key, id), then);
            }
        }
    }

    /// Handles the loss of the link to the head: enters all actors and seats of this process again,
    /// because the head has taken the loss for its end. Returns whether there are any.
    fn head_lost(&'static self) -> bool {
        if let Place::Below { views, .. } = &self.place {
            views.lock().lost();
            self.changed();
        }
        let members = self.entered.lock().members.clone();
        let is_any = !members.is_empty();
        for ((key, id), member) in members {
            let place = (key.clone(), id);
            let then: Then<()> = Box::new(move |outcome| {
                let Err(refusal) = outcome else { return };
                // The next loss comes here again.
                if !matches!(refusal, Refusal::Unreachable(_)) {
                    let (key, _) = &place;
                    tracing::warn!("{key} is lost, as was the link to the head: {refusal:?}");
                    self.entered.lock().remove(&place);
                }
            });
            self.ask_to_enter(key, member, then);
        }
        is_any
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Tells the head that a key is watched no more.
    fn forget(&'static self, head: &ProcessRef, key: Option<Key>) {
        if let Some(key) = key {
            let _ = self.send::<()>(head, &Message::Unwatch(key), None);
        }
    }

    fn request<T: DeserializeOwned + 'static>(
        &'static self,
        to: &ProcessRef,
        message: &Message,
        then: Then<T>,
    ) {
        if let Err(refused) = self.send(to, message, Some(then)) {
            refused.complete();
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The request that was not sent. Its caller completes it, without locks.
    fn send<T: DeserializeOwned + 'static>(
        &'static self,
        to: &ProcessRef,
        message: &Message,
        then: Option<Then<T>>,
    ) -> Result<(), Box<Refused>> {
        let mut payload = port_head(PortId::DIRECTORY);
        codec::append(&mut payload, message).expect("names and addresses can be serialized");
        let waiter =
            |then: Then<T>| Waiter::Callback(Box::new(move |answer| then(conclude(answer))));
        let pending = then.map(|then| Pending::new(waiter(then)));
        self.mesh.channel(to).send(Payload::from(payload), pending)
    }
}

/// Where the messages to a process's directory arrive.
struct DirectoryPort(&'static Directory);

impl Source for DirectoryPort {
    /// Reports the names and groups of the session, in the head.
    fn report(&self, _: ProcessId, report: &mut Report) {
        let Place::Head(head) = &self.0.place else { return };
        for (kind, shown) in [(Kind::Name, NameKind::Name), (Kind::Group, NameKind::Group)] {
            let listed = head.lock().table.list(kind);
            report.names.extend(listed.into_iter().map(|(key, members)| {
                let of = members.first().map(|member| member.description()).unwrap_or_default();
                NameStats::new(key.name.to_string(), shown, of, members.len() as u64)
            }));
        }
    }
}

impl Port for DirectoryPort {
    fn receive(&self, request: Request) {
        let directory = self.0;
        let message = match codec::decode(&request.body.bytes) {
            Ok(message) => message,
            Err(error) => return request.requester.fail(FailureKind::Arguments, &error),
        };
        match (message, &directory.place) {
            (Message::EnterHere(key, member), _) => {
                let answer = |outcome| request.requester.answer(&outcome);
                directory.enter_then(key, member, Box::new(answer));
            }
            (Message::LeaveHere(key, id), _) => {
                directory.leave_then(key, id, Box::new(|_| request.requester.answer(&())));
            }
            (message, Place::Head(head)) => {
                head.lock().receive(message, request);
                directory.changed();
            }
            (Message::Entered(key, member), Place::Below { views, .. }) => {
                views.lock().entered(&key, member);
                directory.changed();
            }
            (Message::Left(key, id), Place::Below { views, .. }) => {
                views.lock().left(&key, id);
                directory.changed();
            }
            (message, Place::Below { .. }) => {
                tracing::error!("a message to the head came to another process: {message:?}");
            }
        }
    }

    fn lost(&self, peer: PeerId) {
        if let Place::Head(head) = &self.0.place {
            head.lock().lost(peer);
            self.0.changed();
        }
    }
}

/// Keeps this process informed of a key.
struct Held<'a> {
    directory: &'static Directory,
    key: &'a Key,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.directory.release(self.key);
    }
}

fn conclude<T: DeserializeOwned>(answer: Answer) -> Result<T, Refusal> {
    let unreachable = |problem: String| Refusal::Unreachable(problem);
    match answer {
        Ok(value) => codec::decode(&value).map_err(|error| unreachable(error.to_string())),
        Err(Unanswered::Lost(reason)) => Err(unreachable(reason.to_string())),
        Err(other) => Err(unreachable(format!("{other:?}"))),
    }
}

/// Returns the outcome of a request, which `begin` begins.
async fn outcome_of<T: Send + 'static>(begin: impl FnOnce(Then<T>)) -> Result<T, Refusal> {
    let (done, outcome) = oneshot::channel();
    begin(Box::new(|outcome| drop(done.send(outcome))));
    let ended = |_| Err(Refusal::Unreachable("this process ends".into()));
    outcome.await.unwrap_or_else(ended)
}

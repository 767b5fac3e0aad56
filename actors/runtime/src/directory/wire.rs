//! The messages of processes to each other about names and groups.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use fiber_core::ProcessId;
use fiber_values::entry::EntryRef;
use serde::{Deserialize, Serialize};

use crate::mesh::ActorId;

/// The use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// A name, which one actor has.
    Name,
    /// A group, of which any number of actors are members.
    Group,
    /// All seats: each member is one. Their number is limited.
    Seat,
}

/// A name, or a group by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Its use.
    pub kind: Kind,
    /// The name that the program has chosen.
    pub name: Arc<str>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Name => write!(f, "the name `{}`", self.name),
            Kind::Group => write!(f, "group `{}`", self.name),
            Kind::Seat => f.write_str("a seat of a process"),
        }
    }
}

/// An actor in the session: its home, which owns it or has exported it, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberId {
    /// The process that enters the actor, and whose end is the end of its memberships.
    pub home: ProcessId,
    /// The actor's number at its home.
    pub actor: ActorId,
}

/// An actor that has a name, or is in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Which actor it is.
    pub id: MemberId,
    /// Its address, encoded.
    #[serde(with = "serde_bytes")]
    pub address: Vec<u8>,
    /// Its type, if it can be found by that.
    pub actor_type: Option<Arc<str>>,
    /// The messages for which it can be found, by their types, with the entries of their handlers.
    pub messages: Vec<(Arc<str>, EntryRef)>,
    /// The address as this process uses it.
    #[serde(skip)]
    pub decoded: Decoded,
}

/// The members of a key, in the order in which they entered.
pub type Members = Arc<Vec<Arc<Member>>>;

/// An address as a process uses it, so that it decodes it once. It is no part of the member's
/// identity, and does not travel.
#[derive(Debug, Default)]
pub struct Decoded(OnceLock<Box<dyn Any + Send + Sync>>);

impl Decoded {
    /// Returns what was made of the address, which `make` does the first time.
    ///
    /// # Errors
    /// The errors of `make`.
    ///
    /// # Panics
    /// If something else was made of it.
    pub fn get_or_try_init<T: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        let made = match self.0.get() {
            Some(made) => made,
            None => {
                let made = make()?;
                // Another thread may have been faster.
                self.0.get_or_init(|| Box::new(made))
            }
        };
        Ok(made.downcast_ref().expect("one type is made of addresses"))
    }
}

impl Clone for Decoded {
    fn clone(&self) -> Decoded {
        Decoded::default()
    }
}

impl PartialEq for Decoded {
    fn eq(&self, _: &Decoded) -> bool {
        true
    }
}

impl Eq for Decoded {}

impl Member {
    /// Returns the type of the actor, or of its messages.
    pub fn description(&self) -> String {
        let messages = || self.messages.iter().map(|(message, _)| &**message).collect::<Vec<_>>();
        self.actor_type.as_deref().map_or_else(|| messages().join(", "), str::to_string)
    }

    /// Returns the entry of its handler of a message, by the message's type.
    pub fn handler(&self, message: &str) -> Option<EntryRef> {
        self.messages.iter().find(|(known, _)| **known == *message).map(|(_, entry)| *entry)
    }

    /// Returns whether there is a message for which both can be found.
    pub(super) fn gets_a_message_of(&self, other: &Member) -> bool {
        other.messages.iter().any(|(message, _)| self.handler(message).is_some())
    }

    /// Adds what is new in `other`, which is the same actor.
    pub(super) fn merge(&mut self, other: Member) {
        self.address = other.address;
        self.actor_type = other.actor_type.or(self.actor_type.take());
        for (message, entry) in other.messages {
            if !self.messages.iter().any(|(known, _)| *known == message) {
                self.messages.push((message, entry));
            }
        }
    }
}

/// Why an actor does not get a name, or does not become a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Another actor has the name.
    Taken {
        /// Its type, or the messages for which it can be found.
        holder: String,
        /// The process of the actor, or of its owner.
        process: ProcessId,
    },
    /// The members of the group get messages of this other type.
    OtherMessage(String),
    /// The actor has ended.
    Ended,
    /// All seats are taken, of which there are so many.
    Full(u64),
    /// The process that decides can't be reached, for this reason.
    Unreachable(String),
}

/// A message to the directory of a process. A request has an answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// To the head, of a home: the actor is a member from now on. The answer is `Result<(),
    /// Refusal>`.
    Enter(Key, Member),
    /// To the head, of a home: the actor is no member any more. The answer is `()`.
    Leave(Key, MemberId),
    /// To a home: enter the actor. The answer is that of the head.
    EnterHere(Key, Member),
    /// To a home: have the actor leave. The answer is `()`.
    LeaveHere(Key, MemberId),
    /// To the head: tell the changes of a key from now on. The answer is the members.
    Watch(Key),
    /// To the head: tell the changes of a key no more. It has no answer.
    Unwatch(Key),
    /// To the head: the answer is all keys of this kind with their members.
    List(Kind),
    /// From the head: the member is new, or is known in more ways.
    Entered(Key, Member),
    /// From the head: the member is none any more.
    Left(Key, MemberId),
}

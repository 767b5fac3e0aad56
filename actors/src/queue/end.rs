//! One end of a pipe: a queue that ends when its other end is gone.

use std::panic::Location;
use std::sync::Arc;

use fiber_core::Result;
use fiber_core::transfer::{self, Mode};
use serde::{Deserialize, Serialize};

use super::core::Core;
use super::store::Capacity;
use super::wire::Ask;
pub(crate) use super::wire::Role;
use crate::objects::made_at;

/// Bytes that wait in a pipe before who sends has to wait.
const CAPACITY: usize = 4 << 20;

/// An end that is counted, wherever it is, so that the other end learns when the last one is gone.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) core: Core,
    claim: Arc<Claim>,
}

struct Claim {
    core: Core,
    role: Role,
}

/// As it travels: on its way it counts as being there.
#[derive(Serialize, Deserialize)]
struct Travelling {
    core: Core,
    token: u64,
}

impl End {
    /// The two ends of a new one-way pipe: the writer's and the reader's.
    #[track_caller]
    pub(crate) fn pair() -> Result<(End, End)> {
        let core = Core::new(&made_at("pipe", Location::caller()), Capacity::Bytes(CAPACITY))?;
        Ok((End::claim(&core, Role::Writer, None), End::claim(&core, Role::Reader, None)))
    }

    fn claim(core: &Core, role: Role, token: Option<u64>) -> End {
        match (core.store(), token) {
            (Some(store), token) => store.lock().claim_here(role, token),
            (None, Some(token)) => core.tell(&Ask::Claim { role, token }),
            (None, None) => {}
        }
        End { core: core.clone(), claim: Arc::new(Claim { core: core.clone(), role }) }
    }

    pub(crate) fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let token = u64::from_le_bytes(fiber_core::random());
        let role = self.claim.role;
        match self.core.store() {
            Some(store) => store.lock().travel(role, token),
            None => self.core.tell(&Ask::Travel { role, token }),
        }
        if transfer::mode() == Mode::Repeatable {
            transfer::keep_alive(Arc::new(Sent { core: self.core.clone(), role, token }));
        }
        Travelling { core: self.core.clone(), token }.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
        role: Role,
    ) -> Result<End, D::Error> {
        let Travelling { core, token } = Travelling::deserialize(deserializer)?;
        Ok(End::claim(&core, role, Some(token)))
    }
}

/// An end that was sent away. When this is dropped, it will not arrive any more.
struct Sent {
    core: Core,
    role: Role,
    token: u64,
}

impl Drop for Sent {
    fn drop(&mut self) {
        match self.core.store() {
            Some(store) => store.lock().travel_no_more(self.role, self.token),
            None => self.core.tell(&Ask::TravelNoMore { role: self.role, token: self.token }),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        match self.core.store() {
            Some(store) => store.lock().unclaim_here(self.role),
            None => self.core.tell(&Ask::Unclaim { role: self.role }),
        }
    }
}

//! The numbers that a session draws at random.

use fiber_core::{ProcessId, SessionKey, random};
#[cfg(any(test, feature = "simulation"))]
use parking_lot::Mutex;

/// The source of a session's ids, tokens and key: the system, or in tests a seed.
#[derive(Default)]
pub struct Random {
    #[cfg(any(test, feature = "simulation"))]
    seeded: Mutex<Option<Seeded>>,
}

/// A sequence of numbers that its seed decides.
#[cfg(any(test, feature = "simulation"))]
struct Seeded {
    seed: u64,
    drawn: u64,
}

impl Random {
    /// Draws from a seed from now on.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn seed(&self, seed: u64) {
        *self.seeded.lock() = Some(Seeded { seed, drawn: 0 });
    }

    fn bytes(&self) -> [u8; 32] {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(Seeded { seed, drawn }) = &mut *self.seeded.lock() {
            *drawn += 1;
            let place = [seed.to_le_bytes(), drawn.to_le_bytes()].concat();
            return *blake3::hash(&place).as_bytes();
        }
        random()
    }

    /// Draws a number.
    pub fn number(&self) -> u64 {
        let bytes = self.bytes();
        u64::from_le_bytes(bytes[..8].try_into().expect("there are 32"))
    }

    /// Draws the id of a process.
    pub(crate) fn process_id(&self) -> ProcessId {
        ProcessId(self.number())
    }

    /// Draws the key of a session.
    pub(crate) fn session_key(&self) -> SessionKey {
        SessionKey::from_random(self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_numbers_and_the_system_does_otherwise() {
        let drawn = |seed: Option<u64>| {
            let random = Random::default();
            seed.into_iter().for_each(|seed| random.seed(seed));
            (random.process_id(), random.number(), random.session_key().reveal())
        };
        assert_eq!(drawn(Some(7)), drawn(Some(7)));
        assert_ne!(drawn(Some(7)), drawn(Some(8)));
        assert_ne!(drawn(None), drawn(None));
        assert_ne!(drawn(Some(7)).0.0, drawn(Some(7)).1);
    }
}

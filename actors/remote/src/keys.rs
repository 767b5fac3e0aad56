//! Which actor a key belongs to.

use std::hash::{Hash, Hasher};

/// Returns how much of a key belongs to an actor: it is that of the actor with the largest weight.
///
/// This is rendezvous hashing (D. G. Thaler and C. V. Ravishankar, "Using name-based mappings to
/// increase hit rates", IEEE/ACM Transactions on Networking 6 (1998)): with one actor more, only
/// the keys that move to it change theirs.
pub(crate) fn weight(key: &(impl Hash + ?Sized), actor: u64) -> u64 {
    let mut hasher = StableHasher(blake3::Hasher::new());
    actor.hash(&mut hasher);
    key.hash(&mut hasher);
    hasher.finish()
}

/// A hasher whose values stay the same. Those of the standard library may change with a release.
struct StableHasher(blake3::Hasher);

impl Hasher for StableHasher {
    fn finish(&self) -> u64 {
        u64::from_le_bytes(
            self.0.finalize().as_bytes()[..8].try_into().expect("a hash has 32 bytes"),
        )
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::weight;

    fn actor_of(key: &u32, count: u64) -> u64 {
        (0..count).max_by_key(|actor| weight(key, *actor)).unwrap()
    }

    #[test]
    fn one_actor_more_takes_keys_from_the_others_and_moves_no_other_key() {
        for key in 0..1000 {
            let (before, after) = (actor_of(&key, 7), actor_of(&key, 8));
            assert!(after == before || after == 7);
        }
        let moved = (0..1000).filter(|key| actor_of(key, 8) == 7).count();
        assert!((60..200).contains(&moved), "{moved} of 1000 keys moved, not about 125");
    }
}

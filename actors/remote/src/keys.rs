//! Which actor a key belongs to.

use std::hash::{Hash, Hasher};

/// Returns the hash of a key, the same in all processes. Those of the standard library may change
/// with a release.
pub(crate) fn hash_of(key: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = StableHasher(0);
    key.hash(&mut hasher);
    hasher.finish()
}

/// Returns the weight of an actor for a key with this hash. The actor with the largest weight has
/// the key.
///
/// This is rendezvous hashing (D. G. Thaler and C. V. Ravishankar, "Using name-based mappings to
/// increase hit rates", IEEE/ACM Transactions on Networking 6 (1998)): with one actor more, only
/// the keys that move to it change theirs.
pub(crate) fn weight(hash: u64, actor: u64) -> u64 {
    mix(hash ^ mix(actor.wrapping_add(1)))
}

struct StableHasher(u64);

impl Hasher for StableHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.chunks(8).fold(mix(self.0 ^ bytes.len() as u64), |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(hash ^ u64::from_le_bytes(word))
        });
    }
}

/// Spreads the bits of a number: the last steps of SplitMix64 (G. L. Steele, D. Lea and
/// C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::{hash_of, weight};

    fn actor_of(key: &str, count: u64) -> u64 {
        (0..count).max_by_key(|actor| weight(hash_of(key), *actor)).unwrap()
    }

    #[test]
    fn one_actor_more_takes_its_share_and_moves_no_other_key() {
        let mut counts = [0; 5];
        let mut moved = 0;
        for key in 0..10_000 {
            let key = format!("user {key}");
            let (before, after) = (actor_of(&key, 4), actor_of(&key, 5));
            assert!(after == before || after == 4);
            moved += u32::from(after != before);
            counts[after as usize] += 1;
        }
        assert!((1_800..2_200).contains(&moved), "{moved}");
        assert!(counts.iter().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
    }
}

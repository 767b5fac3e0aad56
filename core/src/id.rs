//! Ids of processes, and the key of a session.

use std::fmt;
use std::str::FromStr;

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

/// The id of a process of a session. A parent gives each child its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId(pub u64);

impl ProcessId {
    /// Returns an id that no other process of any session has.
    pub fn random() -> ProcessId {
        ProcessId(u64::from_le_bytes(random()))
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for ProcessId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<ProcessId, std::num::ParseIntError> {
        u64::from_str_radix(text, 16).map(ProcessId)
    }
}

/// The secret of a session. Only a process that holds it may join the session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// Makes a new key from the system's random numbers.
    pub fn random() -> SessionKey {
        SessionKey(random())
    }

    /// Makes the key of these random bytes.
    pub fn from_random(bytes: [u8; 32]) -> SessionKey {
        SessionKey(bytes)
    }

    /// Returns the proof that a holder of this key sends for `parts` in a `role`.
    ///
    /// It is the BLAKE3 keyed hash of the parts, each preceded by its length.
    pub fn proof(&self, role: &str, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in std::iter::once(&role.as_bytes()).chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// Returns whether `proof` is the proof of this key. Compares in constant time.
    pub fn proves(&self, role: &str, parts: &[&[u8]], proof: &[u8; 32]) -> bool {
        blake3::Hash::from_bytes(self.proof(role, parts)) == blake3::Hash::from_bytes(*proof)
    }

    /// Returns the number of this session. It reveals nothing about the key.
    pub fn session(&self) -> u64 {
        u64::from_le_bytes(
            self.proof("session", &[])[..8].try_into().expect("a proof has 32 bytes"),
        )
    }

    /// Derives a key for one purpose. The result can't be computed without this key, and reveals
    /// nothing about it. The purpose is a constant of the program; `parts` make each use's key
    /// different.
    ///
    /// It is BLAKE3's key derivation from this key and the parts, each preceded by its length.
    /// [Proofs](SessionKey::proof) reveal nothing about derived keys.
    pub fn derive(&self, purpose: &'static str, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        hasher.update(&self.0);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// Returns the secret by which a child joins the session. It reveals nothing about this key.
    pub fn ticket(&self, child: ProcessId) -> SessionKey {
        SessionKey(self.derive("fiber v2: the ticket of a child", &[&child.0.to_le_bytes()]))
    }

    /// Returns the key in hexadecimal, for a child.
    pub fn reveal(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

impl FromStr for SessionKey {
    type Err = blake3::HexError;

    fn from_str(text: &str) -> Result<SessionKey, blake3::HexError> {
        blake3::Hash::from_hex(text).map(|bytes| SessionKey(*bytes.as_bytes()))
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(…)")
    }
}

/// Returns a random number from 0 up to, but not including, 1.
pub fn random_fraction() -> f64 {
    f64::from(u32::from_le_bytes(random())) / 2.0_f64.powi(32)
}

/// Returns at most 256 random bytes from the system, which never returns fewer of so few.
pub fn random<const N: usize>() -> [u8; N] {
    const { assert!(N <= 256) };
    let mut bytes = [0; N];
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        world.fill(&mut bytes);
        return bytes;
    }
    retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))
        .expect("the system has random numbers");
    bytes
}

#[cfg(test)]
mod tests {
    use super::SessionKey;

    #[test]
    fn a_proof_holds_for_its_key_role_and_parts_only() {
        let key = SessionKey::random();
        let proof = key.proof("child", &[b"a", b"bc"]);
        assert!(key.proves("child", &[b"a", b"bc"], &proof));
        assert!(!key.proves("parent", &[b"a", b"bc"], &proof));
        assert!(!key.proves("child", &[b"ab", b"c"], &proof));
        assert!(!SessionKey::random().proves("child", &[b"a", b"bc"], &proof));
    }

    #[test]
    fn a_derived_key_differs_by_key_purpose_and_parts() {
        let key = SessionKey::random();
        let derived = key.derive("one way", &[b"a", b"bc"]);
        assert_eq!(derived, key.derive("one way", &[b"a", b"bc"]));
        assert_ne!(derived, key.derive("the other way", &[b"a", b"bc"]));
        assert_ne!(derived, key.derive("one way", &[b"ab", b"c"]));
        assert_ne!(derived, SessionKey::random().derive("one way", &[b"a", b"bc"]));
        assert_ne!(derived, key.proof("one way", &[b"a", b"bc"]));
    }

    #[test]
    fn a_key_survives_the_environment_and_is_not_printed() {
        let key = SessionKey::random();
        assert_eq!(key.reveal().parse::<SessionKey>().unwrap(), key);
        assert!(!format!("{key:?}").contains(&key.reveal()[..8]));
    }
}

//! Sealed frames: AES-256-GCM, a key for each direction of each connection, and the number of the
//! frame as the nonce. After so many frames as can have 64 GiB, a key is replaced by one that is
//! derived from it.
//!
//! The number is not sent: both ends count. So a frame that was altered, left out, replayed or
//! moved does not open, and neither does any frame after it.

use std::fmt;

use fiber_core::SessionKey;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// The number of bytes that sealing adds to a frame.
pub(crate) const TAG: usize = 16;

/// The number of frames after which a key is replaced. One frame has up to 256 KiB.
const FRAMES_PER_KEY: u64 = (64 << 30) / (256 << 10);

/// The keys of one connection, as one end uses them.
pub struct Keys {
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Connector,
    Acceptor,
}

impl Keys {
    /// Derives the keys of an endpoint. `exchanged` is what both ends know of this connection
    /// alone: what they sent, and the secret on which they agreed.
    pub(crate) fn new(key: &SessionKey, endpoint: Endpoint, exchanged: &[&[u8]; 3]) -> Keys {
        let chain = |purpose| CountedKey::new(key.derive(purpose, exchanged));
        let to_acceptor = chain("fiber transport v2: from connector to acceptor");
        let to_connector = chain("fiber transport v2: from acceptor to connector");
        match endpoint {
            Endpoint::Connector => {
                Keys { sealer: Sealer(to_acceptor), opener: Opener(to_connector) }
            }
            Endpoint::Acceptor => {
                Keys { sealer: Sealer(to_connector), opener: Opener(to_acceptor) }
            }
        }
    }
}

/// Seals the frames of one direction, in the order in which they are sent.
pub(crate) struct Sealer(CountedKey);

/// Opens the frames of one direction, in the same order.
pub(crate) struct Opener(CountedKey);

/// The error of a frame that is not the next one of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealError {
    number: u64,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "frame {} is not the one that the peer sealed: it was altered, left out, replayed or \
             reordered on its way",
            self.number
        )
    }
}

impl std::error::Error for SealError {}

impl Sealer {
    /// Seals a frame in place, and returns the tag that has to follow it.
    pub(crate) fn seal(&mut self, frame: &mut [u8]) -> [u8; TAG] {
        let (_, nonce) =
            self.0.next().expect("a connection ends before it has carried 2^64 frames");
        let tag = self.0.key.seal_in_place_separate_tag(nonce, Aad::empty(), frame);
        let tag = tag.expect("frames are far shorter than what AES-GCM can seal");
        tag.as_ref().try_into().expect("the tag has TAG bytes")
    }
}

impl Opener {
    /// Opens a frame in place. Its last [`TAG`] bytes are the tag.
    pub(crate) fn open(&mut self, frame: &mut [u8]) -> Result<(), SealError> {
        let error = SealError { number: self.0.count };
        let (_, nonce) = self.0.next().ok_or(error)?;
        self.0.key.open_in_place(nonce, Aad::empty(), frame).map(drop).map_err(|_| error)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer({} sealed)", self.0.count)
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener({} opened)", self.0.count)
    }
}

/// A key, and the number of frames that it and those before it have sealed or opened.
struct CountedKey {
    key: LessSafeKey,
    /// The next key is derived from this.
    chain: SessionKey,
    count: u64,
}

impl CountedKey {
    fn new(chain: [u8; 32]) -> CountedKey {
        let chain = SessionKey::from_random(chain);
        CountedKey { key: frame_key(&chain), chain, count: 0 }
    }

    fn next(&mut self) -> Option<(u64, Nonce)> {
        let number = self.count;
        self.count = number.checked_add(1)?;
        if number > 0 && number.is_multiple_of(FRAMES_PER_KEY) {
            self.chain =
                SessionKey::from_random(self.chain.derive("fiber transport v2: the next key", &[]));
            self.key = frame_key(&self.chain);
        }
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
        Some((number, Nonce::assume_unique_for_key(nonce)))
    }
}

fn frame_key(chain: &SessionKey) -> LessSafeKey {
    let key = chain.derive("fiber transport v2: frames", &[]);
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("AES-256 takes 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (Keys, Keys) {
        let key = SessionKey::random();
        let exchanged: &[&[u8]; 3] = &[b"a point", b"another", b"a secret"];
        let end = |endpoint| Keys::new(&key, endpoint, exchanged);
        (end(Endpoint::Connector), end(Endpoint::Acceptor))
    }

    #[test]
    fn keys_are_replaced_at_both_ends_at_once() {
        let (mut near, mut far) = ends();
        let first = near.sealer.0.chain.clone();
        for number in 0..=FRAMES_PER_KEY {
            let mut frame = sealed(&mut near.sealer, b"x");
            assert_eq!(far.opener.open(&mut frame), Ok(()), "frame {number}");
            assert_eq!(near.sealer.0.chain != first, number == FRAMES_PER_KEY, "frame {number}");
        }
    }

    fn sealed(sealer: &mut Sealer, text: &[u8]) -> Vec<u8> {
        let mut frame = text.to_vec();
        let tag = sealer.seal(&mut frame);
        frame.extend(tag);
        frame
    }

    #[test]
    fn frames_open_in_order_and_at_the_other_end_only() {
        let (mut near, mut far) = ends();
        for text in [&b"one"[..], b"", b"one", &[9; 100_000]] {
            let mut frame = sealed(&mut near.sealer, text);
            assert!(text.is_empty() || !frame.starts_with(text));
            assert!(near.opener.open(&mut frame.clone()).is_err());
            near.opener.0.count -= 1;
            far.opener.open(&mut frame).unwrap();
            assert_eq!(&frame[..text.len()], text);
        }
    }

    #[test]
    fn altered_replayed_left_out_and_cut_frames_do_not_open() {
        let (mut near, _) = ends();
        let key = SessionKey::random();
        let exchanged: &[&[u8]; 3] = &[b"1", b"2", b"3"];
        let frames: Vec<_> = {
            near.sealer = Keys::new(&key, Endpoint::Connector, exchanged).sealer;
            (0..3_u8).map(|index| sealed(&mut near.sealer, &[index; 20])).collect()
        };
        let opener = || Keys::new(&key, Endpoint::Acceptor, exchanged).opener;
        for bit in 0..frames[0].len() * 8 {
            let mut frame = frames[0].clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(opener().open(&mut frame), Err(SealError { number: 0 }));
        }
        for length in 0..frames[0].len() {
            assert!(opener().open(&mut frames[0][..length].to_vec()).is_err());
        }
        assert!(opener().open(&mut frames[1].clone()).is_err());
        let mut repeated = opener();
        repeated.open(&mut frames[0].clone()).unwrap();
        assert_eq!(repeated.open(&mut frames[0].clone()), Err(SealError { number: 1 }));
        assert!(
            repeated.open(&mut frames[1].clone()).is_err(),
            "no frame opens after one that did not"
        );
    }

    #[test]
    fn keys_are_not_printed() {
        let (near, _) = ends();
        assert_eq!(format!("{near:?}"), "Keys(…)");
        assert_eq!(format!("{:?}", near.sealer), "Sealer(0 sealed)");
    }
}

//! The key exchange before nng gets a connection: each end proves that it holds the session's key,
//! and both agree on keys that only they know.
//!
//! ```text
//! connector → acceptor   MAGIC, child, point, proof   proof: secret, "connect", the rest
//! acceptor  → connector  point, proof                 proof: secret, "accept", both points
//! connector → acceptor   proof                        proof: secret, "confirm", both points
//! ```
//!
//! The secret is the session's key, and `child` is 0. For a child with a ticket, it is the
//! ticket's, and `child` is its id.
//!
//! The points are X25519 public keys (RFC 7748), made for this connection. Their private keys are
//! gone after the exchange, so a recording stays closed to whoever gets the session's key later.
//! The pattern is that of Noise's `NNpsk0`, with one more message: the third can't be replayed,
//! because the acceptor's point is new.
//!
//! The first message is a proof already, so a peer without the key gets no answer at all. A peer
//! that replays a recorded first message gets only the second message, whose point is new and whose
//! proof is a keyed hash. All lengths are fixed, so messages of an unproven peer allocate no
//! memory.

use std::io;

use fiber_core::{ProcessId, SessionKey};
use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::rand::SystemRandom;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::Pass;
use crate::pass::secret_of;
use crate::seal::{Endpoint, Keys};

/// The first bytes of a connection. They change whenever ends of different versions could
/// misunderstand each other.
const MAGIC: &[u8; 8] = b"fiber\0\0\x02";

/// A public key of X25519.
type Point = [u8; 32];

/// Performs the acceptor's part of the key exchange.
///
/// # Errors
/// Why the peer is not to be trusted.
pub async fn accept_keys(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    key: &SessionKey,
) -> io::Result<Keys> {
    let magic: [u8; 8] = read(stream).await?;
    if magic != *MAGIC {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it does not speak this version of fiber's protocol",
        ));
    }
    let child: [u8; 8] = read(stream).await?;
    let theirs: Point = read(stream).await?;
    let ticket = Some(ProcessId(u64::from_le_bytes(child))).filter(|child| child.0 != 0);
    let key = &secret_of(key, ticket);
    if !key.proves("connect", &[MAGIC, &child, &theirs], &read(stream).await?) {
        return Err(no_proof());
    }
    let (private, ours) = new_pair()?;
    let points: &[&[u8]; 2] = &[&theirs, &ours];
    stream.write_all(&[ours, key.proof("accept", points)].concat()).await?;
    if !key.proves("confirm", points, &read(stream).await?) {
        return Err(no_proof());
    }
    keys(key, Endpoint::Acceptor, points, private, &theirs)
}

/// Performs the connector's part of the key exchange.
///
/// # Errors
/// Why the peer is not to be trusted.
pub async fn connect_keys(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    pass: &Pass,
) -> io::Result<Keys> {
    let key = &pass.secret;
    let child = pass.child.map_or(0, |child| child.0).to_le_bytes();
    let (private, ours) = new_pair()?;
    let proof = key.proof("connect", &[MAGIC, &child, &ours]);
    stream.write_all(&[&MAGIC[..], &child, &ours, &proof].concat()).await?;
    let theirs: Point = read(stream).await?;
    let points: &[&[u8]; 2] = &[&ours, &theirs];
    if !key.proves("accept", points, &read(stream).await?) {
        return Err(no_proof());
    }
    stream.write_all(&key.proof("confirm", points)).await?;
    keys(key, Endpoint::Connector, points, private, &theirs)
}

/// Makes a pair of keys for one connection.
fn new_pair() -> io::Result<(EphemeralPrivateKey, Point)> {
    let made = || {
        let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new())?;
        let public = private.compute_public_key()?;
        Ok((private, public.as_ref().try_into().expect("a point has 32 bytes")))
    };
    made().map_err(|_: ring::error::Unspecified| {
        io::Error::other("the system has no random numbers for a key")
    })
}

/// Derives the keys of an end of the connection. `points` are the connector's and the acceptor's.
fn keys(
    key: &SessionKey,
    endpoint: Endpoint,
    points: &[&[u8]; 2],
    private: EphemeralPrivateKey,
    theirs: &Point,
) -> io::Result<Keys> {
    let theirs = UnparsedPublicKey::new(&X25519, theirs);
    let derive = |secret: &[u8]| Keys::new(key, endpoint, &[points[0], points[1], secret]);
    // Points that would give everybody the same secret are refused.
    agree_ephemeral(private, &theirs, derive).map_err(|_| no_proof())
}

async fn read<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn no_proof() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it does not hold this session's key")
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    async fn exchange(pass: &Pass, key: &SessionKey) -> (io::Result<Keys>, io::Result<Keys>) {
        let (mut near, mut far) = duplex(1024);
        let connected = async {
            let keys = connect_keys(&mut near, pass).await;
            drop(near);
            keys
        };
        let accepted = async {
            let keys = accept_keys(&mut far, key).await;
            drop(far);
            keys
        };
        tokio::join!(connected, accepted)
    }

    async fn ends(key: &SessionKey) -> (Keys, Keys) {
        let (near, far) = exchange(&key.into(), key).await;
        (near.unwrap(), far.unwrap())
    }

    #[tokio::test]
    async fn a_ticket_is_good_for_its_child_and_session() {
        let (key, child) = (SessionKey::random(), ProcessId(7));
        let own = Pass::ticket(child, key.ticket(child));
        let (near, far) = exchange(&own, &key).await;
        assert!(near.is_ok() && far.is_ok());
        let others = [
            Pass::ticket(ProcessId(8), key.ticket(child)),
            Pass::ticket(child, SessionKey::random().ticket(child)),
            Pass::from(&key.ticket(child)),
        ];
        for pass in others {
            let (near, far) = exchange(&pass, &key).await;
            assert!(near.is_err() && far.is_err(), "{pass:?}");
        }
    }

    #[tokio::test]
    async fn a_frame_opens_in_its_connection_alone() {
        let key = SessionKey::random();
        let (mut near, mut far) = ends(&key).await;
        let mut frame = b"an order".to_vec();
        let tag = near.sealer.seal(&mut frame);
        frame.extend(tag);
        // Whoever has the session's key has as much as the ends of another connection.
        let (_, mut other) = ends(&key).await;
        assert!(other.opener.open(&mut frame.clone()).is_err());
        far.opener.open(&mut frame).unwrap();
        assert!(frame.starts_with(b"an order"));
    }

    /// A listener on the wires knows a child's ticket and both points. It lacks the private keys.
    #[tokio::test]
    async fn a_ticket_opens_no_recorded_frame() {
        let (key, child) = (SessionKey::random(), ProcessId(7));
        let ticket = key.ticket(child);
        let pass = Pass::ticket(child, ticket.clone());
        let (mut near, mut near_tap) = duplex(1024);
        let (mut far_tap, mut far) = duplex(1024);
        let recorded = async {
            let hello: [u8; 80] = read(&mut near_tap).await.unwrap();
            far_tap.write_all(&hello).await.unwrap();
            let answer: [u8; 64] = read(&mut far_tap).await.unwrap();
            near_tap.write_all(&answer).await.unwrap();
            let confirmation: [u8; 32] = read(&mut near_tap).await.unwrap();
            far_tap.write_all(&confirmation).await.unwrap();
            (hello, answer)
        };
        let connected = async { connect_keys(&mut near, &pass).await.unwrap() };
        let accepted = async { accept_keys(&mut far, &key).await.unwrap() };
        let (mut near, mut far, (hello, answer)) = tokio::join!(connected, accepted, recorded);
        let mut frame = b"an order".to_vec();
        let tag = near.sealer.seal(&mut frame);
        frame.extend(tag);
        let (connector, acceptor) = (&hello[16..48], &answer[..32]);
        for secret in [&b""[..], &[0; 32], connector, acceptor] {
            let exchanged = [connector, acceptor, secret];
            let mut keys = Keys::new(&ticket, Endpoint::Acceptor, &exchanged);
            assert!(keys.opener.open(&mut frame.clone()).is_err());
        }
        far.opener.open(&mut frame).unwrap();
        assert!(frame.starts_with(b"an order"));
    }

    #[tokio::test]
    async fn a_point_that_makes_the_secret_known_is_refused() {
        let key = SessionKey::random();
        let (mut near, mut far) = duplex(1024);
        let attack = async {
            let ours = [0; 32];
            let proof = key.proof("connect", &[MAGIC, &[0; 8], &ours]);
            let first = [&MAGIC[..], &[0; 8], &ours, &proof].concat();
            near.write_all(&first).await.unwrap();
            let theirs: Point = read(&mut near).await.unwrap();
            let _: [u8; 32] = read(&mut near).await.unwrap();
            near.write_all(&key.proof("confirm", &[&ours, &theirs])).await.unwrap();
        };
        let (_, accepted) = tokio::join!(attack, accept_keys(&mut far, &key));
        assert!(accepted.is_err());
    }
}

//! The key exchange before nng gets a connection: each end proves that it holds the session's key,
//! and both derive the keys of this connection.
//!
//! ```text
//! connector → acceptor   MAGIC, nonce, proof      proof: key, "connect", MAGIC, connector's nonce
//! acceptor  → connector  nonce, proof             proof: key, "accept", connector's nonce, acceptor's nonce
//! connector → acceptor   proof                    proof: key, "confirm", connector's nonce, acceptor's nonce
//! ```
//!
//! The first message is a proof already, so a peer without the key gets no answer at all. A peer
//! that replays a recorded first message gets only the second message, whose nonce is new and whose
//! proof is a keyed hash. The third message can't be replayed, because the acceptor's nonce is new.
//! All lengths are fixed, so messages of an unproven peer allocate no memory.

use std::io;

use fiber_core::{SessionKey, random};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::seal::{Endpoint, Keys};

/// The first bytes of a connection. They change whenever ends of different versions could
/// misunderstand each other.
const MAGIC: &[u8; 8] = b"fiber\0\0\x01";

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
    let theirs: [u8; 32] = read(stream).await?;
    if !key.proves("connect", &[MAGIC, &theirs], &read(stream).await?) {
        return Err(no_proof());
    }
    let ours: [u8; 32] = random();
    let nonces: &[&[u8]; 2] = &[&theirs, &ours];
    stream.write_all(&[ours, key.proof("accept", nonces)].concat()).await?;
    if !key.proves("confirm", nonces, &read(stream).await?) {
        return Err(no_proof());
    }
    Ok(Keys::new(key, Endpoint::Acceptor, nonces))
}

/// Performs the connector's part of the key exchange.
///
/// # Errors
/// Why the peer is not to be trusted.
pub async fn connect_keys(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    key: &SessionKey,
) -> io::Result<Keys> {
    let ours: [u8; 32] = random();
    stream.write_all(&[&MAGIC[..], &ours, &key.proof("connect", &[MAGIC, &ours])].concat()).await?;
    let theirs: [u8; 32] = read(stream).await?;
    let nonces: &[&[u8]; 2] = &[&ours, &theirs];
    if !key.proves("accept", nonces, &read(stream).await?) {
        return Err(no_proof());
    }
    stream.write_all(&key.proof("confirm", nonces)).await?;
    Ok(Keys::new(key, Endpoint::Connector, nonces))
}

async fn read<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn no_proof() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it does not hold this session's key")
}

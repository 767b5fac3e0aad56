//! What two ends say before nng has the connection: each shows that it holds the session's key, and
//! both come to the keys of this connection.
//!
//! ```text
//! connector → acceptor   MAGIC, nonce, proof      proof: key, "connect", MAGIC, connector's nonce
//! acceptor  → connector  nonce, proof             proof: key, "accept", connector's nonce, acceptor's nonce
//! connector → acceptor   proof                    proof: key, "confirm", connector's nonce, acceptor's nonce
//! ```
//!
//! The first message is a proof already, so a peer that does not hold the key gets not a byte in
//! answer, unless it repeats a first message that it has recorded: then it gets the second one,
//! whose nonce is new and whose proof is a keyed hash, and no more. The third message can't be a
//! repeated one, for the acceptor's nonce is new. All lengths are fixed: nothing that a stranger
//! says takes memory.

use std::io;

use fiber_core::{SessionKey, random};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::seal::{End, Keys};

/// What comes first. It changes whenever ends of different versions could misunderstand each other.
const MAGIC: &[u8; 8] = b"fiber\0\0\x01";

/// The acceptor's part.
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
    Ok(Keys::new(key, End::Acceptor, nonces))
}

/// The connector's part.
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
    Ok(Keys::new(key, End::Connector, nonces))
}

async fn read<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn no_proof() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it does not hold this session's key")
}

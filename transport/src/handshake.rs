//! How two nodes come to trust a connection: each shows that it holds the session's key, without
//! sending it.
//!
//! ```text
//! connector → Hello { version, nonce }
//! acceptor  → Challenge { nonce, proof }       proof: key, "acceptor", connector's nonce, acceptor's nonce
//! connector → Claim { info, proof }            proof: key, "connector", acceptor's nonce, connector's nonce, info
//! acceptor  → Verdict
//! ```
//!
//! Nothing that a peer says is acted upon before its claim is proven, and until then its messages
//! are limited to [`UNPROVEN_LIMIT`](crate::UNPROVEN_LIMIT).

use std::io;
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{BuildId, ProcessId, SessionKey, codec, random};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Connection, Message};

/// Changes whenever nodes of different versions could misunderstand each other.
const VERSION: u32 = 1;

/// How long a peer that was refused may take to read why.
const LAST_WORD: Duration = Duration::from_secs(1);

/// What a node that connects says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerInfo {
    /// Its id.
    pub id: ProcessId,
    /// The node that it wants to reach: by now another process may listen at the address.
    pub to: ProcessId,
    /// What it is to the node that it connects to.
    pub role: Role,
    /// The build that it runs.
    pub build: BuildId,
    /// Its process id, where it runs.
    pub pid: u32,
    /// The name of its host.
    pub host: String,
}

/// What a node is to the one that it connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// A process that it started.
    Child,
    /// Another node of the session.
    Peer,
    /// A node of the same ring, which sends over this connection what its function sends.
    Ring,
}

/// A peer that has proven itself.
#[derive(Debug)]
pub struct Peer {
    /// Who it is.
    pub info: PeerInfo,
    /// The connection to it.
    pub connection: Connection,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The connection broke or closed.
    #[error("the connection closed: {0}")]
    Io(#[from] io::Error),
    /// This process does not know its own build.
    #[error(transparent)]
    OwnBuild(#[from] fiber_core::Error),
    /// It speaks something else.
    #[error("it does not speak fiber's protocol: {0}")]
    Nonsense(String),
    /// It speaks another version.
    #[error(
        "it speaks version {0} of fiber's protocol, this process version {VERSION}: build both from one source"
    )]
    Version(u32),
    /// It does not hold the key.
    #[error("it does not hold this session's key")]
    Key,
    /// It wants to reach another node.
    #[error("it looks for node {0}, which is not this one (any more)")]
    Stray(ProcessId),
    /// Its build is another.
    #[error(
        "it runs build {theirs}, this process build {ours}: run the same build everywhere (rebuild the image)"
    )]
    Build {
        /// This process's build.
        ours: BuildId,
        /// The peer's build.
        theirs: BuildId,
    },
    /// The other side refused.
    #[error("the other side refused: {0}")]
    Refused(String),
}

#[derive(Serialize, Deserialize)]
struct Hello {
    fiber: u32,
    nonce: [u8; 32],
}

#[derive(Serialize, Deserialize)]
struct Challenge {
    nonce: [u8; 32],
    proof: [u8; 32],
}

#[derive(Serialize, Deserialize)]
struct Claim {
    info: Vec<u8>,
    proof: [u8; 32],
}

type Verdict = Result<(), String>;

/// The part of `this` node, which was connected to. A peer that runs another build, or looks for
/// another node, is told so, and refused.
///
/// # Errors
/// Why the peer is not to be trusted. The info of a peer that holds the key comes with it.
pub async fn accept_peer(
    mut connection: Connection,
    key: &SessionKey,
    this: ProcessId,
) -> Result<Peer, (HandshakeError, Option<PeerInfo>)> {
    let info = accept_claim(&mut connection, key).await.map_err(|error| (error, None))?;
    match check(&info, this) {
        Ok(()) => {
            send(&connection, &Verdict::Ok(())).map_err(|error| (error, None))?;
            Ok(Peer { info, connection })
        }
        Err(error) => {
            let _ = send(&connection, &Verdict::Err(error.to_string()));
            // Closing drops what is still on its way, so the peer, who has nothing more to say,
            // closes first.
            let _ = tokio::time::timeout(LAST_WORD, connection.next()).await;
            Err((error, Some(info)))
        }
    }
}

fn check(info: &PeerInfo, this: ProcessId) -> Result<(), HandshakeError> {
    let ours = BuildId::current()?;
    if info.build != *ours {
        return Err(HandshakeError::Build { ours: ours.clone(), theirs: info.build.clone() });
    }
    if info.to != this {
        return Err(HandshakeError::Stray(info.to));
    }
    Ok(())
}

async fn accept_claim(
    connection: &mut Connection,
    key: &SessionKey,
) -> Result<PeerInfo, HandshakeError> {
    let hello: Hello = receive(connection).await?;
    if hello.fiber != VERSION {
        return Err(HandshakeError::Version(hello.fiber));
    }
    let nonce = random();
    let proof = key.proof("acceptor", &[&hello.nonce, &nonce]);
    send(connection, &Challenge { nonce, proof })?;
    let claim: Claim = receive(connection).await?;
    if !key.proves("connector", &[&nonce, &hello.nonce, &claim.info], &claim.proof) {
        return Err(HandshakeError::Key);
    }
    decode(&claim.info)
}

/// The part of the node that connected.
///
/// # Errors
/// Why the other side is not to be trusted, or what it refused.
pub async fn join_session(
    connection: &mut Connection,
    key: &SessionKey,
    info: &PeerInfo,
) -> Result<(), HandshakeError> {
    let nonce: [u8; 32] = random();
    send(connection, &Hello { fiber: VERSION, nonce })?;
    let challenge: Challenge = receive(connection).await?;
    if !key.proves("acceptor", &[&nonce, &challenge.nonce], &challenge.proof) {
        return Err(HandshakeError::Key);
    }
    let info = codec::encode(info).map_err(|error| HandshakeError::Nonsense(error.to_string()))?;
    let proof = key.proof("connector", &[&challenge.nonce, &nonce, &info]);
    send(connection, &Claim { info, proof })?;
    receive::<Verdict>(connection).await?.map_err(HandshakeError::Refused)
}

fn send<T: Serialize>(connection: &Connection, value: &T) -> Result<(), HandshakeError> {
    let bytes =
        codec::encode(value).map_err(|error| HandshakeError::Nonsense(error.to_string()))?;
    let sent = connection.link.send(Message::new(bytes));
    sent.map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error).into())
}

async fn receive<T: DeserializeOwned>(connection: &mut Connection) -> Result<T, HandshakeError> {
    let message: Bytes = match connection.next().await {
        Some(Ok(message)) => message,
        Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(HandshakeError::Nonsense(error.to_string()));
        }
        Some(Err(error)) => return Err(error.into()),
        None => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    };
    decode(&message)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, HandshakeError> {
    codec::decode(bytes).map_err(|error| HandshakeError::Nonsense(error.to_string()))
}

//! The handshake of two processes: each proves that it holds a secret, without sending it.
//!
//! ```text
//! connector → Hello { version, child, nonce }
//! acceptor  → Challenge { nonce, proof }   proof: secret, "acceptor", both nonces
//! connector → Response { info, proof }     proof: secret, "connector", both nonces, info
//! acceptor  → Decision                     with the session's key, for a child
//! ```
//!
//! The secret is the session's key, or the ticket of a child, which its parent takes once.
//!
//! The acceptor uses nothing that a peer says before its response is proven. Until then, messages
//! are limited to [`UNPROVEN_LIMIT`](crate::UNPROVEN_LIMIT).

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{BuildId, ProcessId, SessionKey, random};
use fiber_values::codec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::pass::secret_of;
use crate::{Connection, Message, Pass};

/// Changes whenever processes of different versions could misunderstand each other.
const VERSION: u32 = 2;

/// The time limit for a rejected peer to read the reason.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// The connecting process, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerInfo {
    /// Its id.
    pub id: ProcessId,
    /// The process that it wants to reach. Another process may listen at the address by now.
    pub to: ProcessId,
    /// Its relation to the process that it connects to.
    pub role: Role,
    /// Its build.
    pub build: BuildId,
    /// Its process id on its host.
    pub pid: u32,
    /// Its host name.
    pub host: String,
}

/// The relation of a process to the one that it connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Its child.
    Child,
    /// Another process of the session.
    Peer,
    /// Another rank of the same ring: the connection carries what the ring's function sends.
    Ring,
}

/// A peer that has proven that it holds the key.
#[derive(Debug)]
pub struct Peer {
    /// Its description.
    pub info: PeerInfo,
    /// The connection to it.
    pub connection: Connection,
}

/// Why a handshake failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The connection broke or closed.
    Io(io::Error),
    /// This process does not know its own build.
    OwnBuild(fiber_core::Error),
    /// The peer speaks another protocol.
    Malformed(String),
    /// The peer speaks another version.
    Version(u32),
    /// The peer does not hold the key.
    Key,
    /// The ticket was used before, or the parent does not wait for the child any more.
    Ticket,
    /// The peer wants to reach another process.
    WrongProcess(ProcessId),
    /// The peer runs another build.
    Build {
        /// This process's build.
        ours: BuildId,
        /// The peer's build.
        theirs: BuildId,
    },
    /// The peer rejected this process.
    Rejected(String),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Io(error) => write!(f, "the connection closed: {error}"),
            HandshakeError::OwnBuild(error) => write!(f, "{error}"),
            HandshakeError::Malformed(problem) => {
                write!(f, "it does not speak fiber's protocol: {problem}")
            }
            HandshakeError::Version(theirs) => write!(
                f,
                "it speaks version {theirs} of fiber's protocol, this process version {VERSION}: \
                 build both from one source"
            ),
            HandshakeError::Key => f.write_str("it does not hold this session's key"),
            HandshakeError::Ticket => f.write_str(
                "the ticket was used before, or the parent does not wait for this child any more",
            ),
            HandshakeError::WrongProcess(process) => {
                write!(f, "it looks for process {process}, which is not this one (any more)")
            }
            HandshakeError::Build { ours, theirs } => write!(
                f,
                "it runs build {theirs}, this process build {ours}: run the same build everywhere \
                 (rebuild the image)"
            ),
            HandshakeError::Rejected(reason) => write!(f, "the other side refused: {reason}"),
        }
    }
}

impl std::error::Error for HandshakeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            HandshakeError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        HandshakeError::Io(error)
    }
}

impl From<fiber_core::Error> for HandshakeError {
    fn from(error: fiber_core::Error) -> HandshakeError {
        HandshakeError::OwnBuild(error)
    }
}

// As bytes: serde's reader of an array of 32 is 3,000 lines of LLVM IR.
#[derive(Serialize, Deserialize)]
struct Hello {
    fiber: u32,
    /// The child whose ticket the connector has.
    child: Option<ProcessId>,
    #[serde(with = "serde_bytes")]
    nonce: [u8; 32],
}

#[derive(Serialize, Deserialize)]
struct Challenge {
    #[serde(with = "serde_bytes")]
    nonce: [u8; 32],
    #[serde(with = "serde_bytes")]
    proof: [u8; 32],
}

#[derive(Serialize, Deserialize)]
struct Response {
    info: Vec<u8>,
    #[serde(with = "serde_bytes")]
    proof: [u8; 32],
}

#[derive(Serialize, Deserialize)]
enum Decision {
    /// With the session's key, for a child.
    Accepted(Option<String>),
    /// The child's ticket is not taken.
    NoTicket,
    /// The reason.
    Rejected(String),
}

/// Performs the acceptor's part of the handshake for the process `this`. A peer that runs another
/// build, looks for another process, or has a ticket that `take_ticket` refuses, gets the reason
/// and is rejected. `take_ticket` returns `true` once for each child that is expected.
///
/// # Errors
/// Why the peer was rejected, with its description if it holds the key, or the ticket of an expected
/// child.
pub async fn accept_peer(
    mut connection: Connection,
    key: &SessionKey,
    this: ProcessId,
    take_ticket: impl Fn(ProcessId) -> bool,
) -> Result<Peer, (HandshakeError, Option<PeerInfo>)> {
    let (info, child) = verify(&mut connection, key).await.map_err(|error| (error, None))?;
    let is_child = |child: ProcessId| child == info.id && info.role == Role::Child;
    let checked = match child.is_none_or(is_child) {
        true => check(&info, this),
        false => Err(HandshakeError::Ticket),
    };
    // Last, so that only the child that gets the key has used it.
    let checked = checked.and_then(|()| match child.is_none_or(take_ticket) {
        true => Ok(child.map(|_| key.reveal())),
        false => Err(HandshakeError::Ticket),
    });
    match checked {
        Ok(key) => {
            if let Err(error) = send(&connection, &Decision::Accepted(key)) {
                return Err((error, Some(info)));
            }
            Ok(Peer { info, connection })
        }
        Err(error) => {
            let decision = match error {
                HandshakeError::Ticket => Decision::NoTicket,
                _ => Decision::Rejected(error.to_string()),
            };
            let _ = send(&connection, &decision);
            // Closing would drop the message, so the peer closes first.
            let _ = tokio::time::timeout(REJECTION_TIMEOUT, connection.next()).await;
            // It may be anybody who has seen a ticket.
            let info = Some(info).filter(|_| !matches!(error, HandshakeError::Ticket));
            Err((error, info))
        }
    }
}

fn check(info: &PeerInfo, this: ProcessId) -> Result<(), HandshakeError> {
    let ours = BuildId::current()?;
    if info.build != *ours {
        return Err(HandshakeError::Build { ours: ours.clone(), theirs: info.build.clone() });
    }
    if info.to != this {
        return Err(HandshakeError::WrongProcess(info.to));
    }
    Ok(())
}

/// Returns the peer's description, and the child whose ticket it has.
async fn verify(
    connection: &mut Connection,
    key: &SessionKey,
) -> Result<(PeerInfo, Option<ProcessId>), HandshakeError> {
    let hello: Hello = receive(connection).await?;
    if hello.fiber != VERSION {
        return Err(HandshakeError::Version(hello.fiber));
    }
    let key = secret_of(key, hello.child);
    let nonce = random();
    let proof = key.proof("acceptor", &[&hello.nonce, &nonce]);
    send(connection, &Challenge { nonce, proof })?;
    let response: Response = receive(connection).await?;
    if !key.proves("connector", &[&nonce, &hello.nonce, &response.info], &response.proof) {
        return Err(HandshakeError::Key);
    }
    Ok((decode(&response.info)?, hello.child))
}

/// Performs the connector's part of the handshake. Returns the session's key to a child with a
/// ticket.
///
/// # Errors
/// Why the acceptor is not to be trusted, or why it rejected this process.
pub async fn join_session(
    connection: &mut Connection,
    pass: impl Into<Pass>,
    info: &PeerInfo,
) -> Result<Option<SessionKey>, HandshakeError> {
    let Pass { child, secret: key } = pass.into();
    let nonce: [u8; 32] = random();
    send(connection, &Hello { fiber: VERSION, child, nonce })?;
    let challenge: Challenge = receive(connection).await?;
    if !key.proves("acceptor", &[&nonce, &challenge.nonce], &challenge.proof) {
        return Err(HandshakeError::Key);
    }
    let info = codec::encode(info).map_err(|error| HandshakeError::Malformed(error.to_string()))?;
    let proof = key.proof("connector", &[&challenge.nonce, &nonce, &info]);
    send(connection, &Response { info, proof })?;
    let key = match receive(connection).await? {
        Decision::Accepted(key) => key,
        Decision::NoTicket => return Err(HandshakeError::Ticket),
        Decision::Rejected(reason) => return Err(HandshakeError::Rejected(reason)),
    };
    let malformed = |_| HandshakeError::Malformed("it sent no key of a session".into());
    key.map(|key| key.parse().map_err(malformed)).transpose()
}

fn send<T: Serialize>(connection: &Connection, value: &T) -> Result<(), HandshakeError> {
    let bytes =
        codec::encode(value).map_err(|error| HandshakeError::Malformed(error.to_string()))?;
    let sent = connection.link.send(Message::new(bytes));
    sent.map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error).into())
}

async fn receive<T: DeserializeOwned>(connection: &mut Connection) -> Result<T, HandshakeError> {
    let message: Bytes = match connection.next().await {
        Some(Ok(message)) => message.bytes,
        Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(HandshakeError::Malformed(error.to_string()));
        }
        Some(Err(error)) => return Err(error.into()),
        None => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    };
    decode(&message)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, HandshakeError> {
    codec::decode(bytes).map_err(|error| HandshakeError::Malformed(error.to_string()))
}

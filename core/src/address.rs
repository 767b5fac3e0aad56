//! The addresses at which processes listen for each other.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The address at which a process listens. Its text, by [`Display`](fmt::Display) and [`FromStr`],
/// is what travels to other processes.
///
/// # Examples
/// ```
/// use fiber_core::Address;
///
/// let address: Address = "nng:tcp://[fd00::1]:7000".parse()?;
/// assert_eq!(address.far().map(|far| far.host.as_str()), Some("fd00::1"));
/// assert_eq!(address.with_host("head.example").to_string(), "nng:tcp://head.example:7000");
/// # Ok::<(), fiber_core::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An abstract Unix socket of this name: `unix:NAME`.
    Unix(String),
    /// A listener of the same process: `memory:NAME`.
    #[doc(hidden)]
    Memory(String),
    /// nng over TCP: `nng:tcp://HOST:PORT`.
    Nng(HostPort),
    /// A Unix socket for processes with the same reach, nng for all others:
    /// `near:REACH|NAME|nng:tcp://HOST:PORT`.
    NearAndFar {
        /// A text that all processes have in common that reach each other's Unix sockets.
        reach: String,
        /// The name of the Unix socket.
        name: String,
        /// The address over nng.
        far: HostPort,
    },
}

/// A host's name or IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The name or address; an IPv6 address is without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// A text is not the address of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not the address of a fiber process", self.0)
    }
}

impl std::error::Error for AddressError {}

impl Address {
    /// Returns the address over nng, by which processes of other machines connect; `None` if only
    /// those of its own machine do.
    pub fn far(&self) -> Option<&HostPort> {
        match self {
            Address::Unix(_) | Address::Memory(_) => None,
            Address::Nng(far) | Address::NearAndFar { far, .. } => Some(far),
        }
    }

    /// Returns the address with another host, by which some processes reach the same one. A Unix
    /// socket has none, and stays as it is.
    #[must_use]
    pub fn with_host(mut self, name: impl Into<String>) -> Address {
        if let Address::Nng(far) | Address::NearAndFar { far, .. } = &mut self {
            far.host = name.into();
        }
        self
    }
}

impl HostPort {
    /// Makes an address of a host, whose IPv6 address may be in brackets, and a port.
    pub fn new(host: &str, port: u16) -> HostPort {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        HostPort { host: bare.unwrap_or(host).into(), port }
    }

    /// Returns the host's IP address, if the host has no name.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    fn parse(text: &str) -> Option<HostPort> {
        let (host, port) = text.rsplit_once(':')?;
        Some(HostPort::new(host, port.parse().ok()?)).filter(|address| !address.host.is_empty())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(name) => write!(f, "unix:{name}"),
            Address::Memory(name) => write!(f, "memory:{name}"),
            Address::Nng(far) => write!(f, "nng:tcp://{far}"),
            Address::NearAndFar { reach, name, far } => {
                write!(f, "near:{reach}|{name}|nng:tcp://{far}")
            }
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let far = |text: &str| HostPort::parse(text.strip_prefix("nng:tcp://")?);
        let parse = || match text.split_once(':')? {
            ("unix", name) => Some(Address::Unix(name.into())),
            ("memory", name) => Some(Address::Memory(name.into())),
            ("nng", _) => far(text).map(Address::Nng),
            ("near", parts) => {
                let mut parts = parts.splitn(3, '|');
                let (reach, name) = (parts.next()?.into(), parts.next()?.into());
                Some(Address::NearAndFar { reach, name, far: far(parts.next()?)? })
            }
            _ => None,
        };
        parse().ok_or_else(|| AddressError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_parsed_to_the_address_that_wrote_it() {
        for text in [
            "unix:fiber-a,b",
            "memory:1",
            "nng:tcp://10.0.0.7:7000",
            "nng:tcp://[fd00::1]:7000",
            "nng:tcp://head.example:1",
            "near:a-1-2|fiber-a|nng:tcp://[::1]:5",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.far().is_some(), text.contains("nng"));
        }
    }

    #[test]
    fn other_texts_are_refused_by_name() {
        for text in [
            "",
            "pigeon:a",
            "tcp://a:1",
            "nng:tcp://a",
            "nng:tcp://:1",
            "nng:tcp://a:70000",
            "near:a|b",
            "near:a|b|unix:c",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn another_host_keeps_the_rest() {
        let with = |text: &str| text.parse::<Address>().unwrap().with_host("fd00::2").to_string();
        assert_eq!(with("nng:tcp://[fd00::1]:7"), "nng:tcp://[fd00::2]:7");
        assert_eq!(with("near:r|n|nng:tcp://a:7"), "near:r|n|nng:tcp://[fd00::2]:7");
        assert_eq!(with("unix:n"), "unix:n");
    }
}

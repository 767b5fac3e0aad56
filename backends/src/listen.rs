//! The checks of the address at which this process listens for its jobs elsewhere.

use std::net::{IpAddr, UdpSocket};

use fiber_core::{Config, shortage};

use crate::{BackendError, ListenAddress};

/// The processes that connect, as errors name them: `pods`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peers(pub(crate) &'static str);

impl Peers {
    /// Returns the address for peers: `bind`, which must be one of this host, under the configured
    /// name.
    ///
    /// # Errors
    /// The reason why peers can't reach it, with a remedy.
    pub(crate) fn listen(
        self,
        config: &Config,
        bind: IpAddr,
    ) -> Result<ListenAddress, BackendError> {
        let listen = ListenAddress::remote(bind, config.advertised_host.clone());
        self.must_be_named(&listen)?;
        self.must_be_own(bind)?;
        Ok(listen)
    }

    /// Fails for an address that is no target of connections.
    pub(crate) fn must_be_named(self, listen: &ListenAddress) -> Result<(), BackendError> {
        let (Peers(peers), bind) = (self, listen.bind);
        if bind.is_unspecified() && listen.advertised.is_none() {
            return Err(refused!(
                "bind_host is {bind}, which {peers} can't connect to: set `advertised_host` too"
            ));
        }
        Ok(())
    }

    /// Fails for an address that is not this host's.
    pub(crate) fn must_be_own(self, bind: IpAddr) -> Result<(), BackendError> {
        let Peers(peers) = self;
        bound(bind, |problem| {
            format!(
                "{peers} would connect to {bind}, which is no address of this host ({problem}): \
                 correct `bind_host`, and set `advertised_host` to the address by which {peers} \
                 reach it"
            )
        })
    }

    /// Returns the error if no address was found.
    pub(crate) fn no_address(self) -> BackendError {
        let Peers(peers) = self;
        refused!(
            "found no address of this host at which {peers} can reach this process: set \
             `bind_host` (and `advertised_host`, if {peers} connect to another address)"
        )
    }
}

/// Fails with a message for an address that is not this host's. Binding works for its own only.
pub(crate) fn bound(
    bind: IpAddr,
    message: impl FnOnce(String) -> String,
) -> Result<(), BackendError> {
    let socket = UdpSocket::bind((bind, 0));
    socket
        .map(drop)
        .map_err(|error| BackendError::of_system(&error, message(shortage::explain(&error))))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn peers_get_an_address_of_this_host_that_has_a_name() {
        let mut config = Config::default();
        let listen = |config: &Config, bind: [u8; 4]| Peers("pods").listen(config, bind.into());
        assert_eq!(listen(&config, [127, 0, 0, 1]).unwrap().bind, Ipv4Addr::LOCALHOST);
        let problem = listen(&config, [0; 4]).unwrap_err().to_string();
        assert!(problem.contains("pods can't connect") && problem.contains("`advertised_host`"));
        config.advertised_host = Some("head".into());
        assert_eq!(listen(&config, [0; 4]).unwrap().advertised.as_deref(), Some("head"));
        let problem = listen(&config, [192, 0, 2, 7]).unwrap_err().to_string();
        assert!(problem.contains("no address of this host"), "{problem}");
    }
}

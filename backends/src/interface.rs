//! The interface by which machines reach each other, as the option `interface` chooses it.

use std::net::IpAddr;

use fiber_core::Config;
use if_addrs::Interface;

use crate::BackendError;

/// Returns the address at which this process is to listen, if the configuration names one.
///
/// # Errors
/// This machine has no such interface.
pub(crate) fn bind_address(config: &Config) -> Result<Option<IpAddr>, BackendError> {
    match config.bind_host {
        Some(bind) => Ok(Some(bind)),
        None => configured_interface(config),
    }
}

/// Returns the address of this machine's interface that the configuration names, if it names one.
///
/// # Errors
/// This machine has no such interface. The error lists those that it has.
pub fn configured_interface(config: &Config) -> Result<Option<IpAddr>, BackendError> {
    let Some(wanted) = &config.interface else { return Ok(None) };
    let interfaces = if_addrs::get_if_addrs()
        .map_err(|error| format!("the interfaces of this machine can't be listed: {error}"))?;
    find(wanted, &interfaces).map(Some)
}

/// Finds the interface of a name, or with an address in a network.
fn find(wanted: &str, interfaces: &[Interface]) -> Result<IpAddr, BackendError> {
    let network = match wanted.split_once('/') {
        Some(_) => Some(Network::parse(wanted).ok_or_else(|| {
            format!(
                "interface is `{wanted}`, which is no network: write the name of an interface, as \
                 `ib0`, or a network, as `10.1.0.0/16`"
            )
        })?),
        None => None,
    };
    let matches = |interface: &&Interface| match &network {
        Some(network) => network.contains(interface.ip()),
        None => interface.name == wanted,
    };
    let found = interfaces.iter().filter(matches);
    // Addresses of IPv6 may be those of the link alone, which name no interface.
    found.map(Interface::ip).min_by_key(|address| (address.is_ipv6(), *address)).ok_or_else(|| {
        let known: Vec<_> = interfaces
            .iter()
            .map(|interface| format!("`{}` ({})", interface.name, interface.ip()))
            .collect();
        refused!(
            "interface is `{wanted}`, which this machine (`{}`) does not have; it has {}",
            fiber_core::host_name(),
            known.join(", ")
        )
    })
}

/// A network, written as an address and the length of its prefix.
struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Network> {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix): (IpAddr, u32) = (address.parse().ok()?, prefix.parse().ok()?);
        (prefix <= bits(address).1).then_some(Network { address, prefix })
    }

    fn contains(&self, address: IpAddr) -> bool {
        let ((own, length), (other, other_length)) = (bits(self.address), bits(address));
        let differing = (own ^ other).checked_shr(length - self.prefix).unwrap_or(0);
        length == other_length && differing == 0
    }
}

/// Returns an address as a number, and its length in bits.
fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn chosen(interface: &str) -> Result<Option<IpAddr>, BackendError> {
        let mut config = Config::default();
        config.interface = Some(interface.into());
        bind_address(&config)
    }

    #[test]
    fn interfaces_are_found_by_name_and_by_network() {
        let loopback = Ok(Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(chosen("lo"), loopback);
        assert_eq!(chosen("127.0.0.0/8"), loopback);
        assert_eq!(chosen("127.0.0.1/32"), loopback);
        assert_eq!(bind_address(&Config::default()), Ok(None));
    }

    #[test]
    fn an_address_to_listen_at_comes_before_an_interface() {
        let mut config = Config::default();
        config.bind_host = Some([127, 0, 0, 9].into());
        config.interface = Some("lo".into());
        assert_eq!(bind_address(&config), Ok(config.bind_host));
    }

    #[test]
    fn an_interface_that_does_not_exist_is_an_error_that_lists_the_others() {
        for missing in ["ib77", "255.255.255.255/32", "2001:db8::/32"] {
            let problem = chosen(missing).unwrap_err().to_string();
            assert!(problem.contains(missing), "{problem}");
            assert!(problem.contains("`lo` (127.0.0.1)"), "{problem}");
        }
    }

    #[test]
    fn what_is_no_network_is_an_error_that_shows_one() {
        for wrong in ["10.1.0.0/33", "10.1/16", "::1/129", "10.1.0.0/", "/8"] {
            let problem = chosen(wrong).unwrap_err().to_string();
            assert!(problem.contains(wrong) && problem.contains("`10.1.0.0/16`"), "{problem}");
        }
    }

    #[test]
    fn networks_contain_the_addresses_with_their_prefix() {
        let contains = |network: &str, address: &str| {
            Network::parse(network).unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("10.1.0.0/16", "10.1.255.1"));
        assert!(!contains("10.1.0.0/16", "10.2.0.1"));
        assert!(contains("0.0.0.0/0", "10.2.0.1"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(!contains("::/0", "10.2.0.1"));
        assert!(contains("2001:db8::/32", "2001:db8:1::1"));
        assert!(!contains("2001:db8::/32", "2001:db9::1"));
    }
}

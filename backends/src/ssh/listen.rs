//! The address at which this process listens for the hosts on its machines.
//!
//! It is that of the interface on the route to the machines. Where they are on several networks,
//! this process listens at all of its addresses, and each host gets the one on its own route.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use fiber_core::{Address, Config, on_a_thread};
use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::timeout;

use super::machines::SshMachine;
use super::{problem, ssh};
use crate::interface::bind_address;
use crate::listen::Peers;
use crate::route::{UNASSIGNED, local_address_towards};
use crate::{BackendError, ListenAddress, SshSection};

/// The name of the peers in errors.
const MACHINES: Peers = Peers("machines");
/// How many machines are looked up at once.
const AT_ONCE: usize = 16;
/// Time limit for looking up one.
const LOOKUP: Duration = Duration::from_secs(5);

/// The ways between this process and its machines.
#[derive(Debug)]
pub(super) struct Routes {
    pub(super) listen: ListenAddress,
    /// The address of this host as the machines reach it, where that is not the advertised one.
    own: HashMap<String, IpAddr>,
}

impl Routes {
    /// Returns the address of a parent as a machine reaches it, which differs from the advertised
    /// one if this process is the parent and the machine is on another network.
    pub(super) fn address_for(&self, machine: &str, address: Address) -> Address {
        let is_advertised = address.far().map(|far| &far.host) == self.listen.advertised.as_ref();
        match self.own.get(machine) {
            Some(own) if is_advertised => address.with_host(own.to_string()),
            _ => address,
        }
    }
}

/// Finds the routes to the machines.
///
/// # Errors
/// The reason why machines can't reach this process, with a remedy.
pub(super) async fn find(
    config: &Config,
    section: &SshSection,
    machines: &[SshMachine],
) -> Result<Routes, BackendError> {
    let lookups = machines.iter().map(|machine| async move {
        let own = own_address_towards(section.config.as_deref(), &machine.name).await?;
        Ok::<_, BackendError>((machine.name.clone(), own))
    });
    let mut found = HashMap::new();
    let mut lookups = stream::iter(lookups).buffer_unordered(AT_ONCE);
    while let Some(lookup) = lookups.next().await {
        let (name, own) = lookup?;
        // The next best guess for a machine behind another one.
        let own = match own {
            Some(own) => Some(own),
            None => local_address_towards(UNASSIGNED)?,
        };
        found.extend(own.map(|own| (name, own)));
    }
    choose(config, found)
}

fn choose(config: &Config, mut found: HashMap<String, IpAddr>) -> Result<Routes, BackendError> {
    let mut machines_of: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for own in found.values() {
        *machines_of.entry(*own).or_default() += 1;
    }
    let first = machines_of.iter().max_by_key(|(_, machines)| **machines).map(|(own, _)| *own);
    let bind = match (bind_address(config)?, first) {
        (Some(bind), _) => bind,
        (None, Some(only)) if machines_of.len() == 1 => only,
        (None, Some(_)) if machines_of.keys().any(IpAddr::is_ipv6) => Ipv6Addr::UNSPECIFIED.into(),
        (None, Some(_)) => Ipv4Addr::UNSPECIFIED.into(),
        (None, None) => {
            return Err(MACHINES.no_address());
        }
    };
    MACHINES.must_be_own(bind)?;
    let found_name = first.filter(|_| bind.is_unspecified()).map(|first| first.to_string());
    let advertised = config.advertised_host.clone().or(found_name);
    if config.advertised_host.is_some() || advertised.is_none() {
        found.clear();
    }
    let listen = ListenAddress::remote(bind, advertised);
    MACHINES.must_be_named(&listen)?;
    Ok(Routes { listen, own: found })
}

/// Returns this host's address on the route to a machine, if the machine is not behind another one.
///
/// # Errors
/// A shortage, or that there is no `ssh`.
async fn own_address_towards(
    config: Option<&Path>,
    machine: &str,
) -> Result<Option<IpAddr>, BackendError> {
    // ssh's configuration may give the name another host.
    let output =
        ssh(config).args(["-G", "--", machine]).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = match timeout(LOOKUP, output).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(problem::of_command(&error)),
        Err(_) => return Ok(None),
    };
    let settings = String::from_utf8_lossy(&output.stdout);
    let Some(name) = host_name(&settings) else { return Ok(None) };
    let name = name.to_string();
    let lookup = on_a_thread(move || local_address_towards(&name));
    match timeout(LOOKUP, lookup).await {
        Ok(Ok(own)) => own,
        _ => Ok(None),
    }
}

/// Returns the name of a machine in the output of `ssh -G`, if ssh connects to it directly.
fn host_name(settings: &str) -> Option<&str> {
    let setting =
        |name: &str| settings.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let detour = ["proxyjump", "proxycommand"].into_iter().filter_map(setting);
    if detour.into_iter().any(|way| way != "none") {
        return None;
    }
    setting("hostname")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(own: &[(&str, [u8; 4])]) -> HashMap<String, IpAddr> {
        own.iter().map(|(name, own)| (name.to_string(), IpAddr::from(*own))).collect()
    }

    #[test]
    fn machines_of_one_network_get_its_address() {
        let own = [("a", [127, 0, 0, 1]), ("b", [127, 0, 0, 1])];
        let routes = choose(&Config::default(), found(&own)).unwrap();
        assert_eq!(routes.listen.bind, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(routes.listen.advertised, None);
    }

    #[test]
    fn each_machine_gets_the_address_on_its_route() {
        let own = [("a", [10, 1, 0, 1]), ("b", [10, 1, 0, 1]), ("c", [10, 2, 0, 1])];
        let routes = choose(&Config::default(), found(&own)).unwrap();
        assert!(routes.listen.bind.is_unspecified());
        assert_eq!(routes.listen.advertised.as_deref(), Some("10.1.0.1"));
        let of = |machine: &str, address: &str| {
            routes.address_for(machine, address.parse().unwrap()).to_string()
        };
        assert_eq!(of("a", "nng:tcp://10.1.0.1:7000"), "nng:tcp://10.1.0.1:7000");
        assert_eq!(of("c", "nng:tcp://10.1.0.1:7000"), "nng:tcp://10.2.0.1:7000");
        assert_eq!(of("c", "nng:tcp://10.9.0.1:7000"), "nng:tcp://10.9.0.1:7000");
    }

    #[test]
    fn the_configuration_has_the_last_word() {
        let mut config = Config::default();
        config.bind_host = Some([0, 0, 0, 0].into());
        let problem = choose(&config, HashMap::new()).unwrap_err().to_string();
        assert!(problem.contains("`advertised_host`"), "{problem}");
        config.advertised_host = Some("head.example".into());
        let routes = choose(&config, found(&[("a", [10, 1, 0, 1])])).unwrap();
        assert_eq!(routes.listen.advertised.as_deref(), Some("head.example"));
        assert!(routes.own.is_empty());
        config.bind_host = Some([192, 0, 2, 7].into());
        let problem = choose(&config, HashMap::new()).unwrap_err().to_string();
        assert!(problem.contains("no address of this host"), "{problem}");
    }

    #[test]
    fn a_machine_behind_another_one_has_no_route() {
        assert_eq!(host_name("user me\nhostname 10.0.0.7\nport 22\n"), Some("10.0.0.7"));
        assert_eq!(host_name("proxyjump gate\nhostname inner\n"), None);
        assert_eq!(host_name("hostname outer\nproxycommand none\n"), Some("outer"));
    }
}

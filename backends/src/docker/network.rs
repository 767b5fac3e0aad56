//! The network that containers join, and the address where this process listens for them.

use std::net::{IpAddr, Ipv4Addr};

use bollard::models::NetworkInspect;
use fiber_core::{Config, LinkKind};

use super::current_container::CurrentContainer;
use super::engine::{Engine, is_missing};
use crate::listen::{self, Peers};
use crate::{BackendError, DockerSection, ListenAddress, Locality};

const BRIDGE: &str = "bridge";
const HOST: &str = "host";

/// The network of containers, and the address by which they reach this process.
#[derive(Debug)]
pub(super) struct ContainerNetwork {
    pub(super) name: String,
    pub(super) listen: ListenAddress,
}

impl ContainerNetwork {
    /// Chooses the configured network, or else that of this process's own container, or else the
    /// engine's bridge.
    ///
    /// # Errors
    /// The reason why containers can't reach this process, with a remedy.
    pub(super) async fn choose(
        engine: &Engine,
        config: &Config,
        current: Option<&CurrentContainer>,
    ) -> Result<ContainerNetwork, BackendError> {
        let wanted = config.section::<DockerSection>().network;
        let mut network = match current {
            Some(current) => of_container(current, wanted.as_deref())?,
            None => of_host(engine, config, wanted.as_deref()).await?,
        };
        if let Some(bind) = config.bind_host {
            network.listen.bind = bind;
        }
        if let Some(host) = &config.advertised_host {
            network.listen.advertised = Some(host.clone());
        }
        Peers("containers").must_be_named(&network.listen)?;
        Ok(network)
    }
}

/// Chooses among the networks of this process's own container.
fn of_container(
    current: &CurrentContainer,
    wanted: Option<&str>,
) -> Result<ContainerNetwork, BackendError> {
    let mode = current.details.host_config.as_ref().and_then(|host| host.network_mode.as_deref());
    if mode == Some(HOST) {
        return match wanted {
            None | Some(HOST) => Ok(on_host()),
            Some(other) => Err(refused!(
                "`docker.network` is `{other}`, but this process is in a container on the host's \
                 network: leave `docker.network` out, or run the container in `{other}`"
            )),
        };
    }
    let networks =
        current.details.network_settings.as_ref().and_then(|settings| settings.networks.clone());
    let mut networks: Vec<_> = networks.unwrap_or_default().into_iter().collect();
    networks.sort_by(|(a, _), (b, _)| a.cmp(b));
    let names = networks.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let chosen = match wanted {
        Some(wanted) => networks.iter().find(|(name, _)| name == wanted),
        None => networks.first(),
    };
    let (name, endpoint) = chosen.ok_or_else(|| match wanted {
        Some(wanted) => format!(
            "`docker.network` is `{wanted}`, but this process's own container is in: {names}. \
             Connect it (`docker network connect {wanted} {}`), or choose one of these",
            current.id.get(..12).unwrap_or(&current.id)
        ),
        None => "this process's own container is in no network: connect it to one".to_string(),
    })?;
    let address = endpoint.ip_address.as_deref().and_then(|address| address.parse().ok());
    let bind: IpAddr = address
        .ok_or_else(|| format!("this process's own container has no address in `{name}`"))?;
    Ok(ContainerNetwork { name: name.clone(), listen: ListenAddress::remote(bind, None) })
}

/// Chooses a network whose gateway is this host.
async fn of_host(
    engine: &Engine,
    config: &Config,
    wanted: Option<&str>,
) -> Result<ContainerNetwork, BackendError> {
    let name = wanted.unwrap_or(BRIDGE);
    if name == HOST {
        return Ok(on_host());
    }
    let network = engine.api.inspect_network(name, None).await.map_err(|error| {
        if is_missing(&error) {
            refused!(
                "there is no network `{name}`: create it (`docker network create {name}`), or \
                     correct `docker.network`"
            )
        } else {
            engine.explain(&error)
        }
    })?;
    if let Some(bind) = config.bind_host {
        return Ok(ContainerNetwork {
            name: name.to_string(),
            listen: ListenAddress::remote(bind, None),
        });
    }
    let gateway = gateway(&network).ok_or_else(|| {
        format!(
            "the network `{name}` has no gateway by which containers could reach this process: use \
             a bridge network, or set `bind_host` to an address of this host that they can reach"
        )
    })?;
    listen::bound(gateway, |problem| {
        format!(
            "containers in `{name}` would connect to the gateway {gateway}, which is no address of \
             this host ({problem}): if the engine is on another host, set `bind_host` and \
             `advertised_host` to addresses by which containers reach this host"
        )
    })?;
    Ok(ContainerNetwork { name: name.to_string(), listen: ListenAddress::remote(gateway, None) })
}

/// Returns the address of the engine's host in a network. A bridge without any container yet may
/// not report it; then it is the first address of the subnet.
fn gateway(network: &NetworkInspect) -> Option<IpAddr> {
    let configs = network.ipam.as_ref()?.config.as_ref()?;
    let first_of = |subnet: &str| -> Option<IpAddr> {
        let base: Ipv4Addr = subnet.split('/').next()?.parse().ok()?;
        Some(Ipv4Addr::from(u32::from(base) + 1).into())
    };
    let is_bridge = network.driver.as_deref() == Some(BRIDGE);
    let gateways = configs.iter().filter_map(|config| match &config.gateway {
        Some(gateway) => gateway.split('/').next()?.parse().ok(),
        None if is_bridge => config.subnet.as_deref().and_then(first_of),
        None => None,
    });
    gateways.min_by_key(IpAddr::is_ipv6)
}

fn on_host() -> ContainerNetwork {
    ContainerNetwork {
        name: HOST.to_string(),
        listen: ListenAddress::host_only(LinkKind::remote(), Locality::Remote),
    }
}

//! The cluster, by its command line.

use std::fmt::Display;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

use serde_json::Value;

use crate::command::output;

/// The variable with the registry for nodes that do not share this host's Docker engine.
const REGISTRY: &str = "TEST_REGISTRY";
/// An address for documentation (RFC 5737): data for it would take the default route.
const DOCUMENTATION_ADDRESS: &str = "192.0.2.1";

/// Runs `kubectl`, and returns its output or its error.
pub fn try_kubectl(arguments: &[&str]) -> Result<String, String> {
    output("kubectl", arguments, "")
}

/// Runs `kubectl`, which must succeed, and returns its output.
#[track_caller]
pub fn kubectl(arguments: &[&str]) -> String {
    try_kubectl(arguments)
        .unwrap_or_else(|problem| panic!("kubectl {}: {problem}", arguments.join(" ")))
}

/// Creates or changes objects of the cluster.
#[track_caller]
pub fn apply(objects: impl Display) {
    let objects = objects.to_string();
    let apply = || output("kubectl", &["apply", "-f", "-"], &objects);
    // Another test may have created or changed the same object after `kubectl` looked at it.
    let is_race =
        |problem: &String| ["AlreadyExists", "Conflict"].iter().any(|why| problem.contains(why));
    let applied =
        (0..3).find_map(|_| Some(apply()).filter(|applied| !applied.as_ref().is_err_and(is_race)));
    applied.unwrap_or_else(apply).unwrap_or_else(|problem| panic!("{problem}: {objects}"));
}

/// Sends an object to the API server; `verb` is `create` or `replace`.
pub fn try_send(verb: &str, path: &str, object: &Value) -> Result<String, String> {
    output("kubectl", &[verb, "--raw", path, "-f", "-"], &object.to_string())
}

/// Returns the objects that `kubectl get` finds.
#[track_caller]
pub fn get(arguments: &[&str]) -> Value {
    let all = [&["get", "-o", "json"], arguments].concat();
    serde_json::from_str(&kubectl(&all)).expect("it is JSON")
}

/// Returns the schedulable nodes.
pub fn nodes() -> Vec<Value> {
    let Value::Array(mut nodes) = get(&["nodes"])["items"].take() else { panic!("it is a list") };
    nodes.retain(|node| node["spec"]["unschedulable"] != true);
    nodes
}

/// Returns the current context's part of the kubeconfig, with the contents of its files.
pub fn kubeconfig() -> Value {
    let config = kubectl(&["config", "view", "--minify", "--flatten", "--raw", "-o", "json"]);
    serde_json::from_str(&config).expect("it is JSON")
}

/// Returns the namespace of the kubeconfig.
pub fn namespace() -> String {
    kubeconfig()["contexts"][0]["context"]["namespace"].as_str().unwrap_or("default").to_string()
}

/// Returns the registry of this cluster, if its nodes need one.
pub fn registry() -> Option<String> {
    std::env::var(REGISTRY).ok().filter(|registry| !registry.is_empty())
}

/// Returns the host and the port of the API server.
pub fn server() -> (String, u16) {
    let url =
        kubeconfig()["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default().to_string();
    let authority = url.trim_start_matches("https://").split('/').next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().expect("it is a port")),
        _ => (authority, 443),
    };
    (host.trim_matches(['[', ']']).to_string(), port)
}

/// Returns an address of this host that nodes may reach: its own one towards the API server or, if
/// that is on this host, towards the internet.
pub fn own_address() -> IpAddr {
    let (host, _) = server();
    let towards = |host: &str| {
        let other = (host, 443).to_socket_addrs().ok()?.next()?;
        let socket = UdpSocket::bind(if other.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" }).ok()?;
        socket.connect(other).ok()?;
        socket
            .local_addr()
            .ok()
            .map(|address| address.ip())
            .filter(|address| !address.is_loopback())
    };
    towards(&host).or_else(|| towards(DOCUMENTATION_ADDRESS)).expect("this host has an address")
}

//! Networks that reset, drop and delay packets: a pool becomes complete again.

use std::time::Duration;

use fiber_test_support::command::output;
use fiber_test_support::kubectl::{kubectl, try_kubectl};
use fiber_test_support::program::{Program, Setup};
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::{self, leaves_nothing, names, pods, program, text};
use crate::proxy::Proxy;

/// A program with a pool of two workers, and the port where it listens.
struct Pair {
    program: Program,
    port: String,
}

impl Pair {
    /// Starts a program, and waits until its pool is complete.
    fn start(scenario: &str) -> Pair {
        let pair = Pair::begin(program(scenario));
        pair.program.line("ready: 2");
        pair
    }

    /// Starts a program. Skips the test if pods' packets do not pass this host's firewall.
    fn begin(setup: Setup) -> Pair {
        if !cluster::is_of_this_host() || iptables(&["-S", "INPUT"]).is_err() {
            crate::skip("disturbing packets of pods requires root on the cluster's only node");
        }
        let program = setup.start();
        let mut address = None;
        wait_until("a pod says where its parent is", || {
            address = pods(program.pid()).iter().find_map(|pod| {
                let variables = pod["spec"]["containers"][0]["env"].as_array()?;
                let urls = variables
                    .iter()
                    .filter_map(|variable| text(&variable["value"]).rsplit_once("tcp://"));
                urls.map(|(_, address)| address.to_string()).next()
            });
            address.is_some()
        });
        let (_, port) =
            address.as_deref().and_then(|address| address.rsplit_once(':')).expect("it has a port");
        Pair { port: port.to_string(), program }
    }

    /// Returns the address of one of its running pods.
    fn worker(&self) -> String {
        let is_running =
            |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["running"].is_object();
        let mut running = None;
        wait_until("a pod runs", || {
            running = pods(self.program.pid()).into_iter().find(is_running);
            running.is_some()
        });
        text(&running.unwrap_or_default()["status"]["podIP"]).to_string()
    }

    /// Deletes one of its pods, which the pool then replaces.
    fn lose_a_worker(&self) -> String {
        let mut victim = String::new();
        wait_until("a pod is deleted", || {
            victim = names(&pods(self.program.pid())).remove(0);
            // One that the pool is about to replace may be gone by now.
            try_kubectl(&["delete", "pod", &victim, "--force", "--grace-period=0"]).is_ok()
        });
        victim
    }

    /// Waits until two workers answer, and returns their names.
    fn is_whole(&mut self) -> String {
        self.program.say("go on");
        self.program.line("whole:")
    }

    fn ends(self) {
        leaves_nothing(self.program).code(0);
    }
}

fn iptables(arguments: &[&str]) -> Result<String, String> {
    output("iptables", &[&["-w"], arguments].concat(), "")
}

/// Firewall rules for packets between pods and a program. Dropping them removes them.
struct FirewallRules(Vec<Vec<String>>);

impl FirewallRules {
    fn none() -> FirewallRules {
        FirewallRules(Vec::new())
    }

    /// Adds a rule before all others.
    fn with(mut self, chain: &str, rule: &str) -> FirewallRules {
        let rule: Vec<String> =
            [chain].into_iter().chain(rule.split(' ')).map(String::from).collect();
        iptables(&with("-I", &rule)).unwrap_or_else(|problem| panic!("{rule:?}: {problem}"));
        self.0.push(rule);
        self
    }

    /// Applies `fate` to packets of new connections: existing ones go on.
    fn on_new_connections(port: &str, fate: &str) -> FirewallRules {
        const MARK: &str = "0xf1be";
        FirewallRules::none()
            .with("INPUT", &format!("-p tcp --dport {port} -m connmark --mark {MARK} {fate}"))
            .with(
                "INPUT",
                &format!(
                    "-p tcp --dport {port} -m conntrack --ctstate NEW -j CONNMARK --set-mark {MARK}"
                ),
            )
    }

    /// Waits until a rule has matched a packet.
    fn wait_for_match(&self) {
        let fates: Vec<_> =
            self.0.iter().filter(|rule| !rule.contains(&"CONNMARK".to_string())).collect();
        wait_until(&format!("a packet meets one of {fates:?}"), || {
            fates.iter().any(|rule| {
                let listed = iptables(&["-v", "-S", &rule[0]]).unwrap_or_default();
                let fate = rule.last().expect("it has an end");
                let port = rule
                    .iter()
                    .skip_while(|word| !word.ends_with("port"))
                    .nth(1)
                    .expect("it has a port");
                // The counters follow `-c`: packets and bytes.
                let mut counters = listed
                    .lines()
                    .filter(|line| {
                        line.contains(&format!("port {port} ")) && line.contains(fate.as_str())
                    })
                    .filter_map(|line| line.split_once(" -c "));
                counters.any(|(_, counters)| !counters.starts_with("0 "))
            })
        });
    }

    /// Applies `fate` to all packets between a pod and the program.
    fn between(pod: &str, port: &str, fate: &str) -> FirewallRules {
        FirewallRules::none()
            .with("INPUT", &format!("-p tcp -s {pod} --dport {port} {fate}"))
            .with("OUTPUT", &format!("-p tcp -d {pod} --sport {port} {fate}"))
    }
}

impl Drop for FirewallRules {
    fn drop(&mut self) {
        for rule in &self.0 {
            if let Err(problem) = iptables(&with("-D", rule)) {
                eprintln!("the rule {rule:?} stays behind: {problem}");
            }
        }
    }
}

fn with<'a>(command: &'a str, rule: &'a [String]) -> Vec<&'a str> {
    [command].into_iter().chain(rule.iter().map(String::as_str)).collect()
}

/// The length of an outage: longer than the heartbeat timeout.
const OUTAGE: Duration = Duration::from_secs(6);
const RESET: &str = "-j REJECT --reject-with tcp-reset";

impl FirewallRules {
    /// Removes the rules this long after their first match.
    fn last(self, time: Duration) {
        self.wait_for_match();
        std::thread::sleep(time);
    }
}

#[trial]
fn first_starts_with_reset_or_lost_connections_are_repeated() {
    let reset_once =
        |packet: u32| format!("-m statistic --mode nth --every 1000000 --packet {packet} {RESET}");
    let drop_from = |packet: u32| {
        let connbytes = "--connbytes-dir original --connbytes-mode packets";
        format!("-m connbytes --connbytes {packet}: {connbytes} -j DROP")
    };
    let actions = [0, 2, 4, 6].map(reset_once).into_iter().chain([2, 4].map(drop_from));
    for (index, action) in actions.enumerate() {
        // The first connections wait until the rules for this program's port stand.
        let closed =
            FirewallRules::none().with("INPUT", "! -i lo -p tcp --dport 32768:60999 --syn -j DROP");
        let mut pair = Pair::begin(program("pair"));
        let rules = FirewallRules::on_new_connections(&pair.port, &action);
        drop(closed);
        match index {
            ..4 => rules.wait_for_match(),
            _ => rules.last(OUTAGE),
        }
        pair.program.line("ready: 2");
        pair.is_whole();
        pair.ends();
    }
}

#[trial]
fn a_worker_with_a_reset_or_lost_connection_is_replaced() {
    let mut pair = Pair::start("pair");
    for fate in [RESET, "-j DROP"] {
        let rules = FirewallRules::between(&pair.worker(), &pair.port, fate);
        rules.last(OUTAGE);
        pair.is_whole();
    }
    pair.ends();
}

#[trial]
fn a_pod_with_an_unreported_end_is_replaced() {
    let (proxy, directory) = (Proxy::start(), TempDir::new().expect("there is room"));
    let setup = program("calm pair").env("KUBECONFIG", proxy.kubeconfig(directory.path()));
    let mut pair = Pair::begin(setup.env("FIBER_START_TIMEOUT", "10m"));
    pair.program.line("ready: 2");
    // The watch's connection is lost, and neither side notices.
    proxy.freeze();
    // No link to the pod can report it either, because there is none yet.
    let rules = FirewallRules::on_new_connections(&pair.port, "-j DROP");
    let before = names(&pods(pair.program.pid()));
    pair.lose_a_worker();
    let mut successor = None;
    wait_until("there is a successor", || {
        successor = names(&pods(pair.program.pid())).into_iter().find(|pod| !before.contains(pod));
        successor.is_some()
    });
    rules.wait_for_match();
    let successor = successor.unwrap_or_default();
    kubectl(&["delete", "pod", &successor, "--force", "--grace-period=0"]);
    wait_until("its process is gone", || pair.program.processes().len() <= 2);
    drop(rules);
    let whole = pair.is_whole();
    assert!(!whole.contains(&successor), "{whole}");
    pair.ends();
}

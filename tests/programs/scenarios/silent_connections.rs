//! A ring whose ranks have silent connections from outside of the session.

use std::collections::HashSet;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;

use fiber::{Reduction, Ring, RingNode};
use fiber_test_support::scenario;
use fiber_test_support::wait::wait_until;

/// Connections to each socket of a rank.
const CROWD: usize = 20;

#[scenario("ring among silent connections")]
fn ring() {
    fiber::init();
    println!("sums {:?}", Ring::builder().size(3).try_run(sum, ()).wait());
}

fn sum(mut node: RingNode) -> fiber::Result<f32> {
    let file = |rank: usize| PathBuf::from(format!("{rank}.crowded"));
    let names = listening();
    assert!(!names.is_empty(), "ranks on one host listen for streams");
    let connect = |name: &String| {
        let address = SocketAddr::from_abstract_name(name).expect("it is short");
        UnixStream::connect_addr(&address).expect("it listens")
    };
    let silent: Vec<_> = names
        .iter()
        .flat_map(|name| (0..CROWD).map(|_| connect(name)).collect::<Vec<_>>())
        .collect();
    std::fs::write(file(node.rank()), "").expect("there is room");
    // No rank connects before the silent connections of all ranks.
    wait_until("a file of each rank", || (0..node.size()).all(|rank| file(rank).exists()));
    let mut sum = [node.rank() as f32];
    node.all_reduce(&mut sum, Reduction::Sum)?;
    drop(silent);
    Ok(sum[0])
}

/// Returns the abstract names at which this process listens.
fn listening() -> Vec<String> {
    let files = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").flatten();
    let own: HashSet<_> = files.filter_map(|file| std::fs::read_link(file.path()).ok()).collect();
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("/proc is mounted");
    let named = |line: &str| {
        // Number, references, protocol, flags (which say that it listens), type, state, inode,
        // name.
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, _, _, "00010000", _, _, inode, name] = fields[..] else { return None };
        let is_own = own.contains(&PathBuf::from(format!("socket:[{inode}]")));
        is_own.then(|| name.strip_prefix('@').map(str::to_string)).flatten()
    };
    sockets.lines().filter_map(named).collect()
}

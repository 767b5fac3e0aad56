//! Rings that start processes of another framework.

use std::io::Write;
use std::process::Command;

use fiber::{Error, Ring, RingNode};

/// Returns a Python that has PyTorch, whose import takes seconds.
fn python_with_torch() -> Option<&'static str> {
    let has_torch = |python: &&str| {
        let find =
            "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)";
        let asked = Command::new(python).args(["-c", find]).output();
        asked.is_ok_and(|done| done.status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has_torch)
}

#[test]
fn torch_distributed_runs_with_the_environment_of_the_nodes() {
    const SUM: &str = "try:
    import torch, torch.distributed as dist
    assert dist.is_gloo_available()
except Exception:
    raise SystemExit('there is no gloo')
dist.init_process_group('gloo')
x = torch.tensor([float(dist.get_rank() + 1)] * 3)
dist.all_reduce(x)
print(dist.get_world_size(), x.tolist())";
    fn start(node: RingNode, python: String) -> fiber::Result<String> {
        let mut command = node.command(python);
        // By default gloo resolves this host's name, which may be unknown to the name service.
        command.args(["-c", SUM]).env("GLOO_SOCKET_IFNAME", "lo");
        let done =
            command.output().map_err(|error| Error::system("python can't be started", error))?;
        Ok(String::from_utf8_lossy(if done.status.success() { &done.stdout } else { &done.stderr })
            .trim()
            .into())
    }
    let run = |python: &str| Ring::builder().size(2).try_run(start, python.to_string()).wait();
    let printed = python_with_torch().map(|python| run(python).unwrap());
    match printed.filter(|printed| printed.iter().all(|text| !text.contains("there is no gloo"))) {
        Some(printed) => assert_eq!(printed, ["2 [3.0, 3.0, 3.0]"; 2]),
        // Directly, because the harness shows only the output of failing tests.
        None => drop(writeln!(
            std::io::stderr(),
            "skipped: no python3 here has PyTorch with gloo (`apt-get install python3-torch`)"
        )),
    }
}

#[test]
fn the_environment_has_the_variables_of_torch_distributed() {
    let run = Ring::run(
        2,
        |node: RingNode| node.environment().map(|(name, value)| (name.to_string(), value)),
        (),
    );
    let environments = run.wait().unwrap();
    for (rank, environment) in environments.iter().enumerate() {
        let names: Vec<&str> = environment.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"]);
        assert_eq!(environment[..2], environments[0][..2]);
        assert_eq!((environment[2].1.clone(), environment[3].1.as_str()), (rank.to_string(), "2"));
        assert_ne!(environment[1].1, "0");
    }
}

//! Rings that start processes of another framework.

use std::io::Write;
use std::process::Command;

use fiber::{Error, Ring, RingNode};

/// Returns a Python that has PyTorch with its gloo backend.
fn python_with_gloo() -> Option<&'static str> {
    let has_gloo = |python: &&str| {
        let asked = Command::new(python)
            .args(["-c", "import torch.distributed as d; assert d.is_gloo_available()"])
            .output();
        asked.is_ok_and(|done| done.status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has_gloo)
}

#[test]
fn torch_distributed_runs_with_the_environment_of_the_nodes() {
    const SUM: &str = "import torch, torch.distributed as dist
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
    let Some(python) = python_with_gloo() else {
        // Directly, because the harness shows only the output of failing tests.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: no python3 here has PyTorch with gloo (`apt-get install python3-torch`)"
        );
        return;
    };
    let printed = Ring::builder().size(3).try_run(start, python.to_string()).wait().unwrap();
    assert_eq!(printed, ["3 [6.0, 6.0, 6.0]"; 3]);
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

//! Kills the processes of pods behind fiber's back.
//!
//! The test's own program does so from within the container, so that it works on any node. Fiber's
//! pods share one process namespace, whose first process is not the program's.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::kubectl::{get, try_kubectl};
use crate::wait::wait_until;

/// The argument that makes this program kill all its other processes that it sees.
const KILL_OTHERS: &str = "kill-the-others";

/// Kills the other processes if this process was started for that. Returns whether it was.
pub fn kill_if_asked() -> bool {
    if std::env::args().nth(1).as_deref() != Some(KILL_OTHERS) {
        return false;
    }
    let executable =
        |process: &str| std::fs::read_link(PathBuf::from("/proc").join(process).join("exe")).ok();
    let own = executable("self").expect("/proc is mounted");
    for entry in std::fs::read_dir("/proc").expect("/proc is mounted").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.parse().ok().and_then(rustix::process::Pid::from_raw) else {
            continue;
        };
        if pid != rustix::process::getpid() && executable(&name).as_ref() == Some(&own) {
            // It may have ended meanwhile.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    true
}

/// Kills the process of a pod, and waits until the cluster reports its end.
#[track_caller]
pub fn kill(namespace: &str, name: &str) {
    let pod = get(&["--namespace", namespace, "pod", name]);
    let container = &pod["spec"]["containers"][0];
    let (container, program) = (container["name"].as_str(), container["command"][0].as_str());
    let (container, program) =
        (container.expect("it has a name"), program.expect("fiber says what to run"));
    let exec = ["--namespace", namespace, "exec", name, "-c", container, "--", program];
    let ended = || match try_kubectl(&["--namespace", namespace, "get", "pod", name, "-o", "json"])
    {
        Ok(pod) => {
            let pod: serde_json::Value = serde_json::from_str(&pod).expect("it is JSON");
            pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
        }
        Err(problem) => problem.contains("not found"),
    };
    let mut exec = kill_in(Command::new("kubectl").args(exec));
    wait_until(&format!("the process of {name} is dead"), ended);
    // Some engines leave the connection open although the container is gone.
    let _ = exec.kill();
    let _ = exec.wait();
}

/// Kills the other processes of the container in which `exec` runs this program.
pub fn kill_in(exec: &mut Command) -> Child {
    let exec = exec.arg(KILL_OTHERS).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    exec.expect("the engine's command is installed")
}

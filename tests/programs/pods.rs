//! The processes of pods, killed without fiber's doing.
//!
//! It is done from within, so that it works on any node: the test's own program is called once more
//! in the container. The pods that fiber makes share one process namespace, whose first process is
//! not the program's.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::kubectl::{get, try_kubectl};
use crate::wait::wait_until;

/// The argument by which this program is told to kill all others of its kind that it sees.
const ORDER: &str = "kill-the-others";

/// Kills them, if that is what this process is for.
pub(crate) fn kill_if_asked() -> bool {
    if std::env::args().nth(1).as_deref() != Some(ORDER) {
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

/// Kills the process of a pod, and waits until the cluster knows of its end.
#[track_caller]
pub(crate) fn kill(namespace: &str, name: &str) {
    let pod = get(&["--namespace", namespace, "pod", name]);
    let container = &pod["spec"]["containers"][0];
    let (container, program) = (container["name"].as_str(), container["command"][0].as_str());
    let (container, program) =
        (container.expect("it has a name"), program.expect("fiber says what to run"));
    let order = ["--namespace", namespace, "exec", name, "-c", container, "--", program, ORDER];
    let order =
        Command::new("kubectl").args(order).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut order = order.expect("the command `kubectl` is installed");
    let ended = || match try_kubectl(&["--namespace", namespace, "get", "pod", name, "-o", "json"])
    {
        Ok(pod) => {
            let pod: serde_json::Value = serde_json::from_str(&pod).expect("it is JSON");
            pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
        }
        Err(problem) => problem.contains("not found"),
    };
    wait_until(&format!("the process of {name} is dead"), ended);
    // An engine may leave the connection open although the container is gone.
    let _ = order.kill();
    let _ = order.wait();
}

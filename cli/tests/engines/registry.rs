//! Images in a registry: one that these tests start, or the one that the cluster's nodes use.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use fiber_test_support::docker::{docker, try_docker};
use fiber_test_support::kubectl;
use fiber_test_support::trial;
use fiber_test_support::wait::LONG;
use tempfile::TempDir;

use crate::engine::{Engine, fiber, own_name, run};

/// The registry program in Debian.
const PROGRAM: &str = "docker-registry";

/// Returns whether this host can run a registry.
pub(crate) fn is_there() -> bool {
    Command::new(PROGRAM).arg("--version").output().is_ok()
}

/// A registry on this host, which Docker uses without certificates. Dropping this ends it.
struct Registry {
    child: Child,
    address: String,
    _files: TempDir,
}

impl Registry {
    fn start() -> Registry {
        let files = TempDir::new().expect("there is room");
        let configuration = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \
             \"127.0.0.1:0\"}}\n",
            files.path().display()
        );
        let file = files.path().join("config.yml");
        std::fs::write(&file, configuration).expect("there is room");
        let mut command = Command::new(PROGRAM);
        command
            .arg("serve")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("it can be started");
        let lines =
            BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let (sender, addresses) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines {
                let Some((_, rest)) = line.split_once("listening on ") else { continue };
                let _ = sender.send(rest.split(['"', ' ']).next().unwrap_or_default().to_string());
            }
        });
        let address = addresses.recv_timeout(LONG).expect("it says where it listens");
        Registry { child, address, _files: files }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[trial]
fn an_image_is_pushed_and_fetched_again(engine: &'static dyn Engine) {
    let (address, _registry) = match kubectl::registry().filter(|_| engine.name() == "kubernetes") {
        Some(address) => (address, None),
        None => {
            let registry = Registry::start();
            (registry.address.clone(), Some(registry))
        }
    };
    let place = format!("{address}/{}", own_name("team"));
    run(engine, &["-a"], "pi").env("FIBER_REGISTRY", &place).run().code(0).says(&["pi: 3.14"]);
    let repository = format!("{place}/fiber-auto/engines");
    let published = docker(&["images", "--format", "{{.Repository}}:{{.Tag}}", &repository]);
    assert!(published.starts_with(&repository) && published.lines().count() == 1, "{published}");
    // Now only the registry has the image under this name.
    docker(&["rmi", &published]);
    let options = [
        "run",
        "-a",
        "--env",
        "SCENARIO=pi",
        "--env",
        "LD_LIBRARY_PATH=/fiber/lib",
        "--image",
        &published,
    ];
    fiber(engine, &[&options[..], &[&crate::images::path()]].concat())
        .run()
        .code(0)
        .says(&["pi: 3.14"]);
    // A node that does not share this host's engine has pulled it for itself.
    let _ = try_docker(&["rmi", &published]);
    // The registry has no other image.
    let other = published.replace("/engines:", "/others:");
    let ending = fiber(engine, &["run", "--image", &other]).run().code(125);
    assert!(
        ending.errors.contains(&other) && ending.errors.contains("not found"),
        "{}",
        ending.errors
    );
}

//! A moment without descriptors fails the operations in it, with an error that names the limit, and
//! no later one.
//!
//! The test runs this program again in two roles: a client, whose limit it lowers, and the server
//! of its Docker engine and of its cluster.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use fiber_backends::{Backend, Docker, DockerSection, JobSpec, Kubernetes, Local};
use fiber_core::{Config, Meta};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::timeout;

/// The variable with the role of this process.
const ROLE: &str = "SHORTAGE_ROLE";
/// The name of the test, which is the only one.
const TEST: &str = "a_moment_without_descriptors_harms_no_later_operation";
/// Time limit for each operation.
const LONG: Duration = Duration::from_secs(120);
/// More descriptors than an operation needs.
const ENOUGH: u64 = 30;
/// The client's last line of output.
const DONE: &str = "no later operation is harmed";

#[test]
fn a_moment_without_descriptors_harms_no_later_operation() {
    match std::env::var(ROLE).as_deref() {
        Ok("server") => serve(),
        Ok(_) => use_backends(),
        Err(_) => run_both(),
    }
}

fn run_both() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let place = tempfile::tempdir().unwrap();
    let kubeconfig = place.path().join("kubeconfig");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: it, users: [{{name: it, user: {{}}}}], \
         clusters: [{{name: it, cluster: {{server: 'http://{address}'}}}}], \
         contexts: [{{name: it, context: {{cluster: it, user: it}}}}]}}"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let role = |role: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).env(ROLE, role);
        command
    };
    let server = role("server").stdin(OwnedFd::from(listener)).stdout(Stdio::null()).spawn();
    let mut client = role("client");
    client.env("DOCKER_HOST", format!("tcp://{address}")).env("KUBECONFIG", kubeconfig);
    let ended = client.output();
    let mut server = server.unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let ended = ended.unwrap();
    let (out, errors) =
        (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && out.contains(DONE), "{out}\n{errors}");
}

/// Leaves this process `count` descriptors, until it is dropped.
struct Shortage(Rlimit);

impl Shortage {
    fn of_all_but(count: u64) -> Shortage {
        let before = getrlimit(Resource::Nofile);
        let lowest_free = File::open("/dev/null").unwrap().as_raw_fd() as u64;
        let current = Some(lowest_free + count);
        setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
        Shortage(before)
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).unwrap();
    }
}

fn use_backends() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let mut config = Config::default();
        config.edit(|docker: &mut DockerSection| docker.network = Some("host".into()));
        finds_its_address(|| Docker::new(&config).unwrap()).await;
        finds_its_address(|| Kubernetes::new(&config).unwrap()).await;
        config.bind_host = Some([127, 0, 0, 1].into());
        finds_its_address(|| Kubernetes::new(&config).unwrap()).await;
        counts_its_gpus().await;
    });
    println!("{DONE}");
}

/// Checks backends that look for the address at which to listen, while few descriptors are left.
async fn finds_its_address<B: Backend>(new: impl Fn() -> B) {
    let find = async |backend: &B| {
        let found = timeout(LONG, backend.listen_address()).await.expect("in time");
        found.map_err(|error| error.to_string())
    };
    // A host without a default route has no address for pods.
    let expected = find(&new()).await;
    let mut refused = 0;
    for rest in 0..ENOUGH {
        let backend = new();
        let shortage = Shortage::of_all_but(rest);
        let early = find(&backend).await;
        drop(shortage);
        if early != expected {
            let error = early.unwrap_err();
            assert!(error.contains("ulimit -n"), "with {rest} descriptors: {error}");
            refused += 1;
        }
        assert_eq!(find(&backend).await, expected, "after {rest} descriptors");
    }
    assert!((1..ENOUGH).contains(&refused), "{refused} of {ENOUGH} were refused");
}

async fn counts_its_gpus() {
    let mut config = Config::default();
    config.gpus = None;
    let backend = Local::new(&config);
    let spec = JobSpec { meta: Meta::new().gpu(u32::MAX), ..JobSpec::new("greedy") };
    let shortage = Shortage::of_all_but(0);
    let early = backend.create(spec.clone()).await.unwrap_err().to_string();
    drop(shortage);
    let later = backend.create(spec).await.unwrap_err().to_string();
    // With the variable, no file is read.
    let known = std::env::var_os("CUDA_VISIBLE_DEVICES").is_some();
    assert!(known || early.contains("ulimit -n"), "{early}");
    assert!(later.contains("but this host has"), "{later}");
}

/// Answers as an engine and as an API server, until it is killed.
fn serve() {
    let listener = TcpListener::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        std::thread::spawn(move || drop(answer(stream)));
    }
}

fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut request, mut line) = (String::new(), String::new());
        reader.read_line(&mut request)?;
        // None of the requests has a body.
        while reader.read_line(&mut line)? > 2 {
            line.clear();
        }
        let path = request.split(' ').nth(1).unwrap_or_default();
        let (status, body) = if path.ends_with("/version") {
            let version = r#""major": "1", "minor": "30", "gitVersion": "v1.30.0", "gitCommit": "#;
            let rest =
                r#""", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": """#;
            ("200 OK", format!(r#"{{"ApiVersion": "1.44", {version}{rest}, "platform": ""}}"#))
        } else if path.ends_with("/info") {
            ("200 OK", "{}".to_string())
        } else {
            ("404 Not Found", r#"{"message": "there is none"}"#.to_string())
        };
        if request.is_empty() {
            return Ok(());
        }
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        (&stream).write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
    }
}

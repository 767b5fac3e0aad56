//! The metrics of a session, as Prometheus and others read them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fiber_test_support::program::{Program, Setup};
use fiber_test_support::trial;
use serde_json::Value;
use tempfile::TempDir;

const POOL: &str = "{pool=\"squares\"}";

/// Starts the program, with metrics at a free port.
fn start() -> (Program, u16) {
    let port = free_port();
    let setup = Setup::new("pool on demand").env("FIBER_METRICS", format!("127.0.0.1:{port}"));
    let program = setup.start();
    program.line("ready");
    (program, port)
}

/// Returns a port that no other test takes meanwhile: the system gives none of these to a connection.
fn free_port() -> u16 {
    let first = 20_000 + (std::process::id() % 1000) as u16 * 10;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (first..first + 10).find(is_free).expect("one of ten ports is free")
}

/// Runs what `word` asks for.
fn does(program: &mut Program, word: &str) {
    program.say(word);
    program.line(&format!("done {word}"));
}

/// Sends a request, and returns the answer with its header.
fn request(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
    write!(stream, "{request}\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn metrics(port: u16) -> String {
    let answer = request(port, "GET /metrics HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer
}

/// Returns the value of a series, if it is there.
fn value(text: &str, series: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map(|value| value.trim().parse().expect("it is a number"))
}

/// Returns the sum of the series of a metric that have this label.
fn sum(text: &str, metric: &str, label: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
    let with_label = lines.filter(|line| line.contains(label));
    with_label.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

#[trial]
fn the_head_serves_what_its_pools_did() {
    let (mut program, port) = start();
    for word in ["map", "fail", "die"] {
        does(&mut program, word);
    }
    // The answer may be a fraction of a second old.
    let mut text = String::new();
    program.wait_until("the death in the metrics", || {
        text = metrics(port);
        value(&text, &format!("fiber_tasks_abandoned_total{POOL}")) == Some(1.0)
            && value(&text, &format!("fiber_pool_workers_ready{POOL}")) == Some(2.0)
            // The dead worker may still count as ready when its process is gone.
            && sum(&text, "fiber_processes", "role=\"worker\"") >= 2.0
    });
    assert!(text.contains("content-type: text/plain; version=0.0.4"), "{text}");
    assert_eq!(sum(&text, "fiber_tasks_done_total", "::square\""), 1_000.0, "{text}");
    assert_eq!(sum(&text, "fiber_task_duration_seconds_count", "::square\""), 1_000.0, "{text}");
    assert_eq!(sum(&text, "fiber_tasks_failed_total", "::even\""), 5.0, "{text}");
    assert!(value(&text, &format!("fiber_pool_worker_deaths_total{POOL}")) >= Some(1.0), "{text}");
    assert_eq!(value(&text, &format!("fiber_pool_tasks_pending{POOL}")), Some(0.0), "{text}");
    assert_eq!(value(&text, &format!("fiber_pool_workers_wanted{POOL}")), Some(2.0), "{text}");
    assert!(value(&text, "fiber_session_start_time_seconds") > Some(1.7e9), "{text}");
    assert!(sum(&text, "fiber_events_total", "worker-ended") >= 1.0, "{text}");
    assert!(!text.contains("worker-1"), "{text}");
    let open = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0";
    let open = request(port, open);
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    program.end().code(0);
}

#[trial]
fn other_paths_and_methods_get_a_hint() {
    let (program, port) = start();
    for (line, status) in [("GET / HTTP/1.1", "200"), ("GET /metric HTTP/1.1", "404")] {
        let answer = request(port, line);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(answer.contains("are at /metrics"), "{answer}");
    }
    assert!(request(port, "DELETE /metrics HTTP/1.1").starts_with("HTTP/1.1 405"));
    program.end().code(0);
}

#[trial]
fn the_log_says_which_port_the_system_has_chosen() {
    let errors = Setup::new("report").env("FIBER_METRICS", "127.0.0.1:0").run().code(0).errors;
    let address = errors.split_once("metrics are at http://127.0.0.1:").expect("it is logged").1;
    let port = address.split_once('/').expect("a path").0.parse::<u16>();
    assert!(port.is_ok_and(|port| port > 0), "{errors}");
}

#[trial]
fn an_address_in_use_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = taken.local_addr().expect("it has an address").to_string();
    let text = format!("`metrics` is `{address}`: another program serves there");
    Setup::new("first error").env("FIBER_METRICS", &address).run().code(0).says(&[&text]);
    for (address, text) in [
        ("9464", "`FIBER_METRICS` to `9464`: it must be an IP address and a port"),
        ("192.0.2.1:9464", "`metrics` is `192.0.2.1:9464`: this host has no such address"),
    ] {
        Setup::new("first error").env("FIBER_METRICS", address).run().code(0).says(&[text]);
    }
}

/// A Prometheus server that scrapes one session. It is killed when this is dropped.
struct Prometheus {
    server: Child,
    port: u16,
    _data: TempDir,
}

impl Prometheus {
    /// Starts it, unless it is not installed.
    fn start(session: u16) -> Option<Prometheus> {
        let data = TempDir::new().expect("a directory can be created");
        let port = free_port();
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus/fiber-rules.yml");
        let text = format!(
            "global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}\n\
             rule_files: [{}]\n\
             scrape_configs: [{{job_name: fiber, static_configs: \
             [{{targets: ['127.0.0.1:{session}']}}]}}]\n",
            rules.display()
        );
        let file = data.path().join("prometheus.yml");
        std::fs::write(&file, text).expect("there is room");
        let server = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", data.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match server {
            Ok(server) => Some(Prometheus { server, port, _data: data }),
            Err(error) => {
                eprintln!("skipped: `prometheus`: {error} (scripts/setup.sh observability)");
                None
            }
        }
    }

    /// Returns the value of a query that has one, once the server can be reached.
    fn query(&self, query: &str) -> Option<f64> {
        TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = request(self.port, &format!("GET /api/v1/query?query={encoded} HTTP/1.0"));
        let body = answer.split_once("\r\n\r\n")?.1;
        let answer: Value = serde_json::from_str(body).ok()?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[trial]
fn prometheus_scrapes_and_answers() {
    let (mut program, port) = start();
    let Some(prometheus) = Prometheus::start(port) else { return };
    does(&mut program, "map");
    does(&mut program, "map");
    does(&mut program, "fail");
    for (query, wanted) in [
        ("up{job=\"fiber\"}", 1.0),
        ("sum by (pool) (fiber_tasks_done_total)", 2_010.0),
        ("sum(fiber_tasks_failed_total{pool=\"squares\"})", 5.0),
        ("fiber_pool_workers_ready", 2.0),
        ("sum(fiber_task_duration_seconds_count{function=~\".*square\"})", 2_000.0),
        ("histogram_quantile(0.5, sum by (le) (fiber_task_duration_seconds_bucket)) < bool 1", 1.0),
        ("sum(fiber_processes)", 3.0),
        ("count(fiber_build_info{backend=\"local\"})", 1.0),
    ] {
        program.wait_until(query, || prometheus.query(query) == Some(wanted));
    }
    // The counters go on after a death.
    does(&mut program, "die");
    does(&mut program, "map");
    let cpu = "sum(resets(fiber_process_cpu_seconds_total[5m]))";
    let done = "sum(fiber_tasks_done_total{function=~\".*square\"})";
    program.wait_until(done, || prometheus.query(done) == Some(3_000.0));
    assert_eq!(prometheus.query(cpu), Some(0.0));
    // The alerts' expressions have values.
    let rules = "count(prometheus_rule_group_rules)";
    program.wait_until(rules, || prometheus.query(rules).is_none_or(|count| count >= 1.0));
    program.end().code(0);
}

#[trial]
fn many_requests_disturb_no_work() {
    const THREADS: usize = 4;
    const REQUESTS: usize = 2_000;
    let (mut program, port) = start();
    program.say("nap");
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..REQUESTS / THREADS).for_each(|_| drop(metrics(port))));
        }
    });
    let took = began.elapsed();
    program.line("done nap");
    does(&mut program, "map");
    println!("{REQUESTS} requests took {took:?}");
    program.end().code(0);
}

#[trial]
fn clients_that_hang_or_send_garbage_hold_up_nobody() {
    let (mut program, port) = start();
    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    // More than it serves at a time: some send nothing, some half a request.
    let mut hanging: Vec<_> = (0..100).map(|_| connect()).collect();
    for stream in hanging.iter_mut().step_by(2) {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
    }
    let mut garbage = connect();
    let _ = garbage.write_all(&[0xff; 4096]);
    does(&mut program, "map");
    // Others are served at once: the oldest of these give way.
    program.wait_until("the tasks in the metrics", || {
        sum(&metrics(port), "fiber_tasks_done_total", "square\"") == 1_000.0
    });
    let mut rest = Vec::new();
    let _ = garbage.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"), "{rest:?}");
    drop(hanging);
    program.end().code(0);
}

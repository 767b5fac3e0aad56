//! Spans of tasks, exported by OpenTelemetry to a collector.

use std::collections::{BTreeSet, HashSet};
use std::net::TcpListener;

use fiber_test_support::program::Setup;
use fiber_test_support::trial;
use rustix::process::Signal;

use crate::collector::{Collector, Span};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

fn setup(scenario: &str) -> Setup {
    let unset = |setup: Setup, name: &str| setup.env(name, "");
    ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER", "RUST_LOG"]
        .into_iter()
        .fold(Setup::new(scenario), unset)
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[trial]
fn the_span_of_a_call_is_the_parent_of_its_tasks() {
    let collector = Collector::start(&[]);
    let ending = setup("traced tasks").env(ENDPOINT, &collector.url).run().code(0);
    let head = ending.out.lines().find_map(|line| line.strip_prefix("head ")).unwrap();
    let spans = collector.spans();
    let reports = named(&spans, "report");
    let [report] = reports[..] else { panic!("{reports:?}") };
    assert_eq!(report.parent, [0u8; 0]);
    assert_eq!(report.process["process.pid"], head);
    assert!(spans.iter().all(|span| span.trace == report.trace), "{spans:?}");

    let tasks = named(&spans, "task");
    assert!(tasks.iter().all(|task| task.parent == report.id), "{tasks:?}");
    let (failed, tasks): (Vec<_>, Vec<_>) =
        tasks.into_iter().partition(|task| task.error.is_some());
    let [failed] = failed[..] else { panic!("{failed:?}") };
    assert!(failed.error.as_ref().unwrap().contains("no paper"), "{failed:?}");

    let number = |task: &Span| task.attributes["index"].parse::<u64>().unwrap();
    let mut indices: Vec<_> = tasks.iter().map(|task| number(task)).collect();
    indices.sort_unstable();
    assert_eq!(indices, Vec::from_iter(0..20));
    for task in &tasks {
        assert_eq!(task.attributes["pool"], "tracers");
        assert_eq!(task.attributes["function"], "programs::scenarios::traced::work");
    }
    let each = |key: fn(&Span) -> &String| tasks.iter().map(|task| key(task)).collect();
    let workers: BTreeSet<_> = each(|task| &task.attributes["worker"]);
    assert_eq!(workers.into_iter().collect::<Vec<_>>(), ["worker-1", "worker-2"]);
    let processes: BTreeSet<_> = each(|task| &task.process["process.pid"]);
    assert_eq!(processes.len(), 2);
    assert!(processes.iter().all(|pid| *pid != head));

    let inner = named(&spans, "inner");
    let parents: HashSet<_> = inner.iter().map(|span| &span.parent).collect();
    assert_eq!(parents, tasks.iter().map(|task| &task.id).collect());
    assert!(inner.iter().all(|span| span.events == 1), "{inner:?}");
}

#[trial]
fn each_span_arrives_whatever_fits_into_a_message() {
    let collector = Collector::start(&[]);
    let setup = setup("many traced tasks").env(ENDPOINT, &collector.url);
    setup.env("FIBER_MAX_MESSAGE", "4KiB").run().code(0);
    let spans = collector.spans();
    let tasks = named(&spans, "task");
    assert_eq!(tasks.len(), 3000);
    // No span was open where the call was made.
    assert!(tasks.iter().all(|task| task.parent.is_empty()));
    assert_eq!(tasks.iter().map(|task| &task.trace).collect::<HashSet<_>>().len(), 3000);
}

#[trial]
fn spans_of_nested_pools_arrive_through_their_parents() {
    let collector = Collector::start(&[]);
    let program = setup("traced nested pools").env(ENDPOINT, &collector.url).start();
    program.line("done");
    program.signal(Signal::TERM);
    program.end().signal(Signal::TERM);
    let spans = collector.spans();
    let tasks = |pool: &str| {
        let mut tasks = named(&spans, "task");
        tasks.retain(|task| task.attributes["pool"] == pool);
        tasks
    };
    let outer = tasks("outer");
    let [outer] = outer[..] else { panic!("{outer:?}") };
    let inner = tasks("inner");
    assert_eq!(inner.len(), 3);
    assert!(inner.iter().all(|task| task.parent == outer.id && task.trace == outer.trace));
}

#[trial]
fn a_busy_collector_is_asked_again() {
    let collector = Collector::start(&["503 Service Unavailable"]);
    let program = setup("traced nested pools").env(ENDPOINT, &collector.url).start();
    program.line("done");
    program.wait_until("the export", || named(&collector.spans(), "task").len() == 4);
    program.signal(Signal::TERM);
    program.end().signal(Signal::TERM);
    assert!(collector.heads().len() >= 2);
}

#[trial]
fn headers_and_the_name_of_the_service_are_sent() {
    let collector = Collector::start(&[]);
    setup("traced tasks")
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{}/here", collector.url))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=seven")
        .env("OTEL_SERVICE_NAME", "printers")
        .run()
        .code(0);
    for head in collector.heads() {
        assert!(head.starts_with("post /here http/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nx-tenant: seven\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/x-protobuf\r\n"), "{head}");
    }
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.process["service.name"] == "printers"), "{spans:?}");
}

#[trial]
fn a_collector_that_is_not_there_disturbs_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ending = setup("traced tasks").env(ENDPOINT, &url).run().code(0);
    assert_eq!(ending.errors.matches("spans are lost: ").count(), 1, "{}", ending.errors);
    assert!(ending.errors.contains(&url), "{}", ending.errors);
}

#[trial]
fn a_collector_that_hangs_disturbs_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let setup = setup("traced tasks").env(ENDPOINT, &url);
    let ending = setup.env("OTEL_EXPORTER_OTLP_TIMEOUT", "100").run().code(0);
    assert!(ending.errors.contains("spans are lost: "), "{}", ending.errors);
}
